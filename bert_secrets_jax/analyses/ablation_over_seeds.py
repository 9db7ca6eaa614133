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
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.seeds import OverSeeds
from bert_secrets_jax.ablation.significance import LEVEL, Assessment
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.ablation import (
    SOURCE,
    assessed_metrics,
    colours_of,
    instead,
    named_masks,
    what_is_tested,
)
from bert_secrets_jax.analyses.learnt import learnt_nothing, not_learnt
from bert_secrets_jax.analyses.models import Models, all_models, check_alike, labels_of, seeds_of
from bert_secrets_jax.analyses.populations import (
    ANY_FINETUNING,
    ANY_FINETUNING_HERE,
    THIS_MODEL,
    population,
)
from bert_secrets_jax.analyses.tables import column_of
from bert_secrets_jax.analyses.verdicts.disabling import on_average, to_lose
from bert_secrets_jax.analyses.verdicts.verdict import Contrasts
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import TITLES, check_metrics
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

# The columns of a mask: in points, and as they are.
_POINTS = ('mean', 'spread', 'low', 'high', 'detectable')
_PLAIN = ('significant_share', 'p_value', 'holm', 'max_t')
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

    FORMAT: ClassVar[int] = 3

    masks: np.ndarray
    found: Mapping[str, OverSeeds]
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
    def first(self) -> OverSeeds:
        """The effects on the task's own metric."""
        return self.found[self.metric]

    @property
    def names(self) -> list[str]:
        """The name of the heads or the layer that each mask disables [M], such as 'L1-H2'."""
        return [mask_sets.describe(mask) for mask in self.masks]

    @property
    def significant(self) -> np.ndarray:
        """Which masks [M] are significant at 5 % for the population of the result.

        With several seeds, both corrections are required: Holm's, since the examples are a sample,
        and that by flips of seeds, since it asks for no normal distribution. With one seed it is
        Holm's alone.
        """
        by_holm = self.first.holm <= LEVEL
        return by_holm if len(self.reached) < 2 else by_holm & (self.first.max_t <= LEVEL)

    @property
    def average(self) -> Contrasts:
        """The mean effect over masks and seeds, in points (`verdicts.disabling.on_average`)."""
        return on_average(self.averages)

    def signed(self, chosen: np.ndarray) -> tuple[int, int]:
        """Return how many of the chosen masks [M] lower the score on average, and raise it."""
        mean = self.first.mean[chosen]
        return int((mean < 0).sum()), int((mean > 0).sum())


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class AblationOverSeeds(Result):
    """The effect of disabling each head or layer, over several fine-tunings of one recipe.

    Attributes:
      subject: The names of the model, the texts and the task.
      baseline: The behaviour of a disabled head, as in `ablation`.
      seeds: The seed of each fine-tuned model.
      sets: The effects of each set of masks, by the name of the set.
    """

    FORMAT: ClassVar[int] = 2

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
        heads, count = self.sets['heads'], len(self.seeds)
        texts = [
            f'{100 * heads.first.mean[index]:+.2f} points ({100 * heads.first.low[index]:+.2f} to '
            f'{100 * heads.first.high[index]:+.2f}, significant in '
            f'{round(count * heads.first.significant_share[index])} of {count} by themselves)'
            for index in range(len(heads.masks))
        ]
        name = f'{TITLES[heads.metric]} without it, over fine-tunings'
        return {name: np.reshape(texts, heads.masks.shape[1:])}

    def head_marks(self):
        if 'heads' not in self.sets:
            return []
        heads, (texts,) = self.sets['heads'], self.head_notes().values()
        return marks.of_effects(
            heads.first.mean,
            heads.significant,
            texts,
            what=f'{TITLES[heads.metric]} {self._over}',
            rank=marks.OVER_SEEDS,
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
        first, metric = found.first, TITLES[found.metric]
        finding = functools.partial(
            Finding,
            unit=f'points of {metric}',
            sample=len(self.seeds),
            sample_of='fine-tunings',
            source=SOURCE,
        )
        what = {'heads': 'heads', 'layers': 'layers'}.get(name, 'sets of heads')
        shared = {'metric': metric, 'what': what, 'tests': len(found.masks)}
        shared |= {'population': self.population, 'examples': found.examples}
        shared['over'] = self._over
        if len(found.masks) > 1:
            yield self._significant(name, found, finding, shared)
        if name != 'one_head_left' and not np.isnan(first.mean).all():
            extremes = [('best', np.nanargmax), ('worst', np.nanargmin)]
            for which, choose in extremes[: len(found.masks)]:
                yield self._extreme(name, which, int(choose(first.mean)), found, finding, shared)
        average, low, high = found.average.interval(0)
        if name == 'heads' and np.isfinite(high - low) and found.examples > 1:
            yield finding(
                name='heads over seeds: mean effect',
                estimate=average,
                low=low,
                high=high,
                null=0.0,
                template='Losing a random head changes {metric} by {estimate:+.2f} points on '
                'average {over} ({low:+.2f} to {high:+.2f} for {population}).',
                numbers=shared | {'population': found.average.population},
            )
        # With two or three seeds, it is more than a score can change.
        if (first.detectable < 1).all():
            yield self._detectable(name, found, finding, shared)
        if np.isfinite(first.agreement.rank):
            yield self._agreed(name, found, finding, shared)

    def _significant(self, name, found: SetOverSeeds, finding, shared) -> Finding:
        first = found.first
        down, up = found.signed(found.significant)
        return dataclasses.replace(
            finding(
                name=f'{name} over seeds: significantly needed',
                estimate=down,
                template=(
                    '{which} one at a time, {over} ({metric} with all heads '
                    '{baseline:.1f}{differs}), {examples:example|examples}: without it {metric} is '
                    'lower on average for {lower} and higher for {higher} of {tests} {what}; '
                    'significantly lower for {estimate:.0f} and higher for {up}, for {population}.'
                    '{how}'
                ),
                numbers=shared
                | {
                    'which': shared['what'].capitalize(),
                    'baseline': 100 * float(first.intact.mean()),
                    'differs': f' ± {100 * float(first.intact.std(ddof=1)):.1f}'
                    if len(self.seeds) > 1
                    else '',
                    'lower': int((first.mean < 0).sum()),
                    'higher': int((first.mean > 0).sum()),
                    'up': up,
                    'how': self._how(found),
                },
            ),
            unit=shared['what'],
        )

    def _how(self, found: SetOverSeeds) -> str:
        """Return what each correction finds, and what it cannot find with so few seeds."""
        if len(self.seeds) < 2:
            return ''
        first = found.first
        down, up = found.signed(first.holm <= LEVEL)
        by_holm = (
            f"Holm's correction alone, for {ANY_FINETUNING}, lower for {down} and higher for {up}"
        )
        if first.least_p > LEVEL:
            return (
                f' With {len(self.seeds)} seeds none can be: flips of their signs give no '
                f'corrected p below {first.least_p:.2g}, however great the effect (six seeds '
                f'or more can). By {by_holm}.'
            )
        down, up = found.signed(first.max_t <= LEVEL)
        return (
            f' By flips of seeds alone, for {ANY_FINETUNING_HERE}, lower for {down} and higher for '
            f'{up} (smallest possible corrected p {first.least_p:.2g}); by {by_holm}.'
        )

    def _extreme(self, name, which, index, found: SetOverSeeds, finding, shared) -> Finding:
        first, count = found.first, len(self.seeds)
        several = alone = ''
        if count > 1:
            effects = 100 * first.effects[:, index]
            several = (
                f'; {effects.min():+.2f} to {effects.max():+.2f} in single fine-tunings, spread '
                f'{100 * first.spread[index]:.2f} points'
            )
            times = round(count * float(first.significant_share[index]))
            alone = f', significant by itself in {times} of them'
        return finding(
            name=f'{name} over seeds: {which} to lose',
            estimate=100 * float(first.mean[index]),
            low=100 * float(first.low[index]),
            high=100 * float(first.high[index]),
            p=float(max(first.holm[index], first.max_t[index])),
            template=(
                '{words} {disabled} {over}: {estimate:+.2f} points of {metric} ({low:+.2f} to '
                '{high:+.2f} for {population}{several}){alone}. It is the extreme one of {tests}, '
                'and so flattered.'
            ),
            numbers=shared
            | {
                'words': to_lose(first.mean[index], best=which == 'best'),
                'disabled': found.names[index],
                'several': several,
                'alone': alone,
            },
        )

    def _detectable(self, name, found: SetOverSeeds, finding, shared) -> Finding:
        sizes = 100 * found.first.detectable
        return finding(
            name=f'{name} over seeds: smallest effect that can be found',
            estimate=float(np.nanmedian(sizes)),
            template=(
                "After Holm's correction for {tests} {what}, a mean effect must reach "
                '{estimate:.2f} points of {metric} to be significant, median over {what} '
                '({least:.2f} to {most:.2f}): smaller ones are missed.'
            ),
            numbers=shared | {'least': float(np.nanmin(sizes)), 'most': float(np.nanmax(sizes))},
        )

    def _agreed(self, name, found: SetOverSeeds, finding, shared) -> Finding:
        agreed, share = found.first.agreement, found.first.significant_share

        def between(low: float, high: float) -> str:
            return f' ({low:.2f} to {high:.2f})' if np.isfinite(low) else ''

        icc1 = between(agreed.icc1_low, agreed.icc1_high)
        icc3 = between(agreed.icc3_low, agreed.icc3_high)
        return dataclasses.replace(
            finding(
                name=f'{name} over seeds: agreement',
                estimate=agreed.rank,
                low=agreed.rank_low,
                high=agreed.rank_high,
                template=(
                    'Two fine-tunings agree on what the {tests} {what} do, on the same examples, '
                    'with a rank correlation of {estimate:.2f}{rank}; {icc1_name} is {icc1}, '
                    '{icc3_name} {icc3}. By {any:|itself|themselves}, {any} of the {what} '
                    '{any:|is|are} significant in some fine-tuning, {all} in each of the {sample}.'
                ),
                numbers=shared
                | {
                    'rank': between(agreed.rank_low, agreed.rank_high),
                    'icc1_name': 'ICC(1)',
                    'icc1': f'{agreed.icc1:.2f}{icc1}',
                    'icc3_name': 'ICC(3,1)',
                    'icc3': f'{agreed.icc3:.2f}{icc3}',
                    'any': int((share > 0).sum()),
                    'all': int((share == 1).sum()),
                },
            ),
            unit="Spearman's rank correlation",
        )

    def _frame(self, found: SetOverSeeds):
        rows = [
            (metric, *row) for metric, each in found.found.items() for row in _rows(found, each)
        ]
        colours = colours_of(found.masks, {'mean_points': _SURE}, by=('metric',))
        return framed(('metric', *_COLUMNS), rows, self._caption(), colours=colours)

    def _extremes(self, found: SetOverSeeds):
        rows = _rows(found, found.first)
        order = np.argsort(found.first.mean)[: np.isfinite(found.first.mean).sum()]
        shown = dict.fromkeys((*order[:5], *order[-5:]))
        return framed(
            _COLUMNS,
            [rows[index] for index in shown],
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
            (metric, disabled, seed, 100 * each.intact[place], 100 * each.effects[place, index])
            for metric, each in found.found.items()
            for index, disabled in enumerate(found.names)
            for place, seed in enumerate(self.seeds)
        ]
        return framed(
            ('metric', 'disabled', 'seed', 'intact_points', 'difference_points'),
            rows,
            'The difference in every fine-tuning.',
            colours=colours_of(found.masks, {'difference_points': ()}, by=('metric', 'seed')),
        )

    def _agreement(self):
        names = [field.name for field in dataclasses.fields(over_seeds.Agreement)]
        rows = [
            (name, metric, *(getattr(each.agreement, field) for field in names))
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
    found = {}
    for metric in metrics:
        alone = [
            significance.assess(metric, of_mask, whole, labels, seed=seed)
            for of_mask, whole in zip(masked, intact, strict=True)
        ]
        if len(alone) == 1:
            found[metric] = _of_one(alone[0])
            continue
        adjusted = np.stack([each.holm for each in alone])
        found[metric] = over_seeds.assess_seeds(metric, masked, intact, labels, adjusted=adjusted)
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


def _of_one(found: Assessment) -> OverSeeds:
    """Return the effects in a single model, as `ablation` has them."""
    unknown = np.full_like(found.difference, np.nan)
    effects = found.difference[None]
    return OverSeeds(
        intact=np.array([found.baseline_score]),
        effects=effects,
        mean=found.difference,
        spread=unknown,
        low=found.low,
        high=found.high,
        p_value=found.p_value,
        holm=found.holm,
        max_t=np.where(np.isnan(found.difference), np.nan, over_seeds.least_p(1)),
        least_p=over_seeds.least_p(1),
        significant_share=(found.holm <= LEVEL).astype(float),
        detectable=unknown,
        agreement=over_seeds.agreement(effects),
    )


_COLUMNS = (
    'disabled',
    *(f'{"least_significant" if name == "detectable" else name}_points' for name in _POINTS),
    *map(column_of, _PLAIN),
)
# How sure a mean is, which a page shows beside it.
_SURE = ('low_points', 'high_points', 'p_value', 'p_holm', 'p_max_t')


def _rows(found: SetOverSeeds, each: OverSeeds) -> list[tuple]:
    return [
        (
            disabled,
            *(100 * getattr(each, name)[index] for name in _POINTS),
            *(getattr(each, name)[index] for name in _PLAIN),
        )
        for index, disabled in enumerate(found.names)
    ]


def _draw_heads(result: AblationOverSeeds):
    found = result.sets['heads']
    first, shape = found.first, found.masks.shape[1:]
    order = np.argsort(first.mean)[: np.isfinite(first.mean).sum()]
    shown = dict.fromkeys((*order[:_EXTREMES], *order[-_EXTREMES:]))
    either = (first.holm <= LEVEL) | (first.max_t <= LEVEL)
    figure = plots.effects_over_seeds(
        100 * np.reshape(first.mean, shape),
        {
            found.names[index]: (
                100 * first.effects[:, index],
                100 * first.low[index],
                100 * first.high[index],
            )
            for index in shown
        },
        label=f'change of {TITLES[found.metric]} (points)',
        real=np.reshape(found.significant, shape),
        likely=np.reshape(either, shape),
    )
    figure.source = plots.Source('heads', 'mean_points', found.metric)
    figure.caption = (
        f'Score without each head less score with all, mean {result._over}. '
        'Filled circles: significant at 5 % for '
        f'{result.population}, by both corrections for all heads; open ones by one of them. '
        'Right: the greatest means with their 95 % intervals, and each fine-tuning. '
        f'{instead(result.baseline)}'
    )
    return figure


def _draw_layers(result: AblationOverSeeds):
    found = result.sets['layers']
    figure = plots.layer_effects(
        100 * found.first.mean,
        100 * found.first.low,
        100 * found.first.high,
        label=f'change of {TITLES[found.metric]} (points)',
    )
    figure.source = plots.Source('layers', 'mean_points', found.metric)
    figure.caption = (
        f'Score without all heads of a layer less score with all, mean {result._over}; '
        f'lines are 95 % intervals for {result.population}. {instead(result.baseline)}'
    )
    return figure
