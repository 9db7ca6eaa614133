"""A sweep in bfloat16, of which float32 repeats what rounding could have decided.

Devices with matrix units multiply bfloat16 several times as fast as float32, but a rounded logit
can fall on the other side of another one. Few examples are so close to a decision: they alone are
computed again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from jaxtyping import Bool, Float, Shaped

from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.model.bert import Bert, check_finite
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained, check_whole

# An error of another example may be greater than the greatest of those that were seen.
SAFETY = 2.0
SAMPLE = 64


@dataclasses.dataclass(frozen=True, repr=False)
class TwicePrecise(Swept):
    """The logits of a model under every mask, in bfloat16 or, where that could matter, in float32.

    Attributes:
      exact: [E] Whether the logits of an example are those of float32, under all masks.
      error: The greatest error of bfloat16 that was seen, in the units of the logits: in the
        difference of two logits of an example or, for a regression, of two examples under one mask.
      bound: The distance below which a decision counted as uncertain.
    """

    exact: Bool[np.ndarray, ' E']
    error: float
    bound: float


def sweep_in_two_precisions(
    pretrained: Pretrained,
    examples: Sequence[Text],
    masks: Shaped[np.ndarray, 'M L N'],
    *,
    sample: int = SAMPLE,
    safety: float = SAFETY,
    seed: int = 0,
    baseline: str = 'uniform',
    **sweeping: Any,
) -> TwicePrecise:
    """Compute the logits of every example under every mask, most of them in bfloat16 alone.

    All is computed in bfloat16, and a random sample of the examples in float32 as well, which shows
    how large the errors are. Then float32 repeats every example that, under any mask, is closer to
    another decision than that error allows; if that raises the error, more are repeated. The
    predictions are those of float32, unless an error is more than `safety` times as great as all
    that were seen. For a regression the order of the examples is kept, which repeats nearly all of
    them where values are close. It does not pay on CPUs (docs/reference/speed.md).

    Args:
      pretrained: A model in float32, with a classification or regression head of inputs.
      examples, masks: As in `sweep_examples`.
      sample: The number of examples that are drawn, for a regression at least two; at most all.
      safety: How many times the greatest error that was seen a difference must have to be certain.
      seed: The seed of the draw.
      baseline: 'uniform', 'zero', or 'mean' with a `replacement`, since donors depend on the sweep.
      **sweeping: The other arguments of `sweep_examples`. Both precisions may share a folder.

    Raises:
      ValueError: The model computes in bfloat16 or has a head of tokens, `sample` or `safety` is
        too small, the baseline depends on the examples, or `sweep_examples` would refuse the rest.
      FloatingPointError: Some logits are NaN or infinite.
    """
    _check(pretrained, sample, safety, baseline, sweeping.get('replacement'))
    examples = list(examples)

    def swept(model: Pretrained, which: np.ndarray) -> np.ndarray:
        texts = [examples[index] for index in which]
        predicted = sweep_examples(model, texts, masks, baseline=baseline, **sweeping).logits
        check_finite(predicted)
        return predicted

    coarse = Bert(dataclasses.replace(pretrained.config, dtype='bfloat16'))
    rough = swept(dataclasses.replace(pretrained, bert=coarse), np.arange(len(examples)))
    logits, exact = rough.copy(), np.zeros(len(examples), bool)
    drawn = np.random.default_rng(seed).permutation(len(examples))[:sample]
    repeated = np.zeros(len(examples), bool)
    repeated[drawn] = True
    error = 0.0
    while (repeated & ~exact).any():
        which = np.flatnonzero(repeated & ~exact)
        logits[:, which] = swept(pretrained, which)
        exact |= repeated
        errors = logits[:, exact].astype(np.float64) - rough[:, exact]
        # A shift of all logits alike decides nothing.
        error = max(error, float(np.ptp(errors, axis=-1 if errors.shape[-1] > 1 else 1).max()))
        repeated |= (_nearest(logits) <= safety * error).any(axis=0)
    logging.info(
        'Two precisions: %d of %d examples were computed in float32, too; the greatest error of '
        'bfloat16 was %.2g.', exact.sum(), len(examples), error,
    )  # fmt: skip
    return TwicePrecise(
        masks=np.asarray(masks, np.float32),
        logits=logits,
        exact=exact,
        error=error,
        bound=safety * error,
    )


def _check(pretrained, sample, safety, baseline, replacement) -> None:
    check_whole(pretrained)
    config = pretrained.config
    if config.dtype == 'bfloat16':
        raise ValueError(
            'The model computes in bfloat16: load it with dtype="float32", in which what is '
            'uncertain is repeated.'
        )
    if config.head != SEQUENCES:
        raise ValueError(
            f'A model with the head {config.head!r} decides more than once per example: use '
            'bs.sweep_examples, in one precision.'
        )
    # The order of a regression is a matter of two examples: the error of one alone tells nothing.
    least = 2 if config.num_labels == 1 else 1
    if sample < least:
        raise ValueError(f'{sample=} must be at least {least}: errors are seen on these examples.')
    if not safety >= 1:
        raise ValueError(
            f'{safety=} must be at least 1, where an error as great as seen is allowed.'
        )
    if baseline == 'resample' or (baseline == 'mean' and replacement is None):
        mend = 'Use bs.sweep_examples, in one precision.'
        if baseline == 'mean':
            mend = 'Give the replacement that bs.mean_contexts returns.'
        raise ValueError(
            f"With baseline={baseline!r}, what replaces a head's output depends on all examples of "
            f'a sweep, of which float32 would repeat a part. {mend}'
        )


def _nearest(logits: Float[np.ndarray, 'M E C']) -> Float[np.ndarray, 'M E']:
    """Return how far every example is from another decision, or from another's value."""
    if logits.shape[-1] > 1:
        *_, second, first = np.moveaxis(np.sort(logits, axis=-1), -1, 0)
        return first - second
    values = logits[..., 0]
    order = values.argsort(axis=1)
    gaps = np.diff(np.take_along_axis(values, order, axis=1), axis=1)
    gaps = np.pad(gaps, ((0, 0), (1, 1)), constant_values=np.inf)
    nearest = np.empty_like(values)
    np.put_along_axis(nearest, order, np.minimum(gaps[:, 1:], gaps[:, :-1]), axis=1)
    return nearest
