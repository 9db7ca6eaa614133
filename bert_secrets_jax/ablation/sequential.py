"""A sweep that goes on until its verdicts are decided, and stops paying for decided masks.

Texts come in random order, block after block. Each text says how much worse, without a head, it is
told apart: the change of its loss after scale and offsets of the logits are fitted again. The fit
knows earlier blocks only, so that the first block is only fitted to. After each block every
undecided mask has an interval of its mean change, and is dropped once that decides.

Intervals hold for all masks and after all blocks together (`stats.sequential`).

Axes: M masks, m of them that are undecided, K models (the intact one and all masks), k models that
are still computed, E examples, B of a block, C classes (1: a regression), L layers, N heads.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float, Int, Num, Shaped

from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation.contexts import Means
from bert_secrets_jax.ablation.masks import GivenMasks
from bert_secrets_jax.ablation.outcomes import check_labels, discrimination_of, fits
from bert_secrets_jax.ablation.resumable import encoding_for, sweep_all
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.checks import brief, tree
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import bucket, longest_padded, padded_lengths, tokenize
from bert_secrets_jax.data.tasks import Example, labels_of
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.ranges import Positive, Range
from bert_secrets_jax.stats.effects import OPEN, THIS_MODEL, VERDICTS, Outcome
from bert_secrets_jax.stats.scores import PerMask
from bert_secrets_jax.stats.sequential import intervals
from bert_secrets_jax.stats.student import LEVEL

if TYPE_CHECKING:
    import pandas

BLOCK = 50
# Later blocks are this share of all texts before, so that many texts are few blocks.
_GROWTH = 1 / 8
# So many models are fitted by one call.
_AT_ONCE = 8
# Fits in float32 are not exact: this share of the margin is no effect.
_INEXACT = 0.01
# Batches of a block have a multiple of so many rows: hardly a shape is new.
_ROWS = 4
Level = Annotated[float, Range(0.0, 0.5, whole=False, without=0.0)]
Block = Annotated[int, Range(10, 10**9)]

# A function of undecided masks [m] and of rows [B]: the logits of these examples, first those of
# the intact model [k, B, C].
Source = Callable[[Int[np.ndarray, ' m'], Int[np.ndarray, ' B']], Float[np.ndarray, 'k B C']]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decided:
    """The verdicts on masks, and what they cost.

    The chance that any verdict is wrong, or any interval at any time, is at most `level`. An
    estimate that stopped the sweep is a little flattered; its interval is not.

    Attributes:
      names: [M] The heads that each mask disables, such as 'L1-H2'.
      verdict: [M] One of VERDICTS, as in `Effects.verdict`: without it, texts are told apart worse
        or better by more than the margin; it does not matter, within the margin; or open.
      examples: [M] The number of texts that the mask was computed on.
      estimate, low, high: [M] The mean change of the loss without it, after the last of its texts,
        and its interval.
      margin: The change from which on losing a mask matters, in the outcome's unit.
      level: The error rate over all masks and all blocks.
      outcome: The outcome, with its unit.
      sample: The number of texts that were given.
      fitted_on: The number of texts in the first block.
      passes, whole: The number of models times texts that were computed, and that of a whole sweep.
      population: For whom the verdicts are: the texts count as a random sample of texts like these.
    """

    names: Sequence[str]
    verdict: Shaped[np.ndarray, ' M']
    examples: Int[np.ndarray, ' M']
    estimate: PerMask
    low: PerMask
    high: PerMask
    margin: float
    level: float
    outcome: Outcome
    sample: int
    fitted_on: int
    passes: int
    whole: int
    population: str = THIS_MODEL

    __repr__ = brief
    _repr_html_ = tree

    @property
    def counts(self) -> dict[str, int]:
        """The number of masks with each verdict."""
        return {each: int((self.verdict == each).sum()) for each in VERDICTS}

    @property
    def saved(self) -> float:
        """The share of the passes of a whole sweep that were not made."""
        return 1 - self.passes / self.whole

    def frame(self) -> 'pandas.DataFrame':
        """Return a frame with a row for each mask; changes are in the outcome's unit."""
        import pandas

        columns = ('verdict', 'examples', 'estimate', 'low', 'high')
        return pandas.DataFrame(
            {'disabled': list(self.names)} | {each: getattr(self, each) for each in columns}
        )


