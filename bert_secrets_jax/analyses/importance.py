"""Which heads matter, by several methods, and which of these methods tell (Michel et al. 2019).

What losing a head does to the loss is measured, for every head. Cheaper scores of heads are
compared with that.

Shapes: L layers, N heads, E examples, M masks.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.ablation.masked_lm import FEW, LossEffects, assess_losses
from bert_secrets_jax.ablation.masks import single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.significance import LEVEL
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.ablation import assessed_metrics, what_is_tested
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import Models, check_several, labels_of, one_model
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import TITLES as METRIC_TITLES
from bert_secrets_jax.finetune.metrics import check_metrics
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.names import counted, head_name
from bert_secrets_jax.pruning.agreement import Agreement, rank_agreement, reliability
from bert_secrets_jax.pruning.scores import (
    GRADIENT,
    METHODS,
    SHAPLEY,
    SOURCES,
    TITLES,
    HeadScores,
    head_scores,
)
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Michel et al. 2019, sections 3.2 and 4.1'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Effects:
    """The measured effects of taking each head away from the model.

    Attributes:
      loss: The change of the loss without each head, in nats (for a regression, squared error).
      increase: [E, L, N] That of each example.
      metric: The name of the task's own metric.
      score: The score with all heads.
      difference: [L, N] The score without each head less that with all.
      learnt: The test of whether the model has learnt anything: the metric, its value, the share of
        the larger class, and the p-value.
      classes: The number of classes; 1 for a regression.
    """

    FORMAT: ClassVar[int] = 1

    loss: LossEffects
    increase: np.ndarray
    metric: str
    score: float
    difference: np.ndarray
    learnt: tuple[str, float, float, float]
    classes: int


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Importance(Result):
    """How much each head is needed: scores by several methods beside what losing it does.

    Attributes:
      subject: The names of the model, the texts and the task.
      scores: The scores of the heads.
      effects: The effects of taking each head away.
      same_examples: Whether both were measured on the same examples.
      agreement: How the ranking by each method agrees with that by the loss, by the method's name.
      reliability: The agreement that a second sample of as many examples would have with this one,
        by the same measurement: see `pruning.agreement.reliability`.
    """

    FORMAT: ClassVar[int] = 1

    subject: Subject
    scores: HeadScores
    effects: Effects
    same_examples: bool
    agreement: Mapping[str, Agreement]
    reliability: float

    @property
    def title(self) -> str:
        return 'Which heads matter'

    @property
    def _unit(self) -> str:
        return 'squared error' if self.effects.classes == 1 else 'nats'

    def frames(self):
        loss, shape = self.effects.loss, self.effects.difference.shape
        scores = self.scores.of
        rows = [
            (
                layer + 1,
                head + 1,
                *(scores[method][layer, head] for method in scores),
                *(getattr(loss, column)[layer * shape[1] + head] for column in _COLUMNS),
                100 * self.effects.difference[layer, head],
            )
            for layer, head in np.ndindex(shape)
        ]
        effect, *sure = _COLUMNS.values()
        columns = ('layer', 'head', *scores, effect, *sure, 'score_difference_points')
        colours = dict.fromkeys((*scores, effect, 'score_difference_points'), ()) | {effect: sure}
        agreement = [
            (TITLES[method], each.rank, each.low, each.high, SOURCES[method])
            for method, each in self.agreement.items()
        ]
        return {
            'heads': framed(
                columns,
                rows,
                f'Scores of each head by {len(scores)} methods ({self._measured_on}), the change '
                f'of the loss without it ({self._unit}, with its 95 % interval, p-value and the '
                'p-value after correction for all heads, max-T), and the change of '
                f'{METRIC_TITLES[self.effects.metric]} in points.',
                colours=Colours('heads', colours),
            ),
            'agreement': framed(
                ('score', 'rank_correlation', 'low', 'high', 'source'),
                agreement,
                'Rank correlation of each score with the increase of the loss without the head, '
                'over heads, with an interval over examples of at least 95 %.',
            ),
        }

    def figures(self):
        return Figures(
            {
                'importance': functools.partial(_draw_ranks, self),
                'importance_agreement': functools.partial(_draw_agreement, self),
            }
        )

    def findings(self):
        return [*self._not_learnt(), *self._of_effects(), *self._of_methods()]

    def notes(self):
        notes = [
            'A head that is taken away puts out nothing. Gradients, confidence and relevance are '
            'measured with all heads there, and say what to expect; the loss without a head says '
            'what happens. Heads that stand in for each other matter little one by one.',
            f'Scores are {self._measured_on}.',
        ]
        if GRADIENT in self.scores.parts:
            notes.append(
                'The gradient counts as a size, as published: heads without which the loss falls '
                'have large ones, too.'
            )
        if SHAPLEY in self.agreement:
            notes.append(
                'The interval of Shapley values allows for the permutations that were drawn, and '
                'not for the examples that they were measured on.'
            )
        if self.scores.examples < FEW or self.effects.loss.texts < FEW:
            notes.append('With so few examples, intervals are a little too narrow.')
        return notes

    def head_notes(self):
        loss, shape = self.effects.loss, self.effects.difference.shape
        texts = [
            f'{loss.difference[index]:+.4f} {self._unit} ({loss.low[index]:+.4f} to '
            f'{loss.high[index]:+.4f}, corrected p = {loss.corrected[index]:.2g})'
            for index in range(len(loss.difference))
        ]
        return {'loss of the task without it': np.reshape(texts, shape)}

    @property
    def _measured_on(self) -> str:
        count = self.scores.examples
        if self.same_examples:
            return f'measured on the same {counted(count, "example")}'
        return f'measured on {counted(count, "other example")}'

    def _not_learnt(self) -> Iterator[Finding]:
        tested, value, larger, p_value = self.effects.learnt
        if learnt_nothing(p_value):
            count = self.effects.loss.texts
            yield not_learnt('the model', tested, value, larger, p_value, count)

    def _of_effects(self) -> Iterator[Finding]:
        loss, shape = self.effects.loss, self.effects.difference.shape
        real = loss.corrected <= LEVEL
        yield Finding(
            name='heads whose loss matters',
            estimate=int((real & (loss.difference > 0)).sum()),
            unit='heads',
            sample=loss.texts,
            source=SOURCE,
            template=(
                'Taken away one at a time, {estimate} of {heads} heads {estimate:|leaves|leave} a '
                'significantly higher loss of the task and {lower} a lower one, after correction '
                'for all (max-T, {sample:example|examples}). A change of {detectable:.4f} '
                '{measure} (median of heads) is found with a probability of {power:.0f} %.'
            ),
            numbers={
                'heads': len(real),
                'lower': int((real & (loss.difference < 0)).sum()),
                'detectable': float(np.median(loss.detectable)),
                'measure': self._unit,
                'power': 100 * significance.POWER,
            },
        )
        worst = int(loss.difference.argmax())
        place = divmod(worst, shape[1])
        yield Finding(
            name='the head that matters most',
            estimate=float(loss.difference[worst]),
            low=float(loss.low[worst]),
            high=float(loss.high[worst]),
            unit=self._unit,
            sample=loss.texts,
            source=SOURCE,
            template=(
                'The loss is {intact:.3f} {unit} with all heads. It is highest without {head}, '
                'where it changes by {estimate:+.4f} {unit} ({low:+.4f} to {high:+.4f}), and '
                '{metric} by {points:+.2f} points.'
            ),
            numbers={
                'intact': loss.intact,
                'head': head_name(*place),
                'metric': METRIC_TITLES[self.effects.metric],
                'points': 100 * float(self.effects.difference[place]),
            },
        )

    def _of_methods(self) -> Iterator[Finding]:
        order = sorted(self.agreement, key=lambda method: -_known(self.agreement[method].rank))
        for method in order:
            found = self.agreement[method]
            if np.isnan(found.rank):
                continue
            interval = '' if np.isnan(found.low) else ' ({low:.2f} to {high:.2f})'
            ceiling = (
                ' (a second sample of as many examples would reach {ceiling:.2f})'
                if method == order[0] and self.reliability > max(found.rank, 0)
                else ''
            )
            yield Finding(
                name=f'agreement: {TITLES[method]}',
                estimate=found.rank,
                low=found.low,
                high=found.high,
                unit="Spearman's rank correlation",
                sample=self.effects.loss.texts,
                source=SOURCES[method],
                template=(
                    'Heads ranked by {score} agree with what losing each does to the loss by a '
                    f'rank correlation of {{estimate:.2f}}{interval}{ceiling}.'
                ),
                numbers={'score': TITLES[method], 'ceiling': self.reliability},
            )


_COLUMNS = {
    'difference': 'loss_difference',
    'low': 'low',
    'high': 'high',
    'p_value': 'p_value',
    'corrected': 'p_max_t',
}


def importance(
    tuned: Models,
    examples: Sequence[Example],
    *,
    measured_on: Sequence[Example] | None = None,
    methods: Sequence[str] | None = None,
    permutations: int = 0,
    norm: str = 'layer',
    metric: str | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Importance:
    """Score each head of a fine-tuned model by several methods, and compare them with its loss.

    Args:
      tuned: The model, with a classifier or a regression. Of several, the first is used.
      examples: The labelled examples on which heads are taken away.
      measured_on: The labelled examples that scores are measured on, such as training examples, as
        published; None takes the same examples.
      methods: The methods: 'gradient', 'confidence', 'relevance' and 'removal'. None takes all, but
        of the same examples not the loss without each head, which would be compared with itself.
      permutations: The number of permutations for Shapley values, even; 0 leaves them out. Each
        takes a pass over `measured_on` for every head.
      norm: How gradients are made comparable between layers: 'layer' as published, 'all' or 'none'.
      metric: The name of the metric that heads are judged by besides the loss; None takes that of
        the task.
      seed: The seed of permutations and of bootstraps.
      compute: How it is computed.
      subject: The names of the model, the texts and the task, for sentences and captions.

    Raises:
      TypeError: The model or the examples are something else.
      ValueError: The model has no classifier, an example has no fitting label, a setting is
        unknown, or there are fewer than two examples.
    """
    model, subject = one_model(tuned), subject or Subject()
    examples = as_examples(examples)
    check_several(examples)
    labels = labels_of(examples, model.config)
    same = measured_on is None
    others = examples if same else as_examples(measured_on)
    if metric is not None:
        check_metrics((metric,), model.config.num_labels)
    scores = head_scores(
        model,
        others,
        labels_of(others, model.config),
        methods=default_methods(same_examples=same) if methods is None else methods,
        permutations=permutations,
        norm=norm,
        seed=seed,
        compute=compute,
    )
    swept = sweep_examples(
        model,
        examples,
        with_intact(single_heads(model.config)),
        baseline='zero',
        compute=compute,
    )
    metrics = assessed_metrics(swept.logits.shape[-1], subject.task)
    effects = effects_of(swept, labels, (metric,) if metric else metrics, seed=seed)
    return compare_scores(scores, effects, same_examples=same, seed=seed, subject=subject)


def default_methods(*, same_examples: bool) -> tuple[str, ...]:
    """Return the methods that are compared if none are named.

    Args:
      same_examples: Whether scores and losses are measured on the same examples.
    """
    return METHODS[: 3 if same_examples else 4]


def effects_of(swept: Swept, labels: np.ndarray, metrics: Sequence[str], *, seed: int) -> Effects:
    """Return what the model loses with each head.

    Args:
      swept: The logits with all heads, and without each.
      labels: [E] The labels of the examples.
      metrics: The names of the metrics, the most important first.
      seed: The seed of the bootstrap.
    """
    losses = losses_of(swept.logits, labels)
    shape = swept.masks.shape[1:]
    classes = swept.logits.shape[-1]
    predictions = swept.predictions
    scores = significance.weighted_scores(
        metrics[0], predictions, labels, np.ones((1, len(labels)))
    )[0]
    test = what_is_tested(metrics, classes, predictions[0], labels)
    return Effects(
        loss=assess_losses(losses[1:], losses[0], np.ones(len(labels), int), seed=seed),
        increase=(losses[1:] - losses[0]).T.reshape(-1, *shape),
        metric=metrics[0],
        score=float(scores[0]),
        difference=np.reshape(scores[1:] - scores[0], shape),
        learnt=tuple(test.values()),
        classes=classes,
    )


def compare_scores(
    scores: HeadScores, effects: Effects, *, same_examples: bool, seed: int, subject: Subject
) -> Importance:
    """Compare the scores of heads with what the model loses with each.

    Args:
      scores: The scores.
      effects: The effects of taking each head away.
      same_examples: Whether both were measured on the same examples.
      seed: The seed of random halves.
      subject: As in `importance`.
    """
    agreement = {
        method: rank_agreement(
            each,
            effects.increase,
            # Shapley values have a part for each pair of permutations.
            paired=same_examples and method != SHAPLEY,
            score=functools.partial(scores.score, method),
        )
        for method, each in scores.parts.items()
    }
    return Importance(
        subject,
        scores,
        effects,
        same_examples,
        agreement,
        reliability(effects.increase, seed=seed),
    )


def _known(value: float) -> float:
    return -np.inf if np.isnan(value) else value


def _draw_ranks(result: Importance):
    effects = result.effects.increase.mean(axis=0)
    grids = {TITLES[method]: each for method, each in result.scores.of.items()}
    figure = plots.head_grids(
        {title: _ranks(each) for title, each in {**grids, 'measured': effects}.items()},
        label='rank (1: needed most)',
        limits=(0.0, 1.0),
    )
    figure.caption = (
        'How much each head is needed, as its rank among all heads (1 the most, 0 the least), by '
        f'{len(grids)} scores, {result._measured_on}; and, "measured", by the increase of the '
        f'loss without it, measured on {counted(result.effects.loss.texts, "example")} of '
        f'{result.subject.texts}.'
    )
    return figure


def _ranks(values: np.ndarray) -> np.ndarray:
    order = values.ravel().argsort(kind='stable').argsort(kind='stable')
    return (order / max(values.size - 1, 1)).reshape(values.shape)


def _draw_agreement(result: Importance):
    effects = result.effects.increase.mean(axis=0)
    figure = plots.head_scatter(
        {
            f'{TITLES[method]}\n(rank correlation {result.agreement[method].rank:.2f})': each
            for method, each in result.scores.of.items()
        },
        effects,
        label=f'increase of the loss without it ({result._unit})',
        across_label='score',
    )
    figure.source = plots.Source('heads', 'loss_difference')
    figure.caption = (
        'Each head: its score, and the increase of the loss of the task without it. Colours are '
        'layers.'
    )
    return figure
