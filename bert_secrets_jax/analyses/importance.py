"""Which heads matter, by several methods, and which of these methods tell (Michel et al. 2019).

The effect on the loss of losing each head is measured, and cheaper scores are compared with it.

Shapes: L layers, N heads, E examples.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.masked_lm import FEW
from bert_secrets_jax.ablation.masks import describe, single_heads, with_intact
from bert_secrets_jax.analyses.common import inputs
from bert_secrets_jax.analyses.common.disabling import checked_metrics
from bert_secrets_jax.analyses.common.effects import findings_of, loss_effects
from bert_secrets_jax.analyses.common.inputs import unless_noise
from bert_secrets_jax.analyses.common.tables import Grid, grids_frame
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import TITLES as METRIC_TITLES
from bert_secrets_jax.names import counted
from bert_secrets_jax.pruning import scores as scoring
from bert_secrets_jax.pruning.curves import scores_without
from bert_secrets_jax.pruning.scores import GRADIENT, SHAPLEY, SOURCES, TITLES
from bert_secrets_jax.runs.result import Result, framed, measured, noted
from bert_secrets_jax.stats.agreement import reliability
from bert_secrets_jax.stats.correlations import RankAgreement, rank_agreement
from bert_secrets_jax.stats.effects import Effects

SOURCE = 'Michel et al. 2019, sections 3.2 and 4.1'
_COLUMNS = {
    'loss_difference': 'difference',
    'low': 'low',
    'high': 'high',
    'p_value': 'p_value',
    'p_max_t': 'corrected',
}


class Importance(Result):
    """How much each head is needed: scores by several methods beside what losing it does.

    Attributes:
      scores: The scores of the heads.
      loss: The effects of taking each head away on the loss, in nats (of a regression, squared
        error).
      increase: [E, L, N] That of each example.
      learnt: The test of whether the model has learnt anything (see `analyses.common.inputs`).
      agreement: How the ranking by each method agrees with that by the loss, by the method's name.
    """

    title = 'Which heads matter'

    scores: scoring.HeadScores
    loss: Effects
    increase: np.ndarray
    learnt: inputs.Learnt
    agreement: Mapping[str, RankAgreement]

    def _draw_importance_agreement(self):
        return plots.head_scatter(
            {
                f'{TITLES[method]}\n(rank correlation {self.agreement[method].rank:.2f})': each
                for method, each in self.scores.of.items()
            },
            self.increase.mean(axis=0),
            label=f'increase of the loss without it ({self.loss.outcome.unit})',
            across_label='score',
        ).captioned(
            'The score of each head, and the increase of the loss without it. Colours: layers.',
            plots.Source('heads', 'loss_difference'),
        )

    def findings(self):
        warned = inputs.if_not_learnt('the model', self.learnt, self.loss.sample)
        found = unless_noise([*warned, *findings_of(self.loss, 'heads', source=SOURCE)])
        known = {name: each for name, each in self.agreement.items() if not np.isnan(each.rank)}
        if not known:
            return found
        best = max(known, key=lambda name: known[name].rank)
        agrees = measured(
            'score that agrees most with what losing each head does',
            dataclasses.astuple(known[best]),
            unit='rank correlation',
            template='Of {count:score|scores}, {title} agrees most with what losing a head does: '
            'rank correlation {estimate:.2f}.',
            count=len(known),
            title=TITLES[best],
            sample=self.loss.sample,
            source=SOURCES[best],
        )
        return [*found, agrees]

    def notes(self):
        few = min(self.scores.examples, self.loss.sample) < FEW
        sometimes = {
            'Gradients have no sign: they rank harmful heads high, too.': (
                GRADIENT in self.scores.parts
            ),
            'Intervals of Shapley values are for permutations, not for the examples.': (
                SHAPLEY in self.agreement
            ),
            'With so few examples, intervals are a little too narrow.': few,
        }
        return [
            'A head that is taken away puts out nothing. Losing one of two heads that stand in for '
            'each other may change nothing.',
            *noted(sometimes),
        ]


@analysis(
    question='which heads matter, by several scores, and which of the scores tell',
    group='What matters',
    time='1 min',
    inputs={'tuned': 'model', 'examples': 'ablated', 'measured_on': 'measured'},
    cost=lambda given: given.HEAD * given.heads * given.tokens('ablated'),
    shares=True,
)
def importance(
    tuned: inputs.Models,
    examples: Sequence[Example],
    *,
    measured_on: Sequence[Example] | None = None,
    methods: Sequence[str] | None = None,
    permutations: int = 0,
    norm: str = 'layer',
    metric: str | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Importance:
    """Score each head of a fine-tuned model by several methods, and compare them with its loss.

    Args:
      tuned: The model, with a classifier or a regression. Of several, the first is used.
      examples: The labelled examples on which heads are taken away.
      measured_on: The labelled examples that scores are measured on, such as training examples, as
        published; None takes the same examples.
      methods: The methods: 'gradient', 'confidence', 'relevance' and 'removal'. None takes all, but
        of the same examples not the loss without each head, which would be compared with itself.
      permutations: The number of permutations for Shapley values, even and at least 20; 0 leaves
        them out. Each takes a pass over `measured_on` for every head.
      norm: How gradients are made comparable between layers: 'layer' as published, 'all' or 'none'.
      metric: The metric that heads are judged by besides the loss; None takes that of the task.
      seed: The seed of permutations and of bootstraps.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown, the model has no classifier, an example has no fitting
        label, or there are fewer than two examples.
    """
    model = inputs.one_model(tuned)
    examples, config = as_examples(examples), model.config
    labels = inputs.labels_of(examples, config)
    same = measured_on is None
    others = examples if same else as_examples(measured_on)
    metrics = checked_metrics(metric and (metric,), config, examples)
    scores = scoring.head_scores(
        model,
        others,
        methods=scoring.METHODS[:3] if same and methods is None else methods,
        permutations=permutations,
        norm=norm,
        seed=seed,
        compute=compute,
    )
    masks = with_intact(single_heads(config))
    swept, reached = scores_without(model, examples, masks, metrics[0], compute=compute)
    losses, shape = losses_of(swept.logits, labels), masks.shape[1:]
    increase = (losses[1:] - losses[0]).T.reshape(-1, *shape)
    classes, names = config.num_labels, [describe(mask) for mask in masks[1:]]
    result = Importance(
        scores=scores,
        loss=loss_effects(losses, names, classes=classes, seed=seed),
        increase=increase,
        learnt=inputs.learning_test(metrics, classes, swept.predictions[0], labels),
        agreement={
            method: rank_agreement(
                each,
                increase,
                # Shapley values have a part for each pair of permutations.
                paired=same and method != SHAPLEY,
                score=functools.partial(scores.score, method),
            )
            for method, each in scores.parts.items()
        },
    )
    change = np.reshape(reached[1:] - reached[0], shape)
    again, noun = reliability(increase, seed=seed), 'example' if same else 'other example'
    return _labelled(result, METRIC_TITLES[metrics[0]], change, again, noun)


def _labelled(
    found: Importance, title: str, difference: Grid, again: float, noun: str
) -> Importance:
    """Return the result with its tables: of heads, and of the agreement of methods."""
    loss, shape, scores = found.loss, difference.shape, found.scores.of
    effects = {name: np.reshape(getattr(loss, of), shape) for name, of in _COLUMNS.items()}
    effect, *sure = effects
    return found.with_frames(
        {
            'heads': grids_frame(
                {
                    **scores,
                    **effects,
                    'score_difference_points': 100 * difference,
                    'learnt': np.full(shape, not inputs.learnt_nothing(found.learnt[-1])),
                },
                f'Scores of each head by {len(scores)} methods, measured on '
                f'{counted(found.scores.examples, noun)}, and the change of the loss '
                f'({loss.outcome.unit}) and of {title} without it.',
                sure={effect: sure},
                # The change of the score colours no head: no test is of it.
                shown=[*scores, effect],
                red={(effect, ''): loss.red},
            ),
            'agreement': framed(
                ('score', 'rank_correlation', 'low', 'high', 'source', 'of_a_second_sample'),
                [
                    (TITLES[method], *dataclasses.astuple(each), SOURCES[method], again)
                    for method, each in found.agreement.items()
                ],
                'How well each score, and a second sample of the loss, predicts the increase of '
                'the loss (rank correlation).',
            ),
        }
    )
