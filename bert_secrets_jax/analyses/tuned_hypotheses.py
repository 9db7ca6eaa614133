"""Three hypotheses about fine-tunings (docs/hypotheses.md).

The first was chosen on MiniLM and gte-small; the others were stated before any measurement.

Shapes: S seeds, M heads in a row, N heads of the first layer, E examples, G groups of examples.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from bert_secrets_jax.ablation.masks import single_heads, with_intact
from bert_secrets_jax.ablation.outcomes import answer_changes
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common.models import all_models, check_alike
from bert_secrets_jax.analyses.verdicts import Verdict, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.stats import over_runs

_SOURCE = 'Hypotheses of bert_secrets_jax 2026'
_GROUPS = 20
_ABOUT: dict[str, Any] = {'section': 'hypotheses', 'unit': 'rank correlation'}
PREDICTED = Claim(
    'Where a head gets even attention, answers move more, the more it took from special tokens '
    'before fine-tuning.',
    f'{_SOURCE}, chosen on MiniLM and gte-small',
    **_ABOUT,
    short='What heads take from special tokens predicts what they do',
    bound='MiniLM and gte-small have 0.29 to 0.42, over MRPC and STS-B.',
    threshold=0.15,
)
STAY_BROAD = Claim(
    'The broad heads of the first layer stay broad in fine-tuning.',
    _SOURCE,
    **_ABOUT,
    short='Broad heads of layer 1 stay broad',
    bound='Half of what is possible.',
    threshold=0.5,
)
MORE_LABELS = Claim(
    'Fine-tunings agree more on what heads do to the answers, where they saw more labels.',
    _SOURCE,
    **_ABOUT,
    short='Fine-tunings agree more with more labels',
    bound='Any difference counts.',
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of fine-tunings for the hypotheses.

    Attributes:
      moved: [S, M, E] How far the answer to each example moves under even attention of a head, by
        the number of labelled examples that were learnt from.
      given: [E, M] The share of what a head moves that came from special tokens, before.
      before, after: [E, N] and [S, E, N] The entropy of heads of the first layer.
    """

    moved: Mapping[int, Float[np.ndarray, 'S M E']]
    given: Float[np.ndarray, 'E M']
    before: Float[np.ndarray, 'E N']
    after: Float[np.ndarray, 'S E N']


def checked(pretrained: Pretrained, tuned: Mapping[int, Finetuned]) -> tuple[Pretrained, ...]:
    """Return the models that saw most labels; ValueError unless all are fine-tunings of a model."""
    shape = pretrained.config.num_hidden_layers, pretrained.config.num_attention_heads
    for count, each in tuned.items():
        if len(each.models) < over_runs.FEWEST_RUNS:
            raise ValueError(
                f'tuned[{count}] has seeds={each.seeds}: give {over_runs.FEWEST_RUNS} seeds or '
                'more.'
            )
        # One that learnt nothing is told.
        models = all_models(each)
        check_alike(models)
        config = models[0].config
        if (config.num_hidden_layers, config.num_attention_heads) != shape:
            raise ValueError(
                f'tuned[{count}] ({config.summary}) is no fine-tuning of the model '
                f'({pretrained.config.summary}): its layers or heads differ.'
            )
    if len({each.seeds for each in tuned.values()}) > 1:
        raise ValueError('tuned: all fine-tunings need the same seeds.')
    return tuned[max(tuned)].models


def answers_moved(
    tuned: Finetuned, texts: Sequence[Text], compute: Compute
) -> Float[np.ndarray, 'S M E']:
    """Return how far the answer to each text moves where a head has even attention."""
    found = []
    for seed, model in zip(tuned.seeds, tuned.models, strict=True):
        masks = with_intact(single_heads(model.config))
        swept = sweep_examples(model, texts, masks, compute=compute)
        moved = answer_changes(np.asarray(swept.logits, np.float64))
        if moved is None:
            raise ValueError(f'The answers of seed {seed} are all alike: it has learnt nothing.')
        found.append((moved[0][:, None] + moved[1])[1:])
    return np.stack(found)


def decided(found: Measured) -> tuple[Verdict, ...]:
    """Return the verdicts, over seeds and texts: two, or three with two numbers of labels."""
    fewest, most = found.moved[min(found.moved)], found.moved[max(found.moved)]

    def predicted(kept):
        given = found.given[kept].mean(axis=0)
        return _ranks(given[None], most[..., kept].mean(axis=-1))[0]

    def broad(kept):
        return _ranks(found.before[kept].mean(axis=0)[None], found.after[:, kept].mean(axis=1))[0]

    def more(kept):
        return np.subtract(*(_agreements(each[..., kept].mean(axis=-1)) for each in (most, fewest)))

    numbers = {
        PREDICTED: (predicted, 'rank correlation over heads'),
        STAY_BROAD: (broad, 'rank correlation of entropies, before and after'),
    }
    if len(found.moved) > 1:
        numbers[MORE_LABELS] = more, 'gain of the agreement of two fine-tunings'
    examples = len(found.before)
    verdicts = []
    for claim, (number, what) in numbers.items():
        above = _contrasts(number, examples, claim.threshold)
        # A gain is the difference of two correlations.
        limit = 2 if claim is MORE_LABELS else 1
        within = above.interval(0, offset=claim.threshold)
        estimate, low, high = (float(np.clip(each, -limit, limit)) for each in within)
        verdicts.append(verdict.verdict_on(claim, above, what, interval=(estimate, low, high)))
    return tuple(verdicts)


def _contrasts(
    number: Callable[[Int[np.ndarray, ' _']], Float[np.ndarray, ' S']],
    examples: int,
    threshold: float,
) -> over_runs.Contrasts:
    """Return a number by seed above a threshold; its error from texts is that of a jackknife."""
    groups = np.arange(examples) % min(_GROUPS, examples)
    numbers = number(np.arange(examples))
    others = [number(np.flatnonzero(groups != out)).mean() for out in np.unique(groups)]
    error = np.sqrt((len(others) - 1) * np.var(others)) + over_runs.ROUNDING
    return over_runs.contrasts([(each, error) for each in numbers], examples, above=threshold)


def _ranks(
    one: Float[np.ndarray, 'A M'], other: Float[np.ndarray, 'B M']
) -> Float[np.ndarray, 'A B']:
    """Return the rank correlations of each row with each other one; 0 where one is constant."""
    count, rows = len(one), scipy.stats.rankdata([*one, *other], axis=1)
    with np.errstate(invalid='ignore', divide='ignore'):
        return np.nan_to_num(np.corrcoef(rows)[:count, count:])


def _agreements(effects: Float[np.ndarray, 'S M']) -> Float[np.ndarray, ' S']:
    """Return the part of each seed in the mean rank correlation of two seeds (pseudo-values)."""
    pairs = _ranks(effects, effects)
    np.fill_diagonal(pairs, 0)
    count = len(pairs)
    mean = pairs.sum() / (count * (count - 1))
    without = (pairs.sum() - 2 * pairs.sum(axis=1)) / ((count - 1) * (count - 2))
    return count * mean - (count - 1) * without
