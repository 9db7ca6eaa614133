"""Pairs of heads: the effect of disabling both, beyond the sum of the two effects.

It is zero for independent heads. In the score it is negative where one head can stand in for the
other, and positive where their damages overlap; in the loss, the signs are the other way round. The
loss has a value per example, so its interactions are tested, and corrected for all.

Shapes: P pairs of heads, E examples.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import interactions as pairwise
from bert_secrets_jax.ablation.masks import describe, parse_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common.disabling import checked_metrics, instead
from bert_secrets_jax.analyses.common.models import check_several, labels_of, one_model
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.devices import MASKS
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.cost import MANY, Costs
from bert_secrets_jax.runs.findings import how_many
from bert_secrets_jax.runs.result import Result, drawn, framed
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.student import mean_interval

SOURCE = 'effects beyond the sum; the paper disables heads one at a time'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Interactions(Result):
    """The effects of disabling pairs of heads beyond the sum of the two effects.

    Attributes:
      heads: The names of the heads.
      metric: The name of the metric of the scores.
      unit: The unit of the loss.
      effects: The change of the score, in points, by disabling each head [heads].
      points: [P] The interaction of each pair in the score, in points. Pairs are in the order of
        `ablation.interactions.pairs_of`.
      losses: [P] The mean interaction of each pair in the loss.
      low, high: [P] The ends of the 95 % interval of `losses` over examples.
      p_values: [P] The p-value under the hypothesis of no interaction in the loss, not corrected.
      familywise: [P] The p-values corrected for all pairs.
      examples: The number of examples.
      baseline: The behaviour of a disabled head, as in `ablation`.
    """

    title: ClassVar[str] = 'Interactions of heads'
    FORMAT: ClassVar[int] = 2

    heads: tuple[str, ...]
    metric: str
    unit: str
    effects: np.ndarray
    points: np.ndarray
    losses: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_values: np.ndarray
    familywise: np.ndarray
    examples: int
    baseline: str = 'uniform'

    def frames(self):
        values = (
            self.points, self.losses, self.low, self.high, self.p_values, self.familywise,
            significance.benjamini_hochberg(self.p_values),
        )  # fmt: skip
        rows = [
            (self.heads[a], self.heads[b], self.effects[a], self.effects[b], *of_pair)
            for (a, b), *of_pair in zip(pairwise.pairs_of(len(self.heads)), *values, strict=True)
        ]
        columns = (
            'head_a', 'head_b', f'effect_a_{self.metric}', f'effect_b_{self.metric}',
            f'interaction_{self.metric}', 'interaction_loss', 'low', 'high', 'p_value',
            'p_familywise', 'p_benjamini_hochberg',
        )  # fmt: skip
        caption = f'In points of {TITLES[self.metric]}, and in the loss ({self.unit}).'
        least = [rows[index] for index in np.argsort(self.p_values, kind='stable')[:10]]
        return {
            'interactions': framed(columns, rows, f'Every pair of heads. {caption}'),
            'smallest_p_values': framed(columns, least, f'The ten clearest pairs. {caption}'),
        }

    def notes(self):
        return [instead(self.baseline)]

    def figures(self):
        return drawn(self, interactions=_draw)

    def findings(self):
        real = self.familywise <= significance.LEVEL
        of_pairs = {'sample': self.examples, 'source': SOURCE}
        likely = significance.benjamini_hochberg(self.p_values) <= significance.LEVEL
        return [
            how_many(
                'pairs that interact',
                real,
                'pairs',
                template='{estimate} of {pairs:pair|pairs} of heads clearly {estimate:|has|have} '
                'an effect beyond the sum of two.',
                numbers={'pairs': len(self.points)},
                **of_pairs,
            ),
            how_many('that lose more together', real & (self.losses > 0), 'pairs', **of_pairs),
            how_many('that lose less together', real & (self.losses < 0), 'pairs', **of_pairs),
            how_many('by a weaker correction (Benjamini-Hochberg)', likely, 'pairs', **of_pairs),
        ]


def _heads(given) -> list[tuple[int, int]] | None:
    pairs = given['ablation.pairs_of']
    return None if pairs == 'all' else sorted(set(parse_heads(pairs)))


def _check(given) -> None:
    """Refuse heads that make no pairs, and too few texts."""
    if (heads := _heads(given)) is not None:
        pairwise.single_and_pair_masks(given.value('pretrained').config, heads)
    check_several(given.value('ablated'))


def _cost(given) -> Costs:
    work = given.over('ablated', MANY * math.comb(given.heads, 2), 10, 10)
    return given.ablated() | {'pairs of heads': work}


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
    cost=_cost,
    shares=True,
    axis=MASKS,
)
def interactions(
    tuned: Pretrained | Finetuned,
    examples: Sequence[Example],
    *,
    heads: Sequence[tuple[int, int]] | None = None,
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
      seed: The seed of the sign-flip test and, for 'resample', of the draw of other examples.
      compute: As in `ablation`.

    Raises:
      TypeError, ValueError: As in `ablation`; or there are fewer than two heads, or a head is given
        twice or does not exist.
    """
    model = one_model(tuned)
    labels = labels_of(examples, model.config)
    metric = checked_metrics(metric and (metric,), model.config, examples)[0]
    masks = with_intact(pairwise.single_and_pair_masks(model.config, heads))
    swept = sweep_examples(
        model, examples, masks, baseline=baseline, donor_seed=seed, compute=compute
    )
    names = [describe(mask) for mask in swept.masks if (mask == 0).sum() == 1]
    scores = 100 * significance.weighted_scores(metric, swept.predictions, labels)[0]
    effects, losses = scores[1:] - scores[0], losses_of(swept.logits, labels)
    in_loss = pairwise.interactions(losses[1:] - losses[0], len(names))  # [P, E]
    p_values, familywise = significance.sign_flip_test(in_loss, seed=seed)
    mean, low, high = mean_interval(in_loss)
    return Interactions(
        heads=tuple(names),
        metric=metric,
        unit='squared error' if swept.logits.shape[-1] == 1 else 'nats',
        effects=effects[: len(names)],
        points=pairwise.interactions(effects, len(names)),
        losses=mean,
        low=low,
        high=high,
        p_values=p_values,
        familywise=familywise,
        examples=len(labels),
        baseline=baseline,
    )


def _draw(result: Interactions):
    values = {
        f'{TITLES[result.metric]} (points)': result.points,
        f'loss ({result.unit})': result.losses,
    }
    return plots.interaction_matrix(
        {title: pairwise.as_matrix(each, len(result.heads)) for title, each in values.items()},
        result.heads,
        label='effect beyond the sum of two',
        # As in `Effects.red`; scores have no interval.
        red={f'loss ({result.unit})': float(np.max(result.high - result.low))},
    ).captioned('The effect of disabling two heads, less the sum of their effects.')
