"""The effect of disabling heads and layers in any fine-tuning of a recipe (section 4.6).

The paper disables the heads of one fine-tuned model. Another seed gives another model, which may
lean on other heads. Here the fine-tunings are a sample, and so are the examples.

Shapes: S seeds, M masks, L layers, N heads, E examples.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation.effects import Agreement
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.seeds import as_one_seed, least_p
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.ablation import (
    NAMES,
    SOURCE,
    Ablated,
    assess,
    assessed_metrics,
    instead,
    named_masks,
)
from bert_secrets_jax.analyses.effects import (
    colours_of,
    draw_heads,
    draw_layers,
    extremes_of,
    findings_of,
    frame_of,
    intact_of,
    notes_of,
    title_of,
)
from bert_secrets_jax.analyses.models import Models, all_models, check_alike, labels_of, seeds_of
from bert_secrets_jax.analyses.populations import (
    ANY_FINETUNING,
    ANY_FINETUNING_HERE,
    THIS_MODEL,
    population,
)
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import check_metrics
from bert_secrets_jax.runs.result import Figures, Result, Subject, framed

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


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class AblationOverSeeds(Result):
    """The effect of disabling each head or layer, over several fine-tunings of one recipe.

    Attributes:
      subject: The names of the model, the texts and the task.
      baseline: The behaviour of a disabled head, as in `ablation`.
      seeds: The seed of each fine-tuned model.
      sets: The effects of each set of masks, by the name of the set.
    """

    title: ClassVar[str] = 'Disabling heads and layers, over fine-tunings'
    FORMAT: ClassVar[int] = 4

    subject: Subject
    baseline: str
    seeds: tuple[int, ...]
    sets: Mapping[str, Ablated]

    @property
    def population(self) -> str:
        """The population of the means, their intervals and what is significant."""
        return THIS_MODEL if len(self.seeds) < 2 else ANY_FINETUNING

    @property
    def _over(self) -> str:
        count = len(self.seeds)
        return f'over {count} fine-tunings' if count > 1 else 'in one fine-tuning'

    def frames(self):
        caption = self._caption()
        frames = {
            name: frame_of(each.assessed, _COLUMNS, caption, key='metric')
            for name, each in self.sets.items()
        }
        if 'heads' in self.sets:
            frames['heads_extremes'] = extremes_of(self.sets['heads'].found, _COLUMNS)
        if len(self.seeds) > 1:
            frames['agreement'] = self._agreement()
        frames |= {f'{name}_by_seed': self._by_seed(each) for name, each in self.sets.items()}
        return frames

    def figures(self):
        drawings = {'heads': self._draw_heads, 'layers': self._draw_layers}
        return Figures({name: draw for name, draw in drawings.items() if name in self.sets})

    def findings(self):
        first = next(iter(self.sets.values()))
        found = first.warnings(*(f'with seed {seed}, the fine-tuned model' for seed in self.seeds))
        for name, each in self.sets.items():
            found += findings_of(
                each.found,
                name=f'{name} over seeds',
                what=NAMES.get(name, 'sets of heads'),
                source=SOURCE,
                extremes=name != 'one_head_left',
            )
            if name == 'heads' and not np.isnan(each.found.difference).all():
                found.append(each.mean_of_heads('heads over seeds: mean effect'))
        name = f'{title_of(first.found)} with all heads, mean {self._over}'
        return [*found, intact_of(first.found, name=name, source=SOURCE)]

    def notes(self):
        notes = [
            f'{instead(self.baseline)} Intervals and significance are for '
            f'{population(len(self.seeds))}.'
        ]
        if len(self.seeds) > 1:
            notes.append(
                'Significant is what two corrections find. Flips of the signs of seeds ask for no '
                f"distribution, for {ANY_FINETUNING_HERE}. Holm's takes effects over seeds to be "
                'about normal, and counts examples as a sample.'
            )
        return notes

    def head_notes(self):
        if 'heads' not in self.sets:
            return {}
        heads = self.sets['heads']
        name = f'{title_of(heads.found)} without it, over fine-tunings'
        return {name: notes_of(heads.found, heads.shape)}

    def head_marks(self):
        if 'heads' not in self.sets:
            return []
        heads = self.sets['heads']
        what = f'{title_of(heads.found)} {self._over}'
        return marks.mark_effects(heads.found, heads.shape, rank=marks.OVER_SEEDS, what=what)

    def _caption(self) -> str:
        flips = least_p(len(self.seeds))
        return (
            f'Change of the score without what is disabled: mean {self._over}, spread, and 95 % '
            f'interval. Flips of seeds give a p_max_t of at least {flips:.2g}. '
            f'{instead(self.baseline)}'
        )

    def _by_seed(self, ablated: Ablated):
        rows = [
            (
                metric,
                disabled,
                seed,
                100 * each.seeds.intact[place],
                100 * each.seeds.difference[place, index],
            )
            for metric, each in ablated.assessed.items()
            for index, disabled in enumerate(each.names)
            for place, seed in enumerate(self.seeds)
        ]
        return framed(
            ('metric', 'disabled', 'seed', 'intact_points', 'difference_points'),
            rows,
            'The difference in every fine-tuning.',
            colours=colours_of(
                ablated.found, {'difference_points': 'difference'}, by=('metric', 'seed')
            ),
        )

    def _agreement(self):
        names = [field.name for field in dataclasses.fields(Agreement)]
        rows = [
            (name, metric, *dataclasses.astuple(each.seeds.agreement))
            for name, ablated in self.sets.items()
            for metric, each in ablated.assessed.items()
        ]
        return framed(
            ('masks', 'metric', *names),
            rows,
            'Agreement of two fine-tunings: mean rank correlation, ICC(1) and ICC(3,1), with 95 % '
            'intervals over seeds.',
        )

    def _draw_heads(self):
        heads = self.sets['heads']
        caption = f'Score without each head less score with all, mean {self._over}.'
        source = plots.Source('heads', 'mean_points', heads.metric)
        return draw_heads(heads.found, heads.shape, f'{caption} {instead(self.baseline)}', source)

    def _draw_layers(self):
        caption = f'Score without all heads of a layer less score with all, mean {self._over}.'
        layers = self.sets['layers']
        source = plots.Source('layers', 'mean_points', layers.metric)
        return draw_layers(layers.found, f'{caption} {instead(self.baseline)}', source)


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
        ablated = assess(swept, labels, metrics, seed=seed)
        if len(models) == 1:
            alone = {metric: as_one_seed(each) for metric, each in ablated.assessed.items()}
            ablated = dataclasses.replace(ablated, assessed=alone)
        sets[name] = ablated
    return AblationOverSeeds(subject, baseline, seeds_of(tuned), sets)
