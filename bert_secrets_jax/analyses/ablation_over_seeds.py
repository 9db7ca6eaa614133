"""The effect of disabling heads and layers in any fine-tuning of a recipe (section 4.6).

The paper disables the heads of one fine-tuned model. Another seed gives another model, which may
lean on other heads. Here the fine-tunings are a sample, and so are the examples.

Shapes: S seeds, M masks, L layers, N heads, E examples.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation import seeds as over_seeds
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.ablation.average import MeanEffect, mean_effect
from bert_secrets_jax.ablation.effects import LEVEL, Agreement, Effects
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.ablation import (
    NAMES,
    SOURCE,
    assessed_metrics,
    instead,
    named_masks,
    what_is_tested,
)
from bert_secrets_jax.analyses.effects import (
    draw_layers,
    extremes,
    label_of,
    notes_of,
    rows_of,
    significant,
    smallest,
    unit_of,
)
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import Models, all_models, check_alike, labels_of, seeds_of
from bert_secrets_jax.analyses.populations import (
    ANY_FINETUNING,
    ANY_FINETUNING_HERE,
    THIS_MODEL,
    population,
)
from bert_secrets_jax.analyses.verdicts.disabling import on_average
from bert_secrets_jax.analyses.verdicts.verdict import Contrasts
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import TITLES, check_metrics
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

# The attribute of the effects in each column of a frame.
_COLUMNS = {
    'mean_points': 'difference',
    'spread_points': 'seeds.spread',
    'low_points': 'low',
    'high_points': 'high',
    'least_significant_points': 'critical',
    'significant_share': 'seeds.significant_share',
    'p_value': 'p_value',
    'p_holm': 'seeds.holm',
    'p_max_t': 'seeds.max_t',
}
# The heads of the figure's second panel: so many at each end.
_EXTREMES = 4


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class SetOverSeeds:
    """The comparison of a set of masks with the intact models, over all seeds.

    Attributes:
      masks: The masks [M, L, N], which are 0 at a disabled head.
      found: The effects over seeds, by the name of the metric. The task's own metric comes first.
      averages: The effect on that metric in each seed, on average over the masks.
      examples: The number of examples, E.
      tested: The metric by which it is tested whether a model has learnt anything.
      reached: Its value for each seed's intact model [S].
      larger_class: The share of the most frequent class; NaN where a correlation is tested.
      p_learnt: The p-value of each seed [S] under the hypothesis that its model has learnt nothing.
    """

    FORMAT: ClassVar[int] = 4

    masks: np.ndarray
    found: Mapping[str, Effects]
    averages: tuple[MeanEffect, ...]
    examples: int
    tested: str
    reached: np.ndarray
    larger_class: float
    p_learnt: np.ndarray

    @property
    def metric(self) -> str:
        """The name of the task's own metric."""
        return next(iter(self.found))

    @property
    def first(self) -> Effects:
        """The effects on the task's own metric."""
        return self.found[self.metric]

    @property
    def average(self) -> Contrasts:
        """The mean effect over masks and seeds, in points (`verdicts.disabling.on_average`)."""
        return on_average(self.averages)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class AblationOverSeeds(Result):
    """The effect of disabling each head or layer, over several fine-tunings of one recipe.

    Attributes:
      subject: The names of the model, the texts and the task.
      baseline: The behaviour of a disabled head, as in `ablation`.
      seeds: The seed of each fine-tuned model.
      sets: The effects of each set of masks, by the name of the set.
    """

    FORMAT: ClassVar[int] = 3

    subject: Subject
    baseline: str
    seeds: tuple[int, ...]
    sets: Mapping[str, SetOverSeeds]

    @property
    def title(self) -> str:
        return 'Disabling heads and layers, over fine-tunings'

    @property
    def population(self) -> str:
        """The population of the means, their intervals and what is significant."""
        return THIS_MODEL if len(self.seeds) < 2 else ANY_FINETUNING

    @property
    def _over(self) -> str:
        count = len(self.seeds)
        return f'over {count} fine-tunings' if count > 1 else 'in one fine-tuning'

    def frames(self):
        frames = {name: self._frame(each) for name, each in self.sets.items()}
        if 'heads' in self.sets:
            frames['heads_extremes'] = self._extremes(self.sets['heads'])
        if len(self.seeds) > 1:
            frames['agreement'] = self._agreement()
        frames |= {f'{name}_by_seed': self._by_seed(each) for name, each in self.sets.items()}
        return frames

    def figures(self):
        drawings = {
            'heads': functools.partial(_draw_heads, self),
            'layers': functools.partial(_draw_layers, self),
        }
        return Figures({name: draw for name, draw in drawings.items() if name in self.sets})

    def findings(self):
        findings = [each for name in self.sets for each in self._of_set(name, self.sets[name])]
        return [*self._not_learnt(), *findings]

    def notes(self):
        notes = [
            f'{instead(self.baseline)} '
            'Differences are in points (the score times a hundred), mean over fine-tunings that '
            f'differ in their seed alone. Intervals and significance are for {self.population}.'
        ]
        if len(self.seeds) > 1:
            notes.append(
                'Two corrections for all masks are required of what is called significant. Flips '
                'of the signs of whole seeds (max-T) ask for no distribution, and are for '
                f"{ANY_FINETUNING_HERE}. Holm's correction counts the examples as a sample, too, "
                'and takes the effects over seeds to be about normal.'
            )
        return notes

    def head_notes(self):
        if 'heads' not in self.sets:
            return {}
        heads = self.sets['heads']
        name = f'{TITLES[heads.metric]} without it, over fine-tunings'
        return {name: notes_of(heads.first, heads.masks.shape[1:])}

    def head_marks(self):
        if 'heads' not in self.sets:
            return []
        heads = self.sets['heads']
        return marks.of_effects(
            heads.first,
            heads.masks.shape[1:],
            rank=marks.OVER_SEEDS,
            what=f'{TITLES[heads.metric]} {self._over}',
        )

    def _not_learnt(self) -> Iterator[Finding]:
        first = next(iter(self.sets.values()))
        for place, p in enumerate(first.p_learnt):
            if learnt_nothing(p):
                which = f'with seed {self.seeds[place]}, the fine-tuned model'
                reached = float(first.reached[place])
                yield not_learnt(
                    which, first.tested, reached, first.larger_class, float(p), first.examples
                )
                return

    def _of_set(self, name: str, found: SetOverSeeds) -> Iterator[Finding]:
        first, what = found.first, NAMES.get(name, 'sets of heads')
        about = {'name': f'{name} over seeds', 'source': SOURCE}
        if len(found.masks) > 1:
            yield significant(
                first,
                name=f'{name} over seeds: significantly needed',
                what=what,
                source=SOURCE,
                how=f', {self._over}',
            )
            if len(self.seeds) > 1:
                yield from self._of_corrections(name, found)
        if name != 'one_head_left':
            yield from extremes(first, **about)
        average, low, high = found.average.interval(0)
        if name == 'heads' and np.isfinite(high - low) and found.examples > 1:
            yield Finding(
                name='heads over seeds: mean effect',
                estimate=average,
                low=low,
                high=high,
                null=0.0,
                unit=unit_of(first),
                sample=len(self.seeds),
                sample_of='fine-tunings',
                source=SOURCE,
                template='Losing a random head changes {metric} by {estimate:+.2f} points on '
                'average {over} ({low:+.2f} to {high:+.2f}).',
                numbers={'metric': TITLES[found.metric], 'over': self._over},
            )
        # With two or three seeds, it is more than a score can change.
        if (first.critical < 1).all():
            yield smallest(first, what=what, **about)
        if np.isfinite(first.seeds.agreement.rank):
            yield self._of_agreement(name, first, what)

    def _of_corrections(self, name: str, found: SetOverSeeds) -> Iterator[Finding]:
        """Return what each correction finds alone, and what it cannot find with so few seeds."""
        first, seeds = found.first, found.first.seeds
        finding = functools.partial(
            Finding, sample=len(self.seeds), sample_of='fine-tunings', source=SOURCE
        )
        if seeds.least_p > LEVEL:
            yield finding(
                name=f'{name} over seeds: too few seeds',
                estimate=seeds.least_p,
                unit='p-value',
                template='With {sample} seeds none can be significant: flips of their signs give '
                'no corrected p below {estimate:.2g}; six seeds or more can.',
            )
        corrections = {"Holm's correction": seeds.holm, 'flips of seeds': seeds.max_t}
        for how, p_values in corrections.items():
            down, up = first.signed(p_values <= LEVEL)
            yield finding(
                name=f'{name} over seeds: needed by {how} alone',
                estimate=down,
                unit=NAMES.get(name, 'sets of heads'),
                template=(
                    'By {how} alone, {metric} is lower without {estimate} of {tests} and higher '
                    'without {up}'
                    + (
                        ' (smallest possible corrected p {least:.2g}).'
                        if p_values is seeds.max_t
                        else '.'
                    )
                ),
                numbers={
                    'how': how,
                    'metric': TITLES[found.metric],
                    'tests': len(found.masks),
                    'up': up,
                    'least': seeds.least_p,
                },
            )

    def _of_agreement(self, name: str, first: Effects, what: str) -> Finding:
        agreed = first.seeds.agreement
        interval = ' ({low:.2f} to {high:.2f})' if np.isfinite(agreed.rank_low) else ''
        return Finding(
            name=f'{name} over seeds: agreement',
            estimate=agreed.rank,
            low=agreed.rank_low,
            high=agreed.rank_high,
            unit="Spearman's rank correlation",
            sample=len(self.seeds),
            sample_of='fine-tunings',
            source=SOURCE,
            template='Two fine-tunings agree on what the {tests} {what} do with a rank correlation '
            f'of {{estimate:.2f}}{interval}.',
            numbers={'tests': len(first.difference), 'what': what},
        )

    def _frame(self, found: SetOverSeeds):
        rows = [
            (metric, *row)
            for metric, each in found.found.items()
            for row in rows_of(each, _COLUMNS)
        ]
        return framed(('metric', 'disabled', *_COLUMNS), rows, self._caption())

    def _extremes(self, found: SetOverSeeds):
        rows = rows_of(found.first, _COLUMNS)
        return framed(
            ('disabled', *_COLUMNS),
            [rows[index] for index in found.first.extremes(5)],
            f'The five lowest and the five highest means, {TITLES[found.metric]}. '
            f'{self._caption()}',
        )

    def _caption(self) -> str:
        flips = over_seeds.least_p(len(self.seeds))
        return (
            f'Score without what is disabled less the score with all heads: mean {self._over}, '
            f'standard deviation over them (spread), 95 % interval '
            f'for {population(len(self.seeds))}; smallest mean that Holm can find '
            '(least_significant); share of the fine-tunings in which it is significant by itself; '
            f'p-value over seeds and examples, the same after Holm, and after '
            f'flips of seeds (p_max_t, on these very examples, at least {flips:.2g}).'
        )

    def _by_seed(self, found: SetOverSeeds):
        rows = [
            (
                metric,
                disabled,
                seed,
                100 * each.seeds.intact[place],
                100 * each.seeds.difference[place, index],
            )
            for metric, each in found.found.items()
            for index, disabled in enumerate(each.names)
            for place, seed in enumerate(self.seeds)
        ]
        return framed(
            ('metric', 'disabled', 'seed', 'intact_points', 'difference_points'),
            rows,
            'The difference in every fine-tuning.',
        )

    def _agreement(self):
        names = [field.name for field in dataclasses.fields(Agreement)]
        rows = [
            (name, metric, *(getattr(each.seeds.agreement, field) for field in names))
            for name, found in self.sets.items()
            for metric, each in found.found.items()
        ]
        return framed(
            ('masks', 'metric', *names),
            rows,
            'Agreement of two fine-tunings on the effects, on the same examples: mean rank '
            'correlation of pairs, ICC(1) and ICC(3,1), with 95 % intervals over seeds.',
        )


