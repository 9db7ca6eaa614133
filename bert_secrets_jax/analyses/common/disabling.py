"""Disabling heads: one engine for one model or several, and its masks, metrics and costs.

Shapes: M masks, L layers, N heads, S models, E examples.
"""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation.contexts import mean_contexts
from bert_secrets_jax.ablation.masks import parse_heads, with_intact
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.common import effects, marks
from bert_secrets_jax.analyses.common.inputs import (
    Learnt,
    check_alike,
    check_several,
    if_not_learnt,
    labels_of,
    learning_test,
)
from bert_secrets_jax.checks import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Example, Text
from bert_secrets_jax.finetune.metrics import check_metrics, metrics_for
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.call import Call, call
from bert_secrets_jax.runs.result import Finding, Result
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.influence import MeanEffect, mean_effect
from bert_secrets_jax.stats.seeds import assess_seeds
from bert_secrets_jax.stats.significance import Answers, ChosenElsewhere, SelectedGain

SOURCE = 'Kovaleva et al. 2019, section 4.6'
# Names of sets of masks, or masks [M, L, N] of your own by the names of their sets.
MaskSets = str | Sequence[str] | Mapping[str, np.ndarray]
# The functions that make the sets of masks, by the names that `ablation` takes.
SETS = {
    'heads': mask_sets.single_heads,
    'layers': mask_sets.single_layers,
    'one_head_left': mask_sets.one_head_left,
}
# Descriptions of a disabled head's behaviour, by the baseline.
_INSTEAD = {
    'uniform': 'attends to all tokens alike',
    'zero': 'attends to nothing',
    'mean': 'puts out its mean output over {corpus}',
    'resample': 'puts out its output on another of these texts, of like length',
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Ablated:
    """The comparison of a set of masks with the intact models: one, or several of one recipe.

    Attributes:
      masks: [M, L, N] The masks, which are 0 at a disabled head.
      assessed: The effects of the masks, by the name of the metric; the task's own comes first.
      outcomes: The effects by what sees more than a score (see `ablation.outcomes`); the first
        leads.
      averages: The effect on that metric in each model, on average over the masks.
      learnt: The test of whether each model has learnt anything (see `analyses.common.inputs`).
      gain: The gain of the best mask on the task's own metric, with and without the luck of being
        chosen; None over several models.
      elsewhere: The gain here of the mask that is best on other examples; None without others.
    """

    masks: np.ndarray
    assessed: Mapping[str, Effects]
    outcomes: Mapping[str, Effects]
    averages: tuple[MeanEffect, ...]
    learnt: tuple[Learnt, ...]
    gain: SelectedGain | None = None
    elsewhere: ChosenElsewhere | None = None

    @property
    def metric(self) -> str:
        """The name of the task's own metric."""
        return next(iter(self.assessed))

    @property
    def found(self) -> Effects:
        """The effects on the task's own metric."""
        return self.assessed[self.metric]

    @property
    def every(self) -> dict[str, Effects]:
        """The effects on scores and on all other outcomes."""
        return {**self.assessed, **self.outcomes}

    @property
    def lead(self) -> Effects:
        """The effects on how well the model tells the texts apart."""
        return next(iter(self.outcomes.values()))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of layers and heads."""
        return self.masks.shape[1:]

    def warnings(self, *names: str) -> list[Finding]:
        """Return the warning about the first of the models, so named, that has learnt nothing."""
        examples = self.averages[0].examples
        tests = zip(names, self.learnt, strict=True)
        return [each for of in tests for each in if_not_learnt(*of, examples)][:1]


class Disabled(Result):
    """The effect on the score of disabling heads, on one model or over fine-tunings of one recipe.

    Attributes:
      baseline: The behaviour of a disabled head: 'uniform', 'zero', 'mean' or 'resample'.
      sets: The effects of each set of masks, by the name of the set.
    """

    baseline: str
    sets: Mapping[str, Ablated]

    # The place of its marks among those of other results.
    rank: ClassVar[int] = marks.ONE_MODEL

    @property
    def learnt(self) -> bool:
        """Whether every intact model has learnt something (a p-value of at most 0.05)."""
        first = next(iter(self.sets.values()))
        return not first.warnings(*[''] * len(first.learnt))

    @property
    def over(self) -> str:
        """Over how many fine-tunings means are, as words; empty for one model."""
        return ''

    @property
    def meaning(self) -> str:
        """A sentence that says what a disabled head does."""
        return instead(self.baseline)

    def head_marks(self):
        heads = self.sets.get('heads')
        if heads is None:
            return []
        return [
            mark
            for each in (heads.lead, heads.found)
            for mark in marks.mark_effects(
                each,
                heads.shape,
                rank=self.rank,
                what=f'{effects.title_of(each)} {self.over}'.strip(),
            )
        ]

    def of_score(self, name: str, caption: str, **how: Any) -> 'plots.Figure':
        """Draw the effects of a set on the score (`draw_effects`)."""
        ablated = self.sets[name]
        given = ablated.found, ablated.shape, caption, ablated.metric
        return effects.draw_effects(name, *given, **how)

    def told_apart(self, name: str) -> 'plots.Figure':
        """Draw how much worse texts are told apart without each head, or without each layer."""
        ablated, over = self.sets[name], f' ({self.over})' if self.over else ''
        return effects.draw_outcome(name, ablated.lead, ablated.shape, over)


def masks_of_run(given) -> Any:
    """Return the masks that the settings name: names of sets, or masks by their names."""
    sets, heads = tuple(given['ablation.sets']), parse_heads(given['ablation.together'])
    if not heads:
        return sets[0] if len(sets) == 1 else sets
    config = Call(operator.attrgetter('config'), (given.input('pretrained'),))
    masks = {name: call(SETS[name], config) for name in sets}
    return masks | {'together': call(mask_sets.disable, config, [heads])}


def check_disabling(given) -> None:
    """Refuse settings that disable nothing, heads that do not exist, and too few texts."""
    sets, heads = given['ablation.sets'], parse_heads(given['ablation.together'])
    choose = given['ablation.choose_examples']
    if not (sets or heads):
        raise ValueError('Nothing to ablate: give ablation.sets, or heads in ablation.together.')
    if heads:
        mask_sets.disable(given.value('pretrained').config, [heads])
    if choose and set(sets) <= {'one_head_left'}:
        raise ValueError(
            f'ablation.choose_examples={choose} chooses the best head or layer to '
            'lose, and neither is disabled here: set it to 0, or give ablation.sets more.'
        )
    # Intervals need two, and so do outputs on other texts.
    check_several(given.value('ablated'))


def swept_cost(given, seeds: int) -> float:
    """Return the work of sweeps over the models of so many seeds."""
    return seeds * passes_without(given, given['ablation.sets']) * given.tokens('ablated')


def passes_without(given, sets: Sequence[str] = ('heads', 'layers')) -> float:
    """Return the passes over the texts that take as long as sets of masks."""
    heads = given.HEAD * given.heads
    of_sets = {'heads': heads, 'layers': given.MANY * given.layers, 'one_head_left': heads}
    return math.fsum(of_sets[name] for name in sets)


def assessed_metrics(classes: int, examples: Sequence[Example]) -> tuple[str, ...]:
    """Return the metrics that `ablation` compares by default: `metrics_for` but Spearman's.

    Tasks that have it have Pearson's, too.
    """
    return tuple(name for name in metrics_for(classes, examples) if name != 'spearman')


def checked_metrics(
    metrics: Sequence[str] | None, config: BertConfig, examples: Sequence[Any]
) -> Sequence[str]:
    """Return metrics, by default `assessed_metrics`, of a task that the model has.

    ValueError for another task, and for fewer examples than an interval needs.
    """
    check_several(examples)
    metrics = metrics or assessed_metrics(config.num_labels, examples)
    check_metrics(metrics, config.num_labels)
    return metrics


def named_masks(masks: MaskSets, config: BertConfig) -> dict[str, np.ndarray]:
    """Return the masks [M, L, N] of each set that `ablation` is given; ValueError if unknown."""
    if isinstance(masks, Mapping):
        return {name: np.asarray(each, np.float32) for name, each in masks.items()}
    names = [masks] if isinstance(masks, str) else list(masks)
    if not names:
        raise ValueError(
            f'{masks=} names no set: give some of {", ".join(SETS)}, or your own masks.'
        )
    for name in names:
        check_name('masks', name, SETS)
    return {name: SETS[name](config) for name in names}


def instead(baseline: str, corpus: str = 'these texts') -> str:
    """Return a sentence on what a disabled head does; the mean output is over the corpus."""
    return f'A disabled head {_INSTEAD[baseline].format(corpus=corpus)}.'


def assess_sets(
    models: Sequence[Pretrained],
    examples: Sequence[Example],
    masks: MaskSets,
    *,
    baseline: str,
    metrics: Sequence[str] | None,
    seed: int,
    compute: Compute,
    corpus: Sequence[Text] | None = None,
    choose_on: Sequence[Example] | None = None,
) -> dict[str, Ablated]:
    """Disable each set in one model, or in several of one recipe, and compare it with them intact.

    Arguments and errors are those of `ablation`.
    """
    check_baseline(baseline)
    config = models[0].config
    labels = labels_of(examples, config)
    metrics, chosen = checked_metrics(metrics, config, examples), named_masks(masks, config)
    check_alike(models)
    # The sets whose best mask is looked for elsewhere.
    several, labels_elsewhere = set(), labels
    if choose_on is not None:
        here = {example.texts for example in examples}
        for example in choose_on:
            if example.texts in here:
                raise ValueError(
                    f'The text of {example.place or example.text_a!r} is among the examples and in '
                    'choose_on: give choose_on other texts.'
                )
        labels_elsewhere = labels_of(choose_on, config)
        several = {name for name, each in chosen.items() if len(each) > 1} - {'one_head_left'}
        if not several:
            raise ValueError('choose_on chooses the best of several masks, and no set has several.')
    how: list[dict[str, Any]] = []
    for model in models:
        how.append({'baseline': baseline, 'donor_seed': seed, 'compute': compute})
        if baseline == 'mean':
            texts = examples if corpus is None else corpus
            batches = encode(model.tokenizer, texts, **compute.encoding)
            how[-1]['replacement'] = mean_contexts(model, batches, mesh=compute.mesh)
    sets = {}
    for name, each in chosen.items():
        every, swept = with_intact(each), []
        for place, model in enumerate(models):
            if len(models) > 1:
                logging.info('Fine-tuning %d of %d: %s', place + 1, len(models), name)
            swept.append(sweep_examples(model, examples, every, **how[place]))
        sets[name] = assess(swept, labels, metrics, seed=seed)
        if choose_on is not None and name in several:
            there = sweep_examples(models[0], choose_on, every, **how[0])
            answers = [
                Answers(found.predictions[1:], found.predictions[0], true)
                for found, true in ((there, labels_elsewhere), (swept[0], labels))
            ]
            gain = significance.gain_of_choice(metrics[0], *answers)
            sets[name] = dataclasses.replace(sets[name], elsewhere=gain)
    return sets


def assess(
    swept: Sequence[Swept], labels: np.ndarray, metrics: Sequence[str], *, seed: int
) -> Ablated:
    """Compare each mask with the intact model, on one model or over several of one recipe.

    In each sweep, the first mask keeps all heads. The first metric is the task's own.
    """
    masks, classes = swept[0].masks[1:], swept[0].logits.shape[-1]
    predictions = np.stack([each.predictions for each in swept])  # [S, 1 + M, E]
    intact, masked = predictions[:, 0], predictions[:, 1:]
    models = list(zip(masked, intact, strict=True))
    names, first, assessed = [mask_sets.describe(mask) for mask in masks], metrics[0], {}
    for metric in metrics:
        alone = [
            significance.assess(metric, *of_model, labels, names=names, seed=seed)
            for of_model in models
        ]
        several = len(alone) > 1
        assessed[metric] = assess_seeds(alone, masked, intact, labels) if several else alone[0]
    gain = None
    if len(models) == 1:
        gain = significance.selected_gain(first, *models[0], labels, seed=seed)
    return Ablated(
        masks=masks,
        assessed=assessed,
        outcomes=assess_outcomes([each.logits for each in swept], labels, names=names, seed=seed),
        averages=tuple(mean_effect(first, *of_model, labels) for of_model in models),
        learnt=tuple(learning_test(metrics, classes, each, labels) for each in intact),
        gain=gain,
    )


class EmbeddingEffects(Result):
    """The effects of disabling heads and layers on what embeddings are good for.

    Attributes:
      baseline, sides: As in `similarity`.
      shape: The numbers of layers and heads.
      outcomes: By the name of the set of masks, the effects by outcome. The first is drawn.
    """

    source: ClassVar[str]

    baseline: str
    sides: str
    shape: tuple[int, int]
    outcomes: Mapping[str, Mapping[str, Effects]]

    def figures(self):
        return effects.drawn_sets(self, self.outcomes, effects=_draw_leading)

    def findings(self):
        found = []
        for name, outcomes in self.outcomes.items():
            found += effects.findings_of_outcomes(outcomes, name, source=self.source)
        for each in next(iter(self.outcomes.values())).values():
            # An outcome that grows is 0 for the intact model, by its definition.
            if not each.outcome.grows:
                found.append(effects.intact_of(each, source=self.source))
        return found

    def head_marks(self):
        if 'heads' not in self.outcomes:
            return []
        leading = next(iter(self.outcomes['heads'].values()))
        return marks.mark_effects(leading, self.shape, rank=marks.SIMILARITY)


def outcome_frames(outcomes: Mapping[str, Mapping[str, Effects]]):
    """Return the frames of effects by outcome, by the name of the set of masks."""
    return {name: effects.frame_of_outcomes(each, name) for name, each in outcomes.items()}


def embedded_cost(given, *texts: Any) -> float:
    """Return the work of embeddings without each head and each layer; `texts` as in `tokens`."""
    return passes_without(given) * given.tokens(*texts)


def _draw_leading(result: EmbeddingEffects, name: str):
    outcome, leading = next(iter(result.outcomes[name].items()))
    caption = f'Change of {effects.title_of(leading)} without {effects.WITHOUT[name]}.'
    return effects.draw_effects(name, leading, result.shape, caption, outcome)
