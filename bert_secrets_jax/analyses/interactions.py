"""Pairs of heads: the effect of disabling both, beyond the sum of the two effects.

The interaction of heads a and b is effect(a, b) - effect(a) - effect(b), and 0 where they are
independent. In the score it is negative where one head can stand in for the other, and positive
where their damages overlap; in the loss, the signs are the other way round. The loss has a value
per example, so its interactions are tested, and corrected for all.

Shapes: P pairs of heads, in the order of `itertools.combinations`, E examples.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Real

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import masks
from bert_secrets_jax.ablation.masks import Place
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common.disabling import checked_metrics, instead
from bert_secrets_jax.analyses.common.effects import loss_effects, sample_of
from bert_secrets_jax.analyses.common.inputs import check_several, labels_of, one_model
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_lengths
from bert_secrets_jax.compute import MASKS, Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import Result, how_many
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.scores import weighted_scores
from bert_secrets_jax.stats.student import LEVEL

# The columns of interactions in the loss.
_OF_LOSSES = {
    'interaction_loss': 'difference',
    'low': 'low',
    'high': 'high',
    'p_value': 'p_value',
    'p_familywise': 'corrected',
    'p_benjamini_hochberg': 'benjamini_hochberg',
}
SOURCE = 'effects beyond the sum; the paper disables heads one at a time'


class Interactions(Result):
    """The effects of disabling pairs of heads beyond the sum of the two effects.

    Attributes:
      heads: The names of the heads.
      metric: The name of the metric of the scores.
      points: [P] The interaction of each pair in the score, in points.
      losses: The interaction of each pair in the loss, with its tests (`assess_means`).
      baseline: The behaviour of a disabled head, as in `ablation`.
    """

    title = 'Interactions of heads'

    heads: tuple[str, ...]
    metric: str
    points: np.ndarray
    losses: Effects
    baseline: str = 'uniform'

    def notes(self):
        return [instead(self.baseline)]

    def _draw_interactions(self):
        loss = f'loss ({self.losses.outcome.unit})'
        values = {f'{TITLES[self.metric]} (points)': self.points, loss: self.losses.difference}
        return plots.interaction_matrix(
            {title: as_matrix(each, len(self.heads)) for title, each in values.items()},
            self.heads,
            label='effect beyond the sum of two',
            # Scores have no interval.
            red={loss: self.losses.red},
        ).captioned('The effect of disabling two heads, less the sum of their effects.')

    def findings(self):
        losses = self.losses
        real, more = losses.corrected <= LEVEL, losses.difference > 0
        pairs = how_many(
            'pairs that interact',
            real,
            'pairs',
            template='{estimate} {unit} of heads clearly {estimate:|has|have} an effect beyond the '
            'sum of two: {more:loses|lose} more together, {less} less.',
            numbers={'more': int((real & more).sum()), 'less': int((real & ~more).sum())},
            **sample_of(losses, SOURCE),
        )
        return [pairs]


def _heads(given) -> list[Place] | None:
    pairs = given['ablation.pairs_of']
    return None if pairs == 'all' else sorted(set(masks.parse_heads(pairs)))


def _check(given) -> None:
    """Refuse heads that make no pairs, and too few texts."""
    if (heads := _heads(given)) is not None:
        single_and_pair_masks(given.value('pretrained').config, heads)
    check_several(given.value('ablated'))


@analysis(
    question='pairs of heads: the effect beyond the sum of two',
    group='What matters',
    report='name',
    reads=('ablation.',),
    inputs={
        'tuned': 'model',
        'examples': 'ablated',
        'heads': _heads,
        'baseline': 'ablation.baseline',
    },
    check=_check,
    cost=lambda given: given.MANY * math.comb(given.heads, 2) * given.tokens('ablated'),
    shares=True,
    axis=MASKS,
)
def interactions(
    tuned: Pretrained | Finetuned,
    examples: Sequence[Example],
    *,
    heads: Sequence[Place] | None = None,
    baseline: str = 'uniform',
    metric: str | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Interactions:
    """Disable every pair of heads, and measure the effect beyond the sum of the two effects.

    Args:
      tuned: A model with a classifier. Of several fine-tuned models, the first is used.
      examples: The labelled texts.
      heads: The heads whose pairs are disabled, as (layer, head) from 0; None takes all heads.
      baseline: As in `ablation`; the mean of 'mean' is that over the examples.
      metric: The name of the metric; None takes the first metric of the task.
      seed: The seed of the resamples and, for 'resample', of the draw of other examples.
      compute: As in `ablation`.

    Raises:
      TypeError, ValueError: As in `ablation`; or there are fewer than two heads, or a head is given
        twice or does not exist.
    """
    model = one_model(tuned)
    labels = labels_of(examples, model.config)
    metric = checked_metrics(metric and (metric,), model.config, examples)[0]
    chosen = single_and_pair_masks(model.config, heads)
    how = {'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    swept = sweep_examples(model, examples, masks.with_intact(chosen), **how)
    names = [masks.describe(mask) for mask in chosen]
    alone = int(((chosen == 0).sum(axis=(1, 2)) == 1).sum())
    scores = 100 * weighted_scores(metric, swept.predictions, labels)[0]
    effects, losses = scores[1:] - scores[0], losses_of(swept.logits, labels)
    in_loss = beyond_the_sum(losses[1:] - losses[0], alone)  # [P, E]
    result = Interactions(
        heads=tuple(names[:alone]),
        metric=metric,
        points=beyond_the_sum(effects, alone),
        losses=loss_effects(
            # The intact model has no interaction.
            np.concatenate([np.zeros((1, len(labels))), in_loss]),
            names[alone:],
            classes=swept.logits.shape[-1],
            seed=seed,
        ),
        baseline=baseline,
    )
    return _labelled(result, effects[:alone])


def single_and_pair_masks(config: BertConfig, heads: Sequence[Place] | None = None) -> masks.Masks:
    """Return a mask per head, in their order, and then one per pair of them, as `masks.pairs`."""
    heads = masks.all_heads(config) if heads is None else heads
    alone = masks.disable(config, [[head] for head in heads])
    return np.concatenate([alone, masks.pairs(config, heads)])


def pairs_of(count: int) -> Int[np.ndarray, 'P 2']:
    """Return the two heads of each pair [P, 2], as indices into a list of `count` heads."""
    return np.transpose(np.triu_indices(count, 1))


def beyond_the_sum(
    effects: Real[np.ndarray, 'M *values'], count: int
) -> Real[np.ndarray, 'P *values']:
    """Return the interactions, from the effects of `single_and_pair_masks` of so many heads."""
    pairs = pairs_of(count)
    check_lengths(effects=effects, heads_and_pairs=range(count + len(pairs)))
    first, second = pairs.T
    return effects[count:] - effects[first] - effects[second]


def as_matrix(values: Float[np.ndarray, ' P'], count: int) -> Float[np.ndarray, 'count count']:
    """Arrange one value per pair in a symmetric matrix [count, count], whose diagonal is NaN."""
    first, second = pairs_of(count).T
    matrix = np.full((count, count), np.nan)
    matrix[first, second] = matrix[second, first] = values
    return matrix


def _labelled(found: Interactions, effects: Real[np.ndarray, ' H']) -> Interactions:
    """Return the result with its tables: of all pairs, and of the clearest."""
    metric, heads = found.metric, np.array(found.heads)
    first, second = pairs_of(len(heads)).T
    columns = {
        'head_a': heads[first],
        'head_b': heads[second],
        f'effect_a_{metric}': effects[first],
        f'effect_b_{metric}': effects[second],
        f'interaction_{metric}': found.points,
        **{column: getattr(found.losses, each) for column, each in _OF_LOSSES.items()},
    }
    least = np.argsort(found.losses.p_value, kind='stable')[:10]
    caption = f'In points of {TITLES[metric]}, and in the loss ({found.losses.outcome.unit}).'
    return found.with_frames(
        {
            'interactions': table(f'Every pair of heads. {caption}', **columns),
            'smallest_p_values': table(
                f'The ten clearest pairs. {caption}',
                **{column: each[least] for column, each in columns.items()},
            ),
        }
    )