def sweep_until_decided(
    pretrained: Pretrained,
    examples: Sequence[Example],
    *,
    masks: GivenMasks | None = None,
    baseline: str = 'uniform',
    replacement: Means | None = None,
    donor_seed: int = 0,
    margin: Positive | None = None,
    level: Level = LEVEL,
    block: Block = BLOCK,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Decided:
    """Sweep over masks block by block, and drop each mask as soon as its effect is decided.

    The outcome is 'discrimination': the loss after scale and offsets of the logits are fitted
    again. A verdict is about texts like these, of which the examples are a random sample, and not
    about these very examples. The test of a fixed number of texts (`bs.analyses.ablation`) finds
    effects with about half as many texts; this one tells when to stop.

    With a folder, a sweep that was killed goes on where it was, as that of `sweep_examples`.

    Args:
      pretrained: A model with a classification or regression head.
      examples: The labelled texts, the more the better: those not needed cost nothing.
      masks: [M, L, N] The masks, as in `sweep`; None disables one head at a time. The intact model
        is added.
      baseline, replacement, donor_seed: As in `sweep`. The mean and the donors are those of all
        examples.
      margin: The change of the mean loss from which on losing a mask matters. None takes that of
        `bs.analyses.ablation`: 0.01 nats, or of a regression 1 % of the variance of the labels.
      level: The chance of any wrong verdict.
      block: The number of texts in the first block and the least of each later one. A later one has
        an eighth of all texts before.
      seed: The seed of the order of the texts.
      compute: How it is computed.

    Raises:
      TypeError: The model is not a `Pretrained`, or the examples are not texts.
      ValueError: A label is missing or does not fit the model; margin, level or block are out of
        range; there is only one block; or `sweep` would refuse the other arguments.
      FloatingPointError: Some logits are NaN or infinite.
    """
    labels = labels_of(examples, pretrained.config)
    masks = mask_sets.single_heads(pretrained.config) if masks is None else masks
    masks = mask_sets.check_masks(pretrained.config, masks)
    descent = Descent.start(
        pretrained, mask_sets.with_intact(masks), baseline, replacement, compute
    )
    encoding = encoding_for(descent, compute)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=compute.max_length)
    passes = descent.passes
    every = bucket(encoded, passes=passes, **encoding)
    descent = descent.replacing(pretrained, every, donor_seed, compute.mesh)
    # All blocks are padded to the lengths that suit all texts.
    most = longest_padded(encoded, compute.max_length)
    lengths = padded_lengths(None, most, encoded.lengths, passes=passes).tolist()
    encoding['batch_multiple'] *= _ROWS

    def logits_of(members: np.ndarray, rows: np.ndarray) -> np.ndarray:
        batches = [
            dataclasses.replace(each, example=np.where(each.example < 0, -1, rows[each.example]))
            for each in bucket(encoded.take(rows), buckets=lengths, fewest=1, **encoding)
        ]
        logits = sweep_all(
            pretrained,
            batches,
            descent,
            folder=compute.folder,
            members=np.append(0, 1 + members),
            what=f'{len(members)} masks undecided, next {len(rows)} of {len(labels)} texts',
        )
        return logits[:, rows]

    names = [mask_sets.describe(mask) for mask in masks]
    return decide(
        logits_of, labels, names=names, margin=margin, level=level, block=block, seed=seed
    )


