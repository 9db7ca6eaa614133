"""The effect of disabling heads and layers, and how much of it is real (section 4.6).

Its figures are Figures 8 and 9 of the paper.

Shapes: M masks, L layers, N heads, E examples.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.ablation.average import MeanEffect, mean_effect
from bert_secrets_jax.ablation.contexts import mean_contexts
from bert_secrets_jax.ablation.masks import with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.significance import (
    LEVEL,
    MARGIN,
    POWER,
    Answers,
    Assessment,
    ChosenElsewhere,
    SelectedGain,
)
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import labels_of, metrics_for, one_model
from bert_secrets_jax.analyses.tables import column_of
from bert_secrets_jax.analyses.verdicts import unseen_change
from bert_secrets_jax.analyses.verdicts.disabling import on_average, to_lose
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Example, Text
from bert_secrets_jax.finetune.metrics import METRICS, TITLES, check_metrics, p_matthews, tested
from bert_secrets_jax.finetune.outcome import p_learnt
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2019, section 4.6'
# The functions that make the sets of masks, by the names that `ablation` takes.
SETS = {
    'heads': mask_sets.single_heads,
    'layers': mask_sets.single_layers,
    'one_head_left': mask_sets.one_head_left,
}
# Descriptions of a disabled head's behaviour, by the baseline.
_INSTEAD = {
    'uniform': 'attends to all tokens alike (one divided by the length) instead of as it learned',
    'zero': 'attends to nothing instead of as it learned',
    'mean': 'puts out its mean output over {corpus} instead of its own',
    'resample': 'puts out its output on another of these texts, of like length, instead of its own',
}
# How a sentence says so; the way of the paper goes without saying.
_WITH = {
    'uniform': '',
    'zero': ', with nothing instead',
    'mean': ', with their mean output instead',
    'resample': ', with their output on another text instead',
}
_COLUMNS = (
    'score',
    'difference',
    'low',
    'high',
    'changed',
    'p_value',
    'holm',
    'benjamini_hochberg',
    'critical',
    'detectable',
    'tost',
    'equivalent',
)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Ablated:
    """The comparison of a set of masks with the intact model.

    Attributes:
      masks: The masks [M, L, N], which are 0 at a disabled head.
      assessed: The comparison of every mask with the intact model, by the name of the metric. The
        task's own metric comes first.
      gain: The gain of the best mask on that metric, with and without the luck of being chosen.
      elsewhere: The gain, on these examples, of the mask that is best on others; None if there were
        no others.
      average: The effect on that metric, on average over the masks.
      unseen: The possible change of the score through examples of a kind that the sample lacks (see
        `verdicts.unseen_change`).
      examples: The number of examples.
      tested: The metric by which it is tested whether the intact model has learnt anything.
      reached: Its value.
      larger_class: The share of the more frequent class; NaN where a correlation is tested.
      p_learnt: The p-value under the hypothesis that the intact model has learnt nothing.
    """

    FORMAT: ClassVar[int] = 3

    masks: np.ndarray
    assessed: Mapping[str, Assessment]
    gain: SelectedGain
    elsewhere: ChosenElsewhere | None
    average: MeanEffect
    unseen: float
    examples: int
    tested: str
    reached: float
    larger_class: float
    p_learnt: float

    @property
    def metric(self) -> str:
        """The name of the task's own metric."""
        return next(iter(self.assessed))

    @property
    def found(self) -> Assessment:
        """The comparison of every mask with the intact model on the task's own metric."""
        return self.assessed[self.metric]

    @property
    def names(self) -> list[str]:
        """The name of the heads or the layer that each mask disables [M], such as 'L1-H2'."""
        return [mask_sets.describe(mask) for mask in self.masks]

    @property
    def best(self) -> int:
        """The index of the mask with the highest score, where undefined scores come last."""
        return int(np.argmax(np.where(np.isnan(self.found.difference), -np.inf, self._known)))

    @property
    def worst(self) -> int:
        """The index of the mask with the lowest score, where undefined scores come last."""
        return int(np.argmin(np.where(np.isnan(self.found.difference), np.inf, self._known)))

    @property
    def _known(self) -> np.ndarray:
        return np.nan_to_num(self.found.difference)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Ablation(Result):
    """The effect on the score of disabling each head, each layer, or sets of your own.

    Attributes:
      subject: The names of the model, the texts and the task.
      baseline: The behaviour of a disabled head: 'uniform', 'zero', 'mean' or 'resample'.
      sets: The effects of each set of masks, by the name of the set.
      own_corpus: Whether the mean outputs of 'mean' are those over texts of your own.
    """

    FORMAT: ClassVar[int] = 2

    subject: Subject
    baseline: str
    sets: Mapping[str, Ablated]
    own_corpus: bool = False

    @property
    def title(self) -> str:
        return 'Disabling heads and layers'

    def frames(self):
        frames = {name: _frame(ablated) for name, ablated in self.sets.items()}
        if 'heads' in self.sets:
            frames['heads_extremes'] = _extremes(self.sets['heads'])
        if 'one_head_left' in self.sets:
            frames['one_head_left_best'] = _best_alone(self.sets['one_head_left'])
        for frame in frames.values():
            frame.attrs['caption'] += f' {self.meaning}'
        return frames

    def figures(self):
        drawings = {
            'heads': functools.partial(_draw_heads, self),
            'layers': functools.partial(_draw_layers, self),
        }
        return Figures({name: draw for name, draw in drawings.items() if name in self.sets})

    @property
    def learnt(self) -> bool:
        """Whether the intact model has learnt something (a `p_learnt` of at most 0.05)."""
        return not learnt_nothing(next(iter(self.sets.values())).p_learnt)

    def findings(self):
        findings = [each for name in self.sets for each in self._of_set(name, self.sets[name])]
        if self.learnt:
            return findings
        first = next(iter(self.sets.values()))
        tested = first.tested, first.reached, first.larger_class, first.p_learnt, first.examples
        return [not_learnt('the intact model', *tested), *findings]

    @property
    def meaning(self) -> str:
        """A sentence that says what a disabled head does."""
        return instead(self.baseline, 'a corpus of its own' if self.own_corpus else 'these texts')

    def notes(self):
        return [
            f'{self.meaning} Differences are in points (the score times a hundred) and have '
            'intervals that are paired by example: score intervals for accuracy and F1, which hold '
            'where few predictions change, too, and bootstrap intervals for correlations. They are '
            'about these examples and this fine-tuned model: another one may lean on other heads.'
        ]

    def head_notes(self):
        if 'heads' not in self.sets:
            return {}
        ablated = self.sets['heads']
        texts = [_effect(ablated.found, index) for index in range(len(ablated.masks))]
        name = f'{TITLES[ablated.metric]} without it'
        return {name: np.reshape(texts, ablated.masks.shape[1:])}

    def head_marks(self):
        if 'heads' not in self.sets:
            return []
        ablated, (texts,) = self.sets['heads'], self.head_notes().values()
        return marks.of_effects(
            ablated.found.difference,
            ablated.found.holm <= LEVEL,
            texts,
            what=TITLES[ablated.metric],
            rank=marks.ONE_MODEL,
        )

    def _of_set(self, name: str, ablated: Ablated) -> Iterator[Finding]:
        found, metric = ablated.found, TITLES[ablated.metric]
        finding = functools.partial(
            Finding, unit=f'points of {metric}', sample=ablated.examples, source=SOURCE
        )
        each = {'heads': 'heads', 'layers': 'layers'}.get(name, 'sets of heads')
        if len(ablated.masks) > 1:
            down, up = found.significant()
            likely_down, likely_up = found.significant(correction='benjamini_hochberg')
            reach, reached = _reach(found)
            yield dataclasses.replace(
                finding(
                    name=f'{name}: significantly needed',
                    estimate=down,
                    template=(
                        '{each} one at a time{instead} ({metric} with all heads {baseline:.1f}): '
                        'without it {metric} is lower for {lower} and higher for {higher} of '
                        '{tests} {what}; significantly lower for {estimate:.0f} and higher for '
                        '{up} after correction for all of them (Holm), for {likely_down} and '
                        '{likely_up} after a weaker one (Benjamini-Hochberg; {test} test).'
                        f'{reach}{{undefined}}'
                    ),
                    numbers={
                        'each': each.capitalize(),
                        'instead': _WITH[self.baseline],
                        'what': each,
                        'metric': metric,
                        'baseline': 100 * found.baseline_score,
                        'lower': int((found.difference < 0).sum()),
                        'higher': int((found.difference > 0).sum()),
                        'tests': len(ablated.masks),
                        'up': up,
                        'likely_down': likely_down,
                        'likely_up': likely_up,
                        'test': found.test,
                        'undefined': _undefined(found),
                        **reached,
                    },
                ),
                unit=each,
            )
            yield self._of_equivalence(name, ablated, each)
        if name == 'one_head_left':
            return
        if np.isnan(found.difference).all():
            return
        extremes = [('best', ablated.best)]
        if len(ablated.masks) > 1:
            extremes.append(('worst', ablated.worst))
        for which, index in extremes:
            yield finding(
                name=f'{name}: {which} to lose',
                estimate=100 * float(found.difference[index]),
                low=100 * float(found.low[index]),
                high=100 * float(found.high[index]),
                p=float(found.holm[index]),
                template=(
                    '{words} {disabled}: {estimate:+.2f} points of {metric} ({low:+.2f} to '
                    '{high:+.2f}, p = {p:.2g}, corrected {corrected:.2g}).'
                ),
                numbers={
                    'words': to_lose(found.difference[index], best=which == 'best'),
                    'disabled': ablated.names[index],
                    'metric': metric,
                    'p': float(found.p_value[index]),
                    'corrected': float(found.holm[index]),
                },
            )
        if name == 'heads':
            average, low, high = on_average(ablated.average).interval(0)
            yield finding(
                name='heads: mean effect',
                estimate=average,
                low=low,
                high=high,
                null=0.0,
                template='Losing a random head changes {metric} by {estimate:+.2f} points on '
                'average ({low:+.2f} to {high:+.2f}).',
                numbers={'metric': metric},
            )
            gain = ablated.gain
            yield finding(
                name='heads: best where it was not chosen',
                estimate=100 * gain.from_nine_tenths,
                low=100 * gain.low,
                high=100 * gain.high,
                template=(
                    'The best of {tests} heads is partly the luckiest. Chosen on nine tenths of '
                    'the examples, it changes {metric} by {estimate:+.2f} points on the remaining '
                    'tenth, and chosen on one half, by {half:+.2f} on the other half, not by the '
                    '{naive:+.2f} where it was chosen, which is what the paper reports. The true '
                    'effect of the one that is best on all examples lies between {low:+.2f} and '
                    '{high:+.2f} (an interval that is corrected for the choice).'
                ),
                numbers={
                    'tests': len(ablated.masks),
                    'metric': metric,
                    'naive': 100 * gain.naive,
                    'half': 100 * gain.from_half,
                },
            )
        if ablated.elsewhere is not None:
            chosen = ablated.elsewhere
            yield finding(
                name=f'{name}: best, chosen on other examples',
                estimate=100 * chosen.gain,
                low=100 * chosen.low,
                high=100 * chosen.high,
                template=(
                    'Chosen on {choosing:other example|other examples}, where it changes {metric} '
                    'by {where_chosen:+.2f} points, the best to lose is {disabled}. Here it '
                    'changes {metric} by {estimate:+.2f} points ({low:+.2f} to {high:+.2f}).'
                ),
                numbers={
                    'choosing': chosen.choosing,
                    'metric': metric,
                    'where_chosen': 100 * chosen.where_chosen,
                    'disabled': ablated.names[chosen.best],
                },
            )
        published = _published(name, self.subject.task)
        if published is not None:
            yield _compared(published, ablated, metric)

    def _of_equivalence(self, name: str, ablated: Ablated, each: str) -> Finding:
        found = ablated.found
        equal = found.equivalent <= LEVEL
        changes = (found.holm <= LEVEL) & ~equal
        told = len(found.difference) - int(equal.sum()) - int(changes.sum())
        return Finding(
            name=f'{name}: shown not to matter',
            estimate=int(equal.sum()),
            unit=each,
            sample=ablated.examples,
            source='two one-sided tests, Schuirmann 1987',
            template=(
                '{estimate} of {tests} {what} {estimate:|is|are} shown not to matter by '
                '{margin:.1f} points of {metric}, in either direction, after correction for all of '
                'them (two one-sided tests, Holm); {changes} of the others '
                '{changes:|changes|change} it significantly, and for {open} these examples cannot '
                'tell.'
            ),
            numbers={
                'tests': len(found.difference),
                'what': each,
                'margin': 100 * MARGIN,
                'metric': TITLES[ablated.metric],
                'changes': int(changes.sum()),
                'open': told,
            },
        )


