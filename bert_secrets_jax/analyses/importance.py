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
from bert_secrets_jax.ablation.effects import Effects, loss_in
from bert_secrets_jax.ablation.masked_lm import FEW, assess_losses
from bert_secrets_jax.ablation.masks import describe, single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.ablation import assessed_metrics, what_is_tested
from bert_secrets_jax.analyses.effects import findings_of, intact_of, notes_of, rows_of
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import Models, check_several, labels_of, one_model
from bert_secrets_jax.analyses.tables import grids_frame
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import TITLES as METRIC_TITLES
from bert_secrets_jax.finetune.metrics import check_metrics
from bert_secrets_jax.names import counted
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
from bert_secrets_jax.runs.findings import measured
from bert_secrets_jax.runs.result import Finding, Result, Subject, drawn, framed

SOURCE = 'Michel et al. 2019, sections 3.2 and 4.1'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Removed:
    """The loss of the task without each head, example by example.

    Attributes:
      loss: The effects on the loss, in nats (for a regression, squared error).
      increase: [E, L, N] That of each example.
      metric: The name of the task's own metric.
      difference: [L, N] The score without each head less that with all.
      learnt: The test of whether the model has learnt anything: the metric, its value, the share of
        the larger class, and the p-value.
    """

    FORMAT: ClassVar[int] = 2

    loss: Effects
    increase: np.ndarray
    metric: str
    difference: np.ndarray
    learnt: tuple[str, float, float, float]


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

    title: ClassVar[str] = 'Which heads matter'
    FORMAT: ClassVar[int] = 2

    subject: Subject
    scores: HeadScores
    effects: Removed
    same_examples: bool
    agreement: Mapping[str, Agreement]
    reliability: float

    @property
    def _unit(self) -> str:
        return self.effects.loss.outcome.unit

    def frames(self):
        shape, scores = self.effects.difference.shape, self.scores.of
        _, *of_loss = zip(*rows_of(self.effects.loss, _COLUMNS), strict=True)
        losses = {
            column: np.reshape(each, shape) for column, each in zip(_COLUMNS, of_loss, strict=True)
        }
        points = {'score_difference_points': 100 * self.effects.difference}
        effect, *sure = _COLUMNS
        agreement = [
            (TITLES[method], each.rank, each.low, each.high, SOURCES[method])
            for method, each in self.agreement.items()
        ]
        return {
            'heads': grids_frame(
                {**scores, **losses, **points},
                f'Scores of each head by {len(scores)} methods, {self._measured_on}, and the '
                f'change of the loss ({self._unit}) without it.',
                sure={effect: sure},
            ),
            'agreement': framed(
                ('score', 'rank_correlation', 'low', 'high', 'source'),
                agreement,
                'Rank correlation over heads of each score with the increase of the loss, with an '
                'interval over examples of at least 95 %.',
            ),
        }

    def figures(self):
        return drawn(self, importance=_draw_ranks, importance_agreement=_draw_agreement)

    def findings(self):
        loss = self.effects.loss
        return [
            *self._not_learnt(),
            *findings_of(loss, name='heads', what='heads', source=SOURCE),
            self._score_finding(),
            intact_of(loss, name='loss with all heads', source=SOURCE),
            *self._method_findings(),
        ]

    def notes(self):
        notes = [
            'A head that is taken away puts out nothing. Heads that stand in for each other matter '
            'little one by one.',
            f'Scores are {self._measured_on}.',
        ]
        if GRADIENT in self.scores.parts:
            notes.append(
                'The gradient counts as a size: heads without which the loss falls have one, too.'
            )
        if SHAPLEY in self.agreement:
            notes.append(
                'The interval of Shapley values is for permutations, not for the examples.'
            )
        if self.scores.examples < FEW or self.effects.loss.sample < FEW:
            notes.append('With so few examples, intervals are a little too narrow.')
        return notes

    def head_notes(self):
        texts = notes_of(self.effects.loss, self.effects.difference.shape)
        return {'loss of the task without it': texts}

    @property
    def _measured_on(self) -> str:
        count = self.scores.examples
        if self.same_examples:
            return f'measured on the same {counted(count, "example")}'
        return f'measured on {counted(count, "other example")}'

    def _not_learnt(self) -> Iterator[Finding]:
        if learnt_nothing(self.effects.learnt[-1]):
            yield not_learnt('the model', *self.effects.learnt, self.effects.loss.sample)

    def _score_finding(self) -> Finding:
        """Return the change of the score without the head that the loss needs most."""
        loss = self.effects.loss
        return Finding(
            name='score without the head that is worst to lose',
            estimate=100 * float(self.effects.difference.ravel()[loss.worst]),
            where=loss.names[loss.worst],
            unit=f'points of {METRIC_TITLES[self.effects.metric]}',
            sample=loss.sample,
            source=SOURCE,
        )

    def _method_findings(self) -> Iterator[Finding]:
        fields = {'unit': 'rank correlation', 'sample': self.effects.loss.sample}
        known = {name: each for name, each in self.agreement.items() if not np.isnan(each.rank)}
        for method, each in sorted(known.items(), key=lambda item: -item[1].rank):
            yield measured(
                f'agreement with what losing each head does: {TITLES[method]}',
                (each.rank, each.low, each.high),
                source=SOURCES[method],
                **fields,
            )
        if self.reliability > max([each.rank for each in known.values()] + [0.0]):
            yield Finding(
                name='highest agreement to expect, that of a second sample',
                estimate=self.reliability,
                source=SOURCE,
                **fields,
            )


