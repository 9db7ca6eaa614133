"""How much of a head's importance is the harm of what replaces it (Li and Janson 2024).

The loss without each head is measured with five replacements of its output, of which the best
constant does the least harm. What is lost even then is what the head itself was good for.

The other four are the ways of disabling a head that are in use. What all of them say about a head
is said about the head.

Shapes: L layers, N heads, E examples, M masks (one per head), H width of a head.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import significance
from bert_secrets_jax.ablation.contexts import mean_contexts
from bert_secrets_jax.ablation.effects import LEVEL, Effects
from bert_secrets_jax.ablation.masks import describe, single_heads, with_intact
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common import models as arguments
from bert_secrets_jax.analyses.common.disabling import checked_metrics
from bert_secrets_jax.analyses.common.effects import (
    effect_of,
    frame_of_outcomes,
    harm_explained,
    loss_effects,
    notes_of,
    rows_of,
    sample_of,
    title_of,
)
from bert_secrets_jax.analyses.common.tables import grids_frame
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute, Encoding
from bert_secrets_jax.data.encoding import encode, with_labels
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.finetune.losses import losses_of, task_loss
from bert_secrets_jax.model.weights import check_whole
from bert_secrets_jax.paper import spearman
from bert_secrets_jax.pruning.constants import SETTLED, Constants, optimal_constants
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.cost import TRAINED, Costs
from bert_secrets_jax.runs.findings import how_many, measured
from bert_secrets_jax.runs.result import Finding, Result, drawn, framed

SOURCE = 'Li and Janson 2024, sections 2 and 3'
OPTIMAL = 'optimal'
REPLACEMENTS: Mapping[str, str] = {
    'zero': 'nothing',
    'uniform': 'its output under even attention',
    'mean': 'its mean output',
    'resample': 'its output on another text',
    OPTIMAL: 'the best constant',
}
# The ways of disabling a head.
DISABLING = tuple(name for name in REPLACEMENTS if name != OPTIMAL)
# The outcomes beside the score.
_OUTCOMES = 'discrimination', 'answers'
# So many heads are drawn, those with the most marks first, and so many named in a sentence.
_DRAWN, _NAMED = 40, 3
# The tokens of a batch from which constants are fitted.
_FITTING = 512


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Replacements(Result):
    """The effect on the loss of losing each head, by what replaces its output.

    Attributes:
      shape: The numbers of layers and heads.
      effects: The effects of the heads, by the name of the replacement.
      outcomes: The effects by each way of disabling heads and each outcome, the one that leads
        first and the score of the task last (see `ablation.outcomes`).
      means: The mean effect over all heads, with a mask for each replacement.
      constants: [L, N, H] The best constants.
      slope_left: [L, N] How steep the loss still is there (see `pruning.constants.Constants`).
      fitted_on: The number of examples that the constants and means come from.
      shared: How many of these have the same text as one of those that losses are measured on.
      own_harm: The share of the mean effect of removal that the best constant does not have, and
        the ends of its 95 % interval; None where removal does no significant harm on average.
    """

    title: ClassVar[str] = 'What replaces a head'
    FORMAT: ClassVar[int] = 7

    shape: tuple[int, int]
    effects: Mapping[str, Effects]
    outcomes: Mapping[tuple[str, str], Effects]
    means: Effects
    constants: Float[np.ndarray, 'L N H']
    slope_left: Float[np.ndarray, 'L N']
    fitted_on: int
    shared: int
    own_harm: tuple[float, float, float] | None

    def frames(self):
        means = rows_of(self.means, {'mean_effect': 'difference', 'low': 'low', 'high': 'high'})
        best = self.effects[OPTIMAL].difference
        outcomes = frame_of_outcomes(self.outcomes, 'heads', 'replacement', 'outcome')
        return {
            'outcomes': outcomes,
            'heads': grids_frame(
                {f'loss_{name}': each for name, each in self._grids.items()}
                | {'slope_left': self.slope_left},
                f'Change of the loss ({self._unit}) without each head, by what replaces it. '
                'A slope_left near zero means that no better constant is near.',
                red={(f'loss_{name}', ''): each.red for name, each in self.effects.items()},
            ),
            'replacements': framed(
                ('replacement', 'mean_effect', 'low', 'high', 'significantly_needed',
                 'significantly_harmful', 'rank_correlation_with_best_constant'),
                [
                    (*mean, *each.significant()[::-1], spearman(each.difference, best))
                    for mean, each in zip(means, self.effects.values(), strict=True)
                ],
                f'Mean effect over all heads ({self._unit}), and how many heads matter.',
            ),
        }  # fmt: skip

    def figures(self):
        return drawn(self, replacements=_draw, replacements_outcomes=_draw_signs)

    def findings(self):
        fields = {'source': SOURCE, 'where': '', 'null': 0.0}
        each = [
            effect_of(self.means, index, name=f'mean effect, with {name} instead', **fields)
            for index, name in enumerate(self.means.names)
        ]
        return [*self._harm_findings(), *self._standing(), *each]

    def notes(self):
        notes = [
            f'The best constants and the mean outputs come from {self._others}. Each head is '
            'replaced alone, at every token.',
            'Better constants than a gradient found would make the harm of replacements greater.',
        ]
        if self.shared:
            notes.append('Where these are the same, the best constant looks better than it is.')
        return notes

    def head_notes(self):
        return {
            f'loss with {REPLACEMENTS[name]} instead': notes_of(each, self.shape)
            for name, each in self.effects.items()
        }

    @property
    def _grids(self) -> dict[str, np.ndarray]:
        """The effects as grids of heads [L, N], by the name of the replacement."""
        return {
            name: np.reshape(each.difference, self.shape) for name, each in self.effects.items()
        }

    @property
    def signs(self) -> dict[str, np.ndarray]:
        """By outcome, whether a head is needed (-1) or better lost (1), or not significant (0).

        The arrays [M, 4] have a column for each of `DISABLING`. 'answers' that move count as -1.
        """
        found = {}
        for (_, outcome), each in self.outcomes.items():
            sign = np.sign(each.gain) * (each.corrected <= LEVEL)
            found.setdefault(outcome, []).append(sign.astype(int))
        return {name: np.stack(each, axis=1) for name, each in found.items()}

    def _standing(self) -> Iterator[Finding]:
        """Return how many heads are needed whatever disabling means, by each outcome."""
        for outcome, signs in self.signs.items():
            each, standing = self.outcomes[DISABLING[0], outcome], (signs == -1).all(axis=1)
            some = [each.names[at] for at in np.flatnonzero(standing).tolist()]
            which = f' ({", ".join(some)})' if len(some) <= _NAMED else ''
            one, many = ('moves', 'move') if each.outcome.counts_from else ('is', 'are')
            said = f'{{estimate}} {{unit}}{{which}} {{estimate:|{one}|{many}}}'
            needed = ' {outcome}' if each.outcome.counts_from else ' needed, by {outcome},'
            yield how_many(
                f'heads that stand under all ways of disabling, by {outcome}',
                standing,
                template=f'{said if some else f"No head {one}"}{needed} under all four ways of '
                'disabling heads.',
                numbers={'outcome': title_of(each), 'which': which},
                **sample_of(each, SOURCE),
            )

    @property
    def _others(self) -> str:
        return arguments.elsewhere(self.fitted_on, self.shared)

    @property
    def _unit(self) -> str:
        return self.effects[OPTIMAL].outcome.unit

    def _harm_findings(self) -> Iterator[Finding]:
        fields = {'sample': self.effects[OPTIMAL].sample, 'source': SOURCE}
        share = self.own_harm or (math.nan,) * 3
        if self.own_harm is None:
            said = 'Removal does no significant harm on average, so there is none to explain.'
        elif share[0] <= 0:
            said = 'The best constant does no less harm here than removal.'
        else:
            said = (
                '{estimate:.0f} % ({low:.0f} to {high:.0f}) of the mean harm of removal comes from '
                'the replacement, not from losing the head.'
            )
        yield measured(
            'harm of the replacement itself',
            [100 * each for each in share],
            unit='% of the mean effect of removal',
            template=said,
            **fields,
        )
        unsettled = self.slope_left > SETTLED
        if unsettled.any():
            yield how_many('best constants that are not quite found', unsettled, **fields)


def _cost(given) -> Costs:
    share = given.share('train', given['replacements.max_examples'])
    passes = TRAINED * given['replacements.passes'] * given.heads * share
    return given.ablated() | {'constants': given.over('train', passes, 20, 10)}


@analysis(
    question='what replaces a head: nothing, a mean, the best constant',
    group='What matters',
    report='name',
    inputs={
        'tuned': 'model',
        'examples': 'ablated',
        'fit_on': lambda given: given.drawn('train', 'replacements.max_examples'),
    },
    needs=('model', 'train'),
    cost=_cost,
)
def replacements(
    tuned: arguments.Models,
    examples: Sequence[Example],
    *,
    fit_on: Sequence[Example],
    passes: int = 10,
    learning_rate: float = 0.1,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Replacements:
    """Measure the loss without each head, with five replacements of its output.

    Args:
      tuned: The model, with a classifier or a regression. Of several, the first is used.
      examples: The labelled examples that losses are measured on.
      fit_on: Other labelled examples, from which the best constants and the mean outputs come.
      passes: The number of passes over these for the best constants; each takes as long as a
        gradient for every head. Heads that need it get up to four times as many.
      learning_rate: The size of the first steps (see `pruning.constants.optimal_constants`).
      seed: The seed of bootstraps, of the order of examples and of the other texts.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is out of range, the model has no classifier, an example has no
        fitting label, or there are fewer than two examples.
    """
    model = arguments.one_model(tuned)
    check_whole(model)
    examples, others = as_examples(examples), as_examples(fit_on)
    metric = checked_metrics(None, model.config, examples)[0]
    labels = arguments.labels_of(examples, model.config)
    their_labels = arguments.labels_of(others, model.config)
    # Small batches give more steps, and with all heads at once they are large enough.
    tokens = min(compute.tokens_per_batch, _FITTING)
    encoding: Encoding = {**compute.encoding, 'tokens_per_batch': tokens}
    batches = [
        with_labels(batch, their_labels) for batch in encode(model.tokenizer, others, **encoding)
    ]
    fit = functools.partial(
        optimal_constants,
        model,
        batches,
        task_loss,
        passes=passes,
        learning_rate=learning_rate,
        seed=seed,
        chunk_tokens=compute.chunk_tokens,
        mesh=compute.mesh,
    )
    key = repr(model.config), model.params, batches, (passes, learning_rate, seed)
    fitted = store.kept(compute.folder, key, Constants, fit)
    constants = fitted.of_heads()
    replaced = {'mean': mean_contexts(model, batches, mesh=compute.mesh), OPTIMAL: constants}
    masks = with_intact(single_heads(model.config))
    losses, outcomes = {}, {}
    shape, heads = masks.shape[1:], [describe(mask) for mask in masks[1:]]
    for name in REPLACEMENTS:
        swept = sweep_examples(
            model,
            examples,
            masks,
            baseline='mean' if name == OPTIMAL else name,
            replacement=replaced.get(name),
            donor_seed=seed,
            compute=compute,
        )
        losses[name] = losses_of(swept.logits, labels)
        if name in DISABLING:
            found = assess_outcomes([swept.logits], labels, names=heads, seed=seed)
            outcomes |= {(name, each): found[each] for each in _OUTCOMES if each in found}
            answers = swept.predictions[1:], swept.predictions[0], labels
            outcomes[name, metric] = significance.assess(metric, *answers, names=heads, seed=seed)
    assess = functools.partial(loss_effects, classes=model.config.num_labels, seed=seed)
    changes = {name: each[1:].mean(axis=0) - each[0] for name, each in losses.items()}
    intact = losses[OPTIMAL][0]
    means = np.stack([intact, *(intact + each for each in changes.values())])
    return Replacements(
        shape=shape,
        effects={name: assess(each, heads) for name, each in losses.items()},
        outcomes=outcomes,
        means=assess(means, list(REPLACEMENTS.values())),
        constants=constants,
        slope_left=np.reshape(fitted.slope_left, shape),
        fitted_on=len(others),
        shared=arguments.in_both(examples, others),
        own_harm=harm_explained(changes['zero'], changes[OPTIMAL]),
    )


def _draw(result: Replacements):
    red = max(each.red for each in result.effects.values())
    return plots.head_grids(
        {REPLACEMENTS[name]: each for name, each in result._grids.items()},
        label=f'change of the loss ({result._unit})',
        limits=(red, -red),
        differences=True,
    ).captioned(
        'Change of the loss without each head, by what replaces its output.',
        {REPLACEMENTS[name]: plots.Source('heads', f'loss_{name}') for name in result.effects},
    )


def _draw_signs(result: Replacements):
    signs = result.signs
    marks = np.concatenate(list(signs.values()), axis=1) != 0
    order = np.argsort(-marks.sum(axis=1), kind='stable')[:_DRAWN]
    shown = order[marks[order].any(axis=1)]
    names = np.array(next(iter(result.outcomes.values())).names)
    titles = {outcome: title_of(each) for (_, outcome), each in result.outcomes.items()}
    said = 'Heads that differ significantly, by what replaces them and what is measured.'
    if not len(shown):
        said = 'No head differs significantly, whatever replaces it.'
    if left := int(marks.any(axis=1).sum()) - len(shown):
        said += f' {left} more have fewer marks.'
    return plots.sign_panels(
        names[shown].tolist(),
        DISABLING,
        {titles[outcome]: each[shown] for outcome, each in signs.items()},
        names=('needed, or answers move', 'better lost'),
    ).captioned(f'{said} Each column is corrected for all heads.')