def ablation_over_seeds(
    tuned: Models,
    examples: Sequence[Example],
    *,
    masks: str | Sequence[str] | Mapping[str, np.ndarray] = 'heads',
    baseline: str = 'uniform',
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> AblationOverSeeds:
    """Disable heads in every fine-tuned model, and tell what holds for any fine-tuning alike.

    Args:
      tuned: The models, fine-tuned by one recipe with seeds of their own. At least six are needed
        for anything to be significant by flips of seeds. With one, the effects, intervals and
        p-values are those of `ablation`.
      examples: The labelled texts.
      masks: The names of sets of masks, or masks of your own, as in `ablation`.
      baseline: The behaviour of a disabled head, as in `ablation`; for 'mean', the mean is that
        over the examples.
      metrics: The names of the metrics, the most important first: any but 'spearman'. None takes
        those of `ablation`.
      seed: The seed of the bootstrap and the randomization test of each model by itself and, for
        'resample', of the draw of other examples.
      compute: How it is computed.
      subject: The names of the model, the texts and the task, for sentences and captions.

    Raises:
      TypeError: A model or the examples are something else.
      ValueError: `ablation` would refuse the arguments, the models differ in their layers, heads or
        classes, or a metric is not offered over seeds.
    """
    subject = subject or Subject()
    models = all_models(tuned)
    config = models[0].config
    labels = labels_of(examples, config)
    metrics = metrics or assessed_metrics(config.num_labels, subject.task)
    check_metrics(metrics, config.num_labels)
    check_alike(models)
    sets = {}
    for name, chosen in named_masks(masks, config).items():
        swept = []
        for place, model in enumerate(models, 1):
            logging.info('Fine-tuning %d of %d: %s', place, len(models), name)
            swept.append(
                sweep_examples(
                    model,
                    examples,
                    mask_sets.with_intact(chosen),
                    baseline=baseline,
                    donor_seed=seed,
                    compute=compute,
                )
            )
        sets[name] = assess_over_seeds(swept, labels, metrics, seed=seed)
    return AblationOverSeeds(subject, baseline, seeds_of(tuned), sets)


def assess_over_seeds(
    swept: Sequence[Swept], labels: np.ndarray, metrics: Sequence[str], *, seed: int
) -> SetOverSeeds:
    """Compare each mask with the intact model, over the models of one recipe.

    Args:
      swept: The logits of each model under the same masks, the first of which keeps all heads.
      labels: The label of each example [E].
      metrics: The names of the metrics, the most important first.
      seed: The seed of the bootstrap and the randomization test of each model by itself.

    Raises:
      ValueError: The masks differ, or a metric is not offered over seeds.
    """
    if any(not np.array_equal(each.masks, swept[0].masks) for each in swept):
        raise ValueError('The models were swept with different masks.')
    predictions = np.stack([each.predictions for each in swept])  # [S, 1 + M, E]
    intact, masked = predictions[:, 0], predictions[:, 1:]
    tests = [what_is_tested(metrics, swept[0].logits.shape[-1], each, labels) for each in intact]
    names = [mask_sets.describe(mask) for mask in swept[0].masks[1:]]
    found = {}
    for metric in metrics:
        alone = [
            significance.assess(metric, of_mask, whole, labels, names=names, seed=seed)
            for of_mask, whole in zip(masked, intact, strict=True)
        ]
        if len(alone) == 1:
            found[metric] = over_seeds.of_one_seed(alone[0])
            continue
        adjusted = np.stack([each.corrected for each in alone])
        found[metric] = over_seeds.assess_seeds(
            metric, masked, intact, labels, adjusted=adjusted, names=names
        )
    return SetOverSeeds(
        masks=swept[0].masks[1:],
        found=found,
        averages=tuple(
            mean_effect(next(iter(found)), of_mask, whole, labels, seed=seed)
            for of_mask, whole in zip(masked, intact, strict=True)
        ),
        examples=len(labels),
        tested=tests[0]['tested'],
        reached=np.array([each['reached'] for each in tests]),
        larger_class=tests[0]['larger_class'],
        p_learnt=np.array([each['p_learnt'] for each in tests]),
    )


def _draw_heads(result: AblationOverSeeds):
    found = result.sets['heads']
    first, shape = found.first, found.masks.shape[1:]
    seeds = first.seeds
    either = (seeds.holm <= LEVEL) | (seeds.max_t <= LEVEL)
    figure = plots.effects_over_seeds(
        100 * np.reshape(first.difference, shape),
        {
            first.names[index]: (
                100 * seeds.difference[:, index],
                100 * first.low[index],
                100 * first.high[index],
            )
            for index in first.extremes(_EXTREMES)
        },
        label=label_of(first),
        real=np.reshape(first.corrected <= LEVEL, shape),
        likely=np.reshape(either, shape),
    )
    figure.caption = (
        f'Score without each head less score with all, mean {result._over}. '
        'Filled circles: significant at 5 % for '
        f'{result.population}, by both corrections for all heads; open ones by one of them. '
        'Right: the greatest means with their 95 % intervals, and each fine-tuning. '
        f'{instead(result.baseline)}'
    )
    return figure


def _draw_layers(result: AblationOverSeeds):
    figure = draw_layers(result.sets['layers'].first)
    figure.caption = (
        f'Score without all heads of a layer less score with all, mean {result._over}; '
        f'lines are 95 % intervals for {result.population}. {instead(result.baseline)}'
    )
    return figure