def ablation(
    tuned: Pretrained | Finetuned,
    examples: Sequence[Example],
    *,
    masks: str | Sequence[str] | Mapping[str, np.ndarray] = 'heads',
    baseline: str = 'uniform',
    corpus: Sequence[Text] | None = None,
    metrics: Sequence[str] | None = None,
    choose_on: Sequence[Example] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Ablation:
    """Disable heads, and tell real changes of the score from chance (section 4.6).

    Args:
      tuned: A model with a classifier. Of several fine-tuned models, the first is used.
      examples: The labelled texts.
      masks: The names of one or several sets of masks: 'heads' disables one head at a time (Figure
        8), 'layers' one layer at a time (Figure 9), and 'one_head_left' all heads of a layer but
        one (Michel et al. 2019). Masks of your own [M, L, N] (see `bs.masks`) come in a dictionary,
        by the name of their set.
      baseline: The behaviour of a disabled head. 'uniform' gives every token 1/length, as in the
        paper, and 'zero' removes the head. 'mean' replaces its output by its mean output over a
        corpus, and 'resample' by its output on another of the examples (see `bs.sweep`).
      corpus: For 'mean', texts of your own, without labels, of the same kind as the examples; None
        takes the mean over the examples.
      metrics: The names of the metrics, the most important first. By default they are those of the
        task of `subject`. If it has no GLUE task, they are F1 and accuracy for two classes,
        accuracy for more, and Pearson's correlation for a regression.
      choose_on: Other labelled texts, on which the best mask of each set is chosen before it is
        measured on `examples`, such as a part of the training file that the model was not trained
        on. None chooses on `examples` alone, by cross-validation. This sweeps as often over these
        texts as over `examples`, except for 'one_head_left', whose best is not looked for, and a
        set of a single mask.
      seed: The seed of the bootstrap, the randomization test and the random parts of the examples,
        and, for 'resample', of the draw of those other examples.
      compute: How it is computed.
      subject: The names of the model, the texts and the task, for sentences and captions.

    Raises:
      TypeError: The model or the examples are something else.
      ValueError: A set, a metric or the baseline is unknown, the masks do not fit the model, an
        example has no label, the model has no classifier, a label is none of its classes, a text is
        both in `examples` and in `choose_on`, nothing is to be chosen on `choose_on`, there is a
        corpus without 'mean', or for 'resample' there are fewer than two examples.
    """
    check_baseline(baseline)
    if corpus is not None and baseline != 'mean':
        raise ValueError(f"A corpus goes with baseline='mean', not with {baseline=}.")
    subject = subject or Subject()
    model = one_model(tuned)
    labels = labels_of(examples, model.config)
    metrics = metrics or assessed_metrics(model.config.num_labels, subject.task)
    check_metrics(metrics, model.config.num_labels)
    if choose_on is not None:
        check_apart(choose_on, examples)
        labels_elsewhere = labels_of(choose_on, model.config)

    chosen_masks = named_masks(masks, model.config)
    if choose_on is not None and not any(is_chosen_from(*item) for item in chosen_masks.items()):
        raise ValueError('choose_on chooses the best of several masks, and no set has several.')
    means = None
    if baseline == 'mean':
        corpus_texts = examples if corpus is None else corpus
        batches = encode(model.tokenizer, corpus_texts, **compute.encoding)
        means = mean_contexts(model, batches, mesh=compute.mesh)

    def swept(texts: Sequence[Example], masks: np.ndarray) -> Swept:
        return sweep_examples(
            model,
            texts,
            with_intact(masks),
            baseline=baseline,
            replacement=means,
            donor_seed=seed,
            compute=compute,
        )

    sets = {}
    for name, chosen in chosen_masks.items():
        here, elsewhere = swept(examples, chosen), None
        if choose_on is not None and is_chosen_from(name, chosen):
            there = swept(choose_on, chosen)
            elsewhere = answers(there, labels_elsewhere)
        sets[name] = assess(here, labels, metrics, seed=seed, elsewhere=elsewhere)
    return Ablation(subject, baseline, sets, own_corpus=corpus is not None)


def is_chosen_from(name: str, masks: np.ndarray) -> bool:
    """Return whether it makes sense to look for the best mask of a set.

    Args:
      name: The name of the set.
      masks: The masks of the set [M, L, N].
    """
    return name != 'one_head_left' and len(masks) > 1


def check_apart(choose_on: Sequence[Example], examples: Sequence[Example]) -> None:
    """Refuse examples for choosing whose texts also measure the choice.

    Args:
      choose_on: The examples for choosing.
      examples: The examples for measuring.

    Raises:
      ValueError: A text is in both, under whatever id. The error names it.
    """
    measured = {example.texts for example in examples}
    for example in choose_on:
        if example.texts in measured:
            raise ValueError(
                f'The text of {example.place or example.text_a!r} is among the examples and in '
                'choose_on: give choose_on other texts, or the choice is measured where it was '
                'made.'
            )


def answers(swept: Swept, labels: np.ndarray) -> Answers:
    """Return what all models of a sweep answer.

    Args:
      swept: The logits under all masks, the first of which keeps all heads.
      labels: The label of each example [E].
    """
    intact, *_ = predictions = swept.predictions
    return Answers(predictions[1:], intact, labels)


def assessed_metrics(classes: int, task: str | None = None) -> tuple[str, ...]:
    """Return the names of the metrics that `ablation` compares by default.

    They are those of the task, but for Spearman's correlation: its test ranks all examples anew in
    every round, and tasks that have it have Pearson's, too.

    Args:
      classes: The number of classes; 1 means regression.
      task: The name of the task; None if it has none.
    """
    return tuple(name for name in metrics_for(classes, task) if name != 'spearman')


def assess(
    swept: Swept,
    labels: np.ndarray,
    metrics: Sequence[str],
    *,
    seed: int,
    elsewhere: Answers | None = None,
) -> Ablated:
    """Compare each mask with the intact model.

    Args:
      swept: The logits under all masks, the first of which keeps all heads.
      labels: The label of each example [E].
      metrics: The names of the metrics, the most important first.
      seed: The seed of the bootstrap, the randomization test and the random parts of the examples.
      elsewhere: The answers of the same models to other examples, on which the best mask is chosen.
    """
    here = answers(swept, labels)
    predictions, intact = here.predictions, here.baseline
    assessed = {
        metric: significance.assess(metric, predictions, intact, labels, seed=seed)
        for metric in metrics
    }
    first = next(iter(assessed))
    test = what_is_tested(metrics, swept.logits.shape[-1], intact, labels)
    return Ablated(
        masks=swept.masks[1:],
        assessed=assessed,
        gain=significance.selected_gain(first, predictions, intact, labels, seed=seed),
        elsewhere=None
        if elsewhere is None
        else significance.gain_of_choice(first, elsewhere, here, seed=seed),
        average=mean_effect(first, predictions, intact, labels, seed=seed),
        unseen=unseen_change(first, intact, labels),
        examples=len(labels),
        **test,
    )


def what_is_tested(
    metrics: Sequence[str], classes: int, predictions: np.ndarray, labels: np.ndarray
) -> dict[str, Any]:
    """Return by what it is tested whether a model has learnt anything, and how it comes out.

    Args:
      metrics: The names of the metrics, the most important first.
      classes: The number of classes; 1 means regression.
      predictions: The prediction of the model for each example [E].
      labels: The label of each example [E].

    Returns:
      The fields `tested`, `reached`, `larger_class` and `p_learnt` of `Ablated`.
    """
    name = tested(metrics, classes)
    larger = np.unique_counts(labels).counts.max() / len(labels)
    larger = float(larger) if name == 'accuracy' else math.nan
    value = METRICS[name](predictions, labels)
    if name == 'matthews':
        p_value = p_matthews(predictions, labels)
    else:
        p_value = p_learnt(value, larger, len(labels))
    return {'tested': name, 'reached': value, 'larger_class': larger, 'p_learnt': p_value}


def instead(baseline: str, corpus: str = 'these texts') -> str:
    """Return a sentence that says what a disabled head does.

    Args:
      baseline: 'uniform', 'zero', 'mean' or 'resample'.
      corpus: The words for the texts that the mean output is over.
    """
    return f'A disabled head {_INSTEAD[baseline].format(corpus=corpus)}.'


def named_masks(
    masks: str | Sequence[str] | Mapping[str, np.ndarray], config: BertConfig
) -> dict[str, np.ndarray]:
    """Return the masks [M, L, N] of each set, as `ablation` takes them.

    Args:
      masks: The names of sets, or masks by the name of their set.
      config: The configuration of the model.

    Raises:
      ValueError: A set is unknown, or there is none.
    """
    if isinstance(masks, Mapping):
        return {name: np.asarray(each, np.float32) for name, each in masks.items()}
    names = [masks] if isinstance(masks, str) else list(masks)
    unknown = [name for name in names if name not in SETS]
    if unknown or not names:
        raise ValueError(
            f'Sets of masks are {", ".join(SETS)}, not {", ".join(unknown) or "none"}. Your own '
            "go by name: {'mine': masks}."
        )
    return {name: SETS[name](config) for name in names}


def _frame(ablated: Ablated):
    rows = [
        (metric, each.test, disabled, *(getattr(each, column)[row] for column in _COLUMNS))
        for metric, each in ablated.assessed.items()
        for row, disabled in enumerate(ablated.names)
    ]
    return framed(
        ('metric', 'test', 'disabled', *map(column_of, _COLUMNS)),
        rows,
        'Score without what is disabled, and that score less the score with all heads; low and '
        'high are the 95 % interval of the difference, and changed is the number of examples that '
        'are answered otherwise. p_holm and p_benjamini_hochberg are corrected for all of them. '
        'After correction, no difference smaller than least_significant can be significant, and '
        f'one of detectable is found with a probability of {POWER:.0%}. The difference is shown to '
        f'be smaller than {MARGIN} where the p-value of two one-sided tests, after correction '
        f'(p_tost_holm), is at most {LEVEL}.',
        colours=colours_of(ablated.masks, {'score': (), 'difference': _SURE}, by=('metric',)),
    )


_SURE = ('low', 'high', 'p_value', 'p_holm', 'p_benjamini_hochberg', 'p_tost', 'p_tost_holm')


def colours_of(
    masks: np.ndarray, columns: Mapping[str, Sequence[str]], *, by: Sequence[str]
) -> Colours | None:
    """Return what a page may colour by in a frame with a row for each mask.

    Args:
      masks: The masks [M, L, N]; None is returned unless there is one for each head, or each layer.
      columns: As in `Colours`.
      by: As in `Colours`.
    """
    layers, heads = masks.shape[1:]
    disabled = 1 - masks.reshape(len(masks), -1)
    every = {'heads': np.eye(layers * heads), 'layers': np.eye(layers).repeat(heads, axis=1)}
    axes = [axis for axis, each in every.items() if np.array_equal(disabled, each)]
    return Colours(axes[0], columns, by) if axes else None


_IN_POINTS = ('score', 'difference', 'low', 'high', 'detectable')
_SHOWN = {
    f'{column}_points' if column in _IN_POINTS else column_of(column): column
    for column in _COLUMNS
    if column not in ('critical', 'tost')
}


def _row(ablated: Ablated, index: int | np.integer) -> tuple:
    values = {column: getattr(ablated.found, column)[index] for column in _SHOWN.values()}
    return tuple(100 * value if column in _IN_POINTS else value for column, value in values.items())


def _extremes(ablated: Ablated):
    difference = ablated.found.difference
    order = np.argsort(difference)[: np.isfinite(difference).sum()]
    shown = dict.fromkeys((*order[:5], *order[-5:]))
    return framed(
        ('disabled', *_SHOWN),
        [(ablated.names[index], *_row(ablated, index)) for index in shown],
        f'The five lowest and the five highest differences, {TITLES[ablated.metric]}.',
    )


def _best_alone(ablated: Ablated):
    shape = ablated.masks.shape[1:]
    difference = ablated.found.difference
    best = np.where(np.isnan(difference), -np.inf, difference).reshape(shape).argmax(axis=1)
    rows = [
        (head_name(*head), *_row(ablated, int(np.ravel_multi_index(head, shape))))
        for head in enumerate(best)
    ]
    return framed(
        ('head_left', *_SHOWN),
        rows,
        f'The head of each layer that suffices best alone, {TITLES[ablated.metric]} (Michel et al. '
        '2019, table 2). It is the best of its layer on these very examples, so its difference is '
        'flattered.',
    )


def _draw_heads(result: Ablation):
    ablated = result.sets['heads']
    found, shape = ablated.found, ablated.masks.shape[1:]

    def grid(values: np.ndarray) -> np.ndarray:
        return np.reshape(values, shape)

    figure = plots.effect_grid(
        100 * grid(found.difference),
        label=f'change of {TITLES[ablated.metric]} (points)',
        real=grid(found.holm <= 0.05),
        likely=grid(found.benjamini_hochberg <= 0.05),
    )
    figure.source = plots.Source('heads', 'difference', ablated.metric, times=100)
    figure.caption = (
        f'Score without each head less score with all ({result.subject.as_in("Figure 8")}). Filled '
        'circles: significant at 5 % after correction for all heads (Holm); of the filled and the '
        'open ones together, at most 5 % are expected to be chance (Benjamini-Hochberg). '
        f'{result.meaning}'
    )
    return figure


def _draw_layers(result: Ablation):
    ablated = result.sets['layers']
    found, published = ablated.found, _published('layers', result.subject.task)
    figure = plots.layer_effects(
        100 * found.difference,
        100 * found.low,
        100 * found.high,
        label=f'change of {TITLES[ablated.metric]} (points)',
        published=None if published is None else 100 * published,
        published_name='paper: BERT-base',
    )
    figure.source = plots.Source('layers', 'difference', ablated.metric, times=100)
    figure.caption = (
        'Score without all heads of a layer less score with all '
        f'({result.subject.as_in("Figure 9")}); lines are 95 % intervals. {result.meaning}'
    )
    return figure


def _effect(found: Assessment, index: int | np.integer) -> str:
    return (
        f'{100 * found.difference[index]:+.2f} points ({100 * found.low[index]:+.2f} to '
        f'{100 * found.high[index]:+.2f}, p = {found.p_value[index]:.2g}, corrected '
        f'{found.holm[index]:.2g})'
    )


def _reach(found: Assessment) -> tuple[str, dict[str, float]]:
    """Return the sentence on what the test could have found, and its numbers."""
    if not np.isfinite(found.critical).any():
        return ' With so few examples, no change of any size could have been significant.', {}
    words = ' No change below {critical:.1f} points could have been significant'
    numbers = {'critical': 100 * float(np.nanmin(found.critical))}
    # Where the test can find no effect at all, the detectable one is infinite.
    detectable = 100 * float(np.median(np.nan_to_num(found.detectable, nan=np.inf)))
    if not np.isfinite(detectable):
        return f'{words}.', numbers
    words += (
        ', and one of {detectable:.1f} (median of {what}) is found with a probability of '
        '{power:.0f} %.'
    )
    return words, numbers | {'detectable': detectable, 'power': 100 * POWER}


def _undefined(found: Assessment) -> str:
    count = int(np.isnan(found.difference).sum())
    return f' For {count} it is undefined: their predictions are constant.' if count else ''


def _published(name: str, task: str | None) -> np.ndarray | None:
    """Return the paper's differences to its baseline, [L, N] or [L]."""
    published = {'heads': paper.disable_one_head, 'layers': paper.disable_one_layer}
    found = published[name](task) if name in published else None
    return None if found is None else found.differences


def _compared(published: np.ndarray, ablated: Ablated, metric: str) -> Finding:
    def name(index) -> str:
        if published.ndim == 1:
            return f'layer {index + 1}'
        return head_name(*np.unravel_index(index, published.shape))

    ours, rank = ablated.found.difference, np.nan
    layers, heads = ablated.masks.shape[1:]
    alike = published.size == len(ours) and published.shape in ((layers,), (layers, heads))
    if alike:
        rank = paper.spearman(published.ravel(), ours)
    return Finding(
        name=f'rank correlation with the paper, {"heads" if published.ndim == 2 else "layers"}',
        estimate=float(rank),
        unit="Spearman's rank correlation",
        sample=len(ours),
        sample_of='masks',
        source=f'{SOURCE}, Figure {8 if published.ndim == 2 else 9}',
        template=(
            'In the paper (BERT-base, digitised) the best to lose is {best} ({gain:+.1f} points of '
            '{metric}) and the worst {worst} ({loss:+.1f}), without intervals.{rank}'
        ),
        numbers={
            'best': name(published.argmax()),
            'worst': name(published.argmin()),
            'gain': 100 * float(published.max()),
            'loss': 100 * float(published.min()),
            'metric': metric,
            'rank': f' Rank correlation with ours: {rank:.2f}.' if np.isfinite(rank) else '',
        },
    )