def replay_until_decided(
    logits: Float[np.ndarray, 'K E C'],
    labels: Num[np.ndarray, ' E'],
    *,
    names: Sequence[str],
    margin: Positive | None = None,
    level: Level = LEVEL,
    block: Block = BLOCK,
    seed: int = 0,
) -> Decided:
    """Return the verdicts and the cost of `sweep_until_decided`, from the logits of a whole sweep.

    Args:
      logits: [K, E, C] The logits of the intact model, and those under each mask.
      labels: The classes, from 0, or the values of a regression.
      names: The names of the masks [M].
      margin, level, block, seed: As in `sweep_until_decided`.

    Raises:
      ValueError: Logits, labels and names do not fit each other, or an argument is out of range.
      FloatingPointError: Some logits are NaN or infinite.
    """
    check_labels(logits, labels, names)
    if len(np.unique(labels)) < 2:
        raise ValueError('labels are all the same: at least two different ones are needed.')
    return decide(
        lambda members, rows: logits[np.ix_(np.append(0, 1 + members), rows)],
        labels, names=names, margin=margin, level=level, block=block, seed=seed,
    )  # fmt: skip


def decide(
    logits_of: Source,
    labels: Num[np.ndarray, ' E'],
    *,
    names: Sequence[str],
    margin: float | None,
    level: float,
    block: int,
    seed: int,
) -> Decided:
    """Ask a source for the logits of undecided masks, block by block, until all are decided."""
    count, masks = len(labels), len(names)
    if count < block + 2:
        raise ValueError(
            f'The first {block} texts are only fitted to, and there are {count}: give at least two '
            'more, or a smaller block.'
        )
    order = np.random.default_rng(seed).permutation(count)
    labels = np.asarray(labels)[order]

    def ask(members: np.ndarray, start: int, stop: int) -> np.ndarray:
        logits = np.asarray(logits_of(members, order[start:stop]), np.float64)
        check_finite(logits)
        return logits

    active = np.arange(masks)
    first = ask(active, 0, block)
    outcome = discrimination_of(labels, first.shape[-1])
    margin = outcome.margin if margin is None else margin
    known = np.zeros((1 + masks, count, first.shape[-1]))
    known[:, :block] = first
    changes, extreme = np.zeros((masks, count)), (0.0, 0.0)
    verdict, examples = np.full(masks, OPEN, dtype=object), np.full(masks, block)
    estimate, low, high = np.zeros((3, masks))
    stop = block
    while len(active) and stop < count:
        start, stop = stop, min(stop + max(block, int(stop * _GROWTH)), count)
        models = np.append(0, 1 + active)
        known[models, start:stop] = came = ask(active, start, stop)
        losses = _losses(known[models, :start], labels[:start], came, labels[start:stop])
        changes[active, start:stop] = losses[1:] - losses[0]
        mean, half, extreme = intervals(changes[active, block:stop], extreme, level=level / masks)
        half += _INEXACT * margin
        examples[active], estimate[active] = stop, mean
        low[active], high[active] = mean - half, mean + half
        verdict[active] = np.select(
            [low[active] > margin, high[active] < -margin, np.abs(mean) + half <= margin],
            VERDICTS[:-1],
            OPEN,
        )
        active = active[verdict[active] == OPEN]
    return Decided(
        names=names,
        verdict=verdict.astype(str),
        examples=examples,
        estimate=estimate,
        low=low,
        high=high,
        margin=margin,
        level=level,
        outcome=outcome,
        sample=count,
        fitted_on=block,
        # The intact model goes on as long as any mask.
        passes=int(examples.sum() + examples.max()),
        whole=(1 + masks) * count,
    )


def _losses(
    past: Float[np.ndarray, 'k E C'],
    past_labels: Num[np.ndarray, ' E'],
    came: Float[np.ndarray, 'k B C'],
    labels: Num[np.ndarray, ' B'],
) -> Float[np.ndarray, 'k B']:
    """Return the losses of what came, with the scales and the offsets that suit the past best."""
    models, examples, _ = past.shape
    # Filled up with repeats, which have no weight, to few sizes: each is compiled.
    size = 1 << (examples - 1).bit_length()
    filled, weighed = np.resize(np.arange(examples), size), (np.arange(size) < examples)[None]
    losses = np.empty(came.shape[:2])
    for start in range(0, models, _AT_ONCE):
        which = np.resize(np.arange(models)[start : start + _AT_ONCE], _AT_ONCE)
        fitted = fits(past[which][:, filled], past_labels[filled], weighed)
        scale, offsets = map(np.asarray, fitted)
        losses[which] = losses_of(scale[..., None] * came[which] + offsets, labels)
    return losses