# The attribute of the effects on the loss in each column of a frame.
_COLUMNS = {
    'loss_difference': 'difference',
    'low': 'low',
    'high': 'high',
    'p_value': 'p_value',
    'p_max_t': 'corrected',
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
    effects = _removed(swept, labels, (metric,) if metric else metrics, seed=seed)
    agreement = {
        method: rank_agreement(
            each,
            effects.increase,
            # Shapley values have a part for each pair of permutations.
            paired=same and method != SHAPLEY,
            score=functools.partial(scores.score, method),
        )
        for method, each in scores.parts.items()
    }
    likely = reliability(effects.increase, seed=seed)
    return Importance(subject, scores, effects, same, agreement, likely)


def default_methods(*, same_examples: bool) -> tuple[str, ...]:
    """Return the methods that are compared if none are named.

    Args:
      same_examples: Whether scores and losses are measured on the same examples.
    """
    return METHODS[: 3 if same_examples else 4]


def _removed(swept: Swept, labels: np.ndarray, metrics: Sequence[str], *, seed: int) -> Removed:
    """Return what the model loses with each head, from the logits with all heads and without."""
    losses, names = losses_of(swept.logits, labels), [describe(mask) for mask in swept.masks[1:]]
    shape, classes = swept.masks.shape[1:], swept.logits.shape[-1]
    predictions, once = swept.predictions, np.ones((1, len(labels)))
    scores = significance.weighted_scores(metrics[0], predictions, labels, once)[0]
    return Removed(
        loss=assess_losses(
            losses[1:],
            losses[0],
            np.ones(len(labels), int),
            names=names,
            outcome=loss_in('squared error' if classes == 1 else 'nats'),
            sample_of='examples',
            seed=seed,
        ),
        increase=(losses[1:] - losses[0]).T.reshape(-1, *shape),
        metric=metrics[0],
        difference=np.reshape(scores[1:] - scores[0], shape),
        learnt=tuple(what_is_tested(metrics, classes, predictions[0], labels).values()),
    )


def _draw_ranks(result: Importance):
    effects = result.effects.increase.mean(axis=0)
    grids = {TITLES[method]: each for method, each in result.scores.of.items()}
    return plots.head_grids(
        {title: _ranks(each) for title, each in {**grids, 'measured': effects}.items()},
        label='rank (1: needed most)',
        limits=(0.0, 1.0),
    ).captioned(
        f'The rank of each head among all (1: needed most) by {len(grids)} scores, '
        f'{result._measured_on}. "Measured" is that by the increase of the loss without it, on '
        f'{counted(result.effects.loss.sample, "example")} of {result.subject.texts}.',
    )


def _ranks(values: np.ndarray) -> np.ndarray:
    order = values.ravel().argsort(kind='stable').argsort(kind='stable')
    return (order / max(values.size - 1, 1)).reshape(values.shape)


def _draw_agreement(result: Importance):
    effects = result.effects.increase.mean(axis=0)
    return plots.head_scatter(
        {
            f'{TITLES[method]}\n(rank correlation {result.agreement[method].rank:.2f})': each
            for method, each in result.scores.of.items()
        },
        effects,
        label=f'increase of the loss without it ({result._unit})',
        across_label='score',
    ).captioned(
        'Each head: its score, and the increase of the loss of the task without it. Colours are '
        'layers.',
        plots.Source('heads', 'loss_difference'),
    )
