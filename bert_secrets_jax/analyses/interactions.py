"""Pairs of heads: the effect of disabling both, beyond the sum of the two effects.

The interaction effect(a, b) - effect(a) - effect(b) is zero where two heads are independent. In the
score it is negative where one head can stand in for the other (each alone does little, both
together do much) and positive where their damages overlap; in the loss the signs are the other way
round. The loss has a value per example, so its interactions are tested: each alone, and corrected
for all pairs.

Shapes: P pairs of heads, E examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.stats

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import interactions as pairwise
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.significance import (
    LEVEL,
    benjamini_hochberg,
    sign_flip_test,
    weighted_scores,
)
from bert_secrets_jax.analyses.ablation import instead
from bert_secrets_jax.analyses.models import labels_of, metrics_for, one_model
from bert_secrets_jax.analyses.tables import column_of
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.losses import loss_per_example
from bert_secrets_jax.finetune.metrics import TITLES, check_metrics
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.findings import how_many
from bert_secrets_jax.runs.result import Result, Subject, drawn, framed

SOURCE = 'effects beyond the sum; the paper disables heads one at a time'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Interactions(Result):
    """The effects of disabling pairs of heads beyond the sum of the two effects.

    Attributes:
      subject: The names of the model, the texts and the task.
      heads: The names of the heads.
      metric: The name of the metric of the scores.
      unit: The unit of the loss.
      effects: The change of the score, in points, by disabling each head [heads].
      points: The interaction of each pair in the score, in points [P]. Pairs are in the order of
        `ablation.interactions.pairs_of`.
      losses: The mean interaction of each pair in the loss [P].
      low, high: The ends of the 95 % interval of `losses` over examples [P].
      p_values: The p-value of each pair [P] under the hypothesis of no interaction in the loss, not
        corrected.
      familywise: The p-values corrected for all pairs [P].
      examples: The number of examples.
      baseline: The behaviour of a disabled head, as in `ablation`.
    """

    title: ClassVar[str] = 'Interactions of heads'
    FORMAT: ClassVar[int] = 2

    subject: Subject
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
        likely = benjamini_hochberg(self.p_values)
        rows = [
            (self.heads[a], self.heads[b], self.effects[a], self.effects[b], *values)
            for (a, b), *values in zip(
                pairwise.pairs_of(len(self.heads)), self.points, self.losses, self.low, self.high,
                self.p_values,
                self.familywise, likely, strict=True,
            )
        ]  # fmt: skip
        columns = (
            'head_a', 'head_b', f'effect_a_{self.metric}', f'effect_b_{self.metric}',
            f'interaction_{self.metric}', 'interaction_loss', 'low', 'high', 'p_value',
            *map(column_of, ('familywise', 'benjamini_hochberg')),
        )  # fmt: skip
        caption = (
            f'Effects and interactions in points of {TITLES[self.metric]}, and in the loss '
            f'({self.unit}) with its interval and p-values.'
        )
        order = np.argsort(self.p_values, kind='stable')[:10]
        return {
            'interactions': framed(columns, rows, caption),
            'smallest_p_values': framed(
                columns, [rows[index] for index in order], f'The smallest p-values. {caption}'
            ),
        }

    def notes(self):
        return [instead(self.baseline)]

    def figures(self):
        return drawn(self, interactions=_draw)

    def findings(self):
        real, of_pairs = self.familywise <= LEVEL, {'sample': self.examples, 'source': SOURCE}
        likely = benjamini_hochberg(self.p_values) <= LEVEL
        return [
            how_many(
                'pairs that interact',
                real,
                'pairs',
                template='In the loss, {estimate} of {pairs:pair|pairs} of {heads} heads '
                '{estimate:|interacts|interact} significantly.',
                numbers={'pairs': len(self.points), 'heads': len(self.heads)},
                **of_pairs,
            ),
            how_many('that lose more together', real & (self.losses > 0), 'pairs', **of_pairs),
            how_many('that lose less together', real & (self.losses < 0), 'pairs', **of_pairs),
            how_many('by a weaker correction (Benjamini-Hochberg)', likely, 'pairs', **of_pairs),
        ]


def interactions(
    tuned: Pretrained | Finetuned,
    examples: Sequence[Example],
    *,
    heads: Sequence[tuple[int, int]] | None = None,
    baseline: str = 'uniform',
    metric: str | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Interactions:
    """Disable every pair of heads, and measure the effect beyond the sum of the two effects.

    Args:
      tuned: A model with a classifier. Of several fine-tuned models, the first is used.
      examples: The labelled texts.
      heads: The heads whose pairs are disabled, as (layer, head) from 0; None takes all heads.
      baseline: The behaviour of a disabled head, as in `ablation`; for 'mean', the mean is that
        over the examples.
      metric: The name of the metric; None takes the first metric of the task.
      seed: The seed of the sign-flip test and, for 'resample', of the draw of other examples.
      compute: How it is computed.
      subject: As in `ablation`.

    Raises:
      TypeError: The model or the examples are something else.
      ValueError: There are fewer than two heads, a head is given twice or does not exist, the
        baseline or the metric is unknown, an example has no label, the model has no classifier, a
        label is none of its classes, or for 'resample' there are fewer than two examples.
    """
    subject = subject or Subject()
    model = one_model(tuned)
    labels = labels_of(examples, model.config)
    metric = metric or metrics_for(model.config.num_labels, subject.task)[0]
    check_metrics([metric], model.config.num_labels)
    swept = sweep_examples(
        model,
        examples,
        mask_sets.with_intact(pairwise.single_and_pair_masks(model.config, heads)),
        baseline=baseline,
        donor_seed=seed,
        compute=compute,
    )
    disabled = swept.masks[1:]
    names = [mask_sets.describe(mask) for mask in disabled if (mask == 0).sum() == 1]
    everything = np.ones((1, len(labels)))
    scores = 100 * weighted_scores(metric, swept.predictions, labels, everything)[0]
    losses = np.array(
        [loss_per_example(jnp.asarray(logits), labels) for logits in swept.logits], np.float64
    )  # [M + 1, E]
    effects = scores[1:] - scores[0]
    in_loss = pairwise.interactions(losses[1:] - losses[0], len(names))  # [P, E]
    p_values, familywise = sign_flip_test(in_loss, seed=seed)
    count = in_loss.shape[1]
    half = in_loss.std(axis=1, ddof=1) / np.sqrt(count) * scipy.stats.t.ppf(0.975, count - 1)
    mean = in_loss.mean(axis=1)
    return Interactions(
        subject=subject,
        heads=tuple(names),
        metric=metric,
        unit='squared error' if swept.logits.shape[-1] == 1 else 'nats',
        effects=effects[: len(names)],
        points=pairwise.interactions(effects, len(names)),
        losses=mean,
        low=mean - half,
        high=mean + half,
        p_values=p_values,
        familywise=familywise,
        examples=count,
        baseline=baseline,
    )


def _draw(result: Interactions):
    return plots.interaction_matrix(
        {
            f'{TITLES[result.metric]} (points)': pairwise.as_matrix(
                result.points, len(result.heads)
            ),
            f'loss ({result.unit})': pairwise.as_matrix(result.losses, len(result.heads)),
        },
        result.heads,
        label='effect beyond the sum of two',
    ).captioned('effect(a, b) - effect(a) - effect(b) of disabling heads a and b.')
