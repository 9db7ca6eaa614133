"""The effect of disabling heads and layers in any fine-tuning of a recipe (section 4.6).

The paper disables the heads of one fine-tuned model. Another seed gives another model, which may
lean on other heads. Here the fine-tunings are a sample, and so are the examples.

Shapes: S seeds, M masks, L layers, N heads, E examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from bert_secrets_jax.analyses.common import disabling, effects, marks
from bert_secrets_jax.analyses.common.disabling import SOURCE, Ablated, Disabled, MaskSets
from bert_secrets_jax.analyses.common.inputs import Models, all_models, seeds_of, unless_noise
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import MASKS, Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.runs.result import framed, noted
from bert_secrets_jax.stats.effects import ANY_FINETUNING, THIS_MODEL, Agreement
from bert_secrets_jax.stats.seeds import as_one_seed
from bert_secrets_jax.stats.student import LEVEL

_COLUMNS = {
    'mean_points': 'difference',
    'spread_points': 'seeds.spread',
    'low_points': 'low',
    'high_points': 'high',
    'least_significant_points': 'critical',
    'significant_share': 'seeds.significant_share',
    **effects.NEEDED_IN,
    'p_value': 'p_value',
    'p_holm': 'seeds.holm',
    'p_max_t': 'seeds.max_t',
    'p_beyond': 'p_beyond',
    'verdict': 'verdict',
}


class AblationOverSeeds(Disabled):
    """The effect of disabling each head or layer, over several fine-tunings of one recipe.

    Attributes:
      baseline, sets: As in `common.disabling.Disabled`.
      seeds: The seed of each fine-tuned model.
    """

    title = 'Disabling heads and layers, over fine-tunings'

    seeds: tuple[int, ...]

    rank: ClassVar[int] = marks.OVER_SEEDS

    @property
    def population(self) -> str:
        """The population of the means, their intervals and what is significant."""
        return THIS_MODEL if len(self.seeds) < 2 else ANY_FINETUNING

    @property
    def over(self) -> str:
        count = len(self.seeds)
        return f'over {count} fine-tunings' if count > 1 else 'in one fine-tuning'

    def figures(self):
        draw = {'told_apart': Disabled.told_apart, 'effects': _draw}
        return effects.drawn_sets(self, self.sets, **draw)

    def findings(self):
        first = next(iter(self.sets.values()))
        found = first.warnings(*(f'the model of seed {seed}' for seed in self.seeds))
        for name, each in self.sets.items():
            of: dict[str, Any] = {'source': SOURCE, 'name': f'{name} over seeds'}
            extremes = name != 'one_head_left'
            if extremes:
                found += effects.findings_of_outcomes(each.outcomes, name, **of)
            found += effects.findings_of(each.found, name, extremes=extremes, **of)
        when = f'with all heads, mean {self.over}'
        return unless_noise([*found, effects.intact_of(first.found, source=SOURCE, when=when)])

    def notes(self):
        tests = 'Significant effects pass two tests: one takes the fine-tunings as a sample, the '
        tests += 'other the examples, too. They hold on average or in most fine-tunings.'
        return [
            f'{self.meaning} Intervals are for {self.population}.',
            *noted({tests: len(self.seeds) > 1}),
        ]

    def gives(self):
        return {'disabled over seeds': self}


def _needs(given) -> str:
    several = len(given.study.ablated_seeds) > 1
    return (
        '' if several else 'several fine-tuned models (settings train.num_seeds and ablation.seeds)'
    )


@analysis(
    question='the same in several fine-tunings: what holds for any of them',
    group='What matters',
    section='ablate_seeds',
    reads=('ablation.',),
    inputs={
        'tuned': 'models',
        'examples': 'ablated',
        'masks': disabling.masks_of_run,
        'baseline': 'ablation.baseline',
    },
    needs=('tuned_here', _needs),
    check=disabling.check_disabling,
    cost=lambda given: disabling.swept_cost(given, len(given.study.ablated_seeds)),
    shares=True,
    axis=MASKS,
)
def ablation_over_seeds(
    tuned: Models,
    examples: Sequence[Example],
    *,
    masks: MaskSets = 'heads',
    baseline: str = 'uniform',
    metrics: Sequence[str] | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> AblationOverSeeds:
    """Disable heads in every fine-tuned model, and tell what holds for any fine-tuning alike.

    Args:
      tuned: The models, fine-tuned by one recipe with seeds of their own. At least six are needed
        for anything to be significant by flips of seeds. With one, the effects, intervals and
        p-values are those of `ablation`.
      examples: The labelled texts.
      masks, baseline, metrics: As in `ablation`, but the mean of 'mean' is that over the examples.
      seed: The seed of resamples and the randomization test of each model, and of donors.
      compute: As in `ablation`.

    Raises:
      TypeError, ValueError: As in `ablation`; or the models differ in their layers, heads or
        classes.
    """
    models = all_models(tuned)
    how = {'metrics': metrics, 'seed': seed, 'compute': compute}
    sets = disabling.assess_sets(models, examples, masks, baseline=baseline, **how)
    for name, found in sets.items() if len(models) == 1 else ():
        of_one = {
            field: {key: as_one_seed(each) for key, each in getattr(found, field).items()}
            for field in ('assessed', 'outcomes')
        }
        sets[name] = dataclasses.replace(found, **of_one)
    return labelled(AblationOverSeeds(baseline, sets, seeds_of(tuned)))


def _draw(result: AblationOverSeeds, name: str):
    caption = f'Change of the score without {effects.WITHOUT[name]}, mean {result.over}.'
    return result.of_score(name, caption, column='mean_points')


def labelled(found: AblationOverSeeds) -> AblationOverSeeds:
    """Return the result with the tables of each set, by seed, and of their agreement."""
    caption = f'Change of the score {found.over}: mean, spread and interval.'
    frames = {}
    for name, each in found.sets.items():
        frames[name] = effects.frame_of(each.assessed, _COLUMNS, caption, 'metric')
        frames[f'{name}_outcomes'] = effects.frame_of_outcomes(each.outcomes, name)
    if 'heads' in found.sets:
        frames['heads_extremes'] = effects.extremes_of(found.sets['heads'].found, _COLUMNS)
    if len(found.seeds) > 1:
        frames['agreement'] = framed(
            ('masks', 'outcome', *(field.name for field in dataclasses.fields(Agreement))),
            [
                (name, outcome, *dataclasses.astuple(each.seeds.agreement))
                for name, ablated in found.sets.items()
                for outcome, each in ablated.every.items()
                if each.seeds is not None
            ],
            'How far two fine-tunings agree: rank correlation, two intraclass correlations '
            '(ICC), and the rank correlation without the noise of examples.',
        )
    frames |= {f'{name}_by_seed': _by_seed(each, found.seeds) for name, each in found.sets.items()}
    tests = next(iter(found.sets.values())).learnt
    of_seed = {seed: test[-1] <= LEVEL for seed, test in zip(found.seeds, tests, strict=True)}
    for frame in frames.values():
        frame['learnt'] = frame['seed'].map(of_seed.get) if 'seed' in frame else found.learnt
    return found.with_frames(frames)


def _by_seed(ablated: Ablated, seeds: Sequence[int]):
    rows = [
        (metric, disabled, seed, each.outcome.scale * intact, each.outcome.scale * change)
        for metric, each in ablated.every.items()
        if each.seeds is not None
        for disabled, changes in zip(each.names, each.seeds.difference.T, strict=True)
        for seed, intact, change in zip(seeds, each.seeds.intact, changes, strict=True)
    ]
    coloured = {'change': 'difference'}
    return framed(
        ('outcome', 'disabled', 'seed', 'intact', 'change'),
        rows,
        'The change in every fine-tuning: scores in points, others in their units.',
        colours=effects.colours_of(ablated.every, coloured, by=('outcome', 'seed')),
    )
