"""Which heads the model needs as it is: the loss of a masked LM without each head or layer.

No labels and no fine-tuning are needed. Some wordpieces of each text are hidden, the same under all
masks, and the model is asked for them.

Shapes: M masks, L layers, N heads, E texts.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation import masks as mask_sets
from bert_secrets_jax.ablation.masked_lm import (
    FEW,
    LossEffects,
    MaskedLosses,
    assess_losses,
    check_masked_lm,
    masked_lm_losses,
)
from bert_secrets_jax.ablation.significance import LEVEL, POWER
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.ablation import colours_of, instead, named_masks
from bert_secrets_jax.analyses.models import one_model
from bert_secrets_jax.analyses.tables import column_of
from bert_secrets_jax.analyses.verdicts.disabling import to_lose
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.weights import Pretrained, with_masked_lm
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

SOURCE = 'masked language modelling, Devlin et al. 2019, section 3.1'
# The parts that are disabled by default.
DISABLED = ('heads', 'layers')
_WHEN = {'before': 'as it is', 'after': 'after fine-tuning'}
_UNIT = 'nats per hidden wordpiece'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class LossAblated:
    """The effect of a set of masks on the loss.

    Attributes:
      masks: [M, L, N] The masks, which are 0 at a disabled head.
      effects: The change of the loss under each of them.
    """

    masks: np.ndarray
    effects: LossEffects

    @property
    def names(self) -> list[str]:
        """The name of the heads or the layer that each mask disables [M], such as 'L1-H2'."""
        return [mask_sets.describe(mask) for mask in self.masks]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class MaskedLMAblation(Result):
    """The effect of disabling each head and each layer on the loss of a masked LM.

    Attributes:
      subject: The names of the model and the texts.
      baseline: The behaviour of a disabled head, as in `ablation`.
      masking: Which wordpieces are hidden.
      before: The effects of each set of masks on the model as it is, by the name of the set.
      after: The same after fine-tuning, with the head that the model had before; empty without a
        fine-tuned model.
      tuning: The loss after fine-tuning compared with that before; None without such a model.
    """

    subject: Subject
    baseline: str
    masking: Masking
    before: Mapping[str, LossAblated]
    after: Mapping[str, LossAblated] = dataclasses.field(default_factory=dict)
    tuning: LossEffects | None = None

    FORMAT: ClassVar[int] = 1

    @property
    def title(self) -> str:
        return 'Heads that the masked LM needs'

    def frames(self):
        return {
            name: framed(
                ('model', 'disabled', *map(column_of, _COLUMNS)),
                [
                    (when, disabled, *(_value(each.effects, column, row) for column in _COLUMNS))
                    for when, each in self._models(name)
                    for row, disabled in enumerate(each.names)
                ],
                'Loss in nats per hidden wordpiece without what is disabled, and that loss less '
                'the loss with all heads (above 0, it was of use); low and high are the 95 % '
                'interval of the difference over texts. p_max_t is the p-value after correction '
                f'for all (max-T), and a difference of detectable is found with a probability of '
                f'{POWER:.0%}. {self._hidden} {instead(self.baseline)}',
                colours=colours_of(
                    self.before[name].masks, {'loss': (), 'difference': _SURE}, by=('model',)
                ),
            )
            for name in self.before
        }

    def figures(self):
        drawings = {
            _figure_name(name, when): functools.partial(_draw, self, name, when)
            for name in self.before
            for when, _ in self._models(name)
            if name in _DRAWN
        }
        return Figures(drawings)

    def findings(self):
        found = [
            finding
            for name in self.before
            for when, each in self._models(name)
            for finding in self._of_set(name, when, each)
        ]
        return [*found, *self._of_tuning()]

    def notes(self):
        said = [
            f'{self._hidden} {instead(self.baseline)} Intervals are paired by text. They are about '
            'texts like these: other texts may need other heads.'
        ]
        texts = next(iter(self.before.values())).effects.texts
        if texts < FEW:
            said.append(
                f'There are only {texts} texts: intervals over fewer than {FEW} are a little too '
                'narrow where changes are skewed.'
            )
        return said

    def head_notes(self):
        return {
            f'loss without it, {_WHEN[when]} (nats)': np.reshape(
                [_effect(each.effects, row) for row in range(len(each.masks))],
                each.masks.shape[1:],
            )
            for when, each in self._models('heads')
        }

    def head_marks(self):
        if 'heads' not in self.before:
            return []
        effects, texts = self.before['heads'].effects, next(iter(self.head_notes().values()))
        # The loss is lower where a model is better.
        return marks.of_effects(
            -effects.difference,
            effects.corrected <= LEVEL,
            texts,
            what='the loss of the masked LM',
            rank=marks.MASKED_LM,
        )

    @property
    def _hidden(self) -> str:
        """A sentence that says what is hidden."""
        if self.masking.one_at_a_time:
            return 'Every wordpiece is hidden, one at a time (pseudo-log-likelihood).'
        return f'{self.masking.share:.0%} of the wordpieces of each text are hidden at once.'

    def _models(self, name: str) -> list[tuple[str, LossAblated]]:
        sets = {'before': self.before, 'after': self.after}
        return [(when, each[name]) for when, each in sets.items() if name in each]

    def _of_set(self, name: str, when: str, ablated: LossAblated) -> Iterator[Finding]:
        found, tests = ablated.effects, len(ablated.masks)
        finding = functools.partial(
            Finding, unit=_UNIT, sample=found.texts, sample_of='texts', source=SOURCE
        )
        each = {'heads': 'heads', 'layers': 'layers'}.get(name, 'sets of heads')
        if tests > 1:
            real = found.corrected <= LEVEL
            likely = found.benjamini_hochberg <= LEVEL
            up, down = found.difference > 0, found.difference < 0
            yield finding(
                name=f'{name} {_WHEN[when]}: significantly needed',
                estimate=int((real & up).sum()),
                unit=each,
                template=(
                    'The model {when}, {each} one at a time: with all heads it has a loss of '
                    '{intact:.3f} nats per hidden wordpiece (perplexity {perplexity:,.1f}; '
                    '{hidden:,} wordpieces of {sample:,} texts). Without it the loss is higher for '
                    '{higher} and lower for {lower} of {tests} {each}; significantly higher for '
                    '{estimate} and lower for {below} after correction for all of them (max-T), '
                    'for {likely_up} and {likely_down} after a weaker one (Benjamini-Hochberg). A '
                    'change of {detectable:.4f} nats (median of {each}) is found with a '
                    'probability of {power:.0f} %.'
                ),
                numbers={
                    'when': _WHEN[when],
                    'each': each,
                    'intact': found.intact,
                    'perplexity': math.exp(min(found.intact, 700)),
                    'hidden': found.hidden,
                    'higher': int(up.sum()),
                    'lower': int(down.sum()),
                    'tests': tests,
                    'below': int((real & down).sum()),
                    'likely_up': int((likely & up).sum()),
                    'likely_down': int((likely & down).sum()),
                    'detectable': float(np.median(found.detectable)),
                    'power': 100 * POWER,
                },
            )
        extremes = [('worst', int(found.difference.argmax()))]
        if tests > 1:
            extremes.append(('best', int(found.difference.argmin())))
        for which, index in extremes:
            yield finding(
                name=f'{name} {_WHEN[when]}: {which} to lose',
                estimate=float(found.difference[index]),
                low=float(found.low[index]),
                high=float(found.high[index]),
                p=float(found.corrected[index]),
                template=(
                    '{words} {disabled} (the model {when}): {estimate:+.4f} nats of loss '
                    '({low:+.4f} to {high:+.4f}, p = {p:.2g}, corrected {corrected:.2g}).'
                ),
                numbers={
                    'words': to_lose(-found.difference[index], best=which == 'best'),
                    'when': _WHEN[when],
                    'disabled': ablated.names[index],
                    'p': float(found.p_value[index]),
                    'corrected': float(found.corrected[index]),
                },
            )

    def _of_tuning(self) -> Iterator[Finding]:
        if self.tuning is None:
            return
        found = self.tuning
        yield Finding(
            name='loss after fine-tuning',
            estimate=float(found.difference[0]),
            low=float(found.low[0]),
            high=float(found.high[0]),
            unit=_UNIT,
            sample=found.texts,
            sample_of='texts',
            source=SOURCE,
            template=(
                'Fine-tuning changes the loss by {estimate:+.3f} nats per hidden wordpiece '
                '({low:+.3f} to {high:+.3f}), read with the same head.'
            ),
        )
        if 'heads' in self.before and 'heads' in self.after:
            effects = [each.effects.difference for _, each in self._models('heads')]
            yield Finding(
                name='rank correlation of heads before and after fine-tuning',
                estimate=paper.spearman(*effects),
                unit="Spearman's rank correlation",
                sample=len(effects[0]),
                sample_of='heads',
                source=SOURCE,
                template=(
                    'The effects of {sample} heads before and after fine-tuning have a rank '
                    'correlation of {estimate:.2f}.'
                ),
            )


_COLUMNS = (
    'loss',
    'difference',
    'low',
    'high',
    'p_value',
    'corrected',
    'benjamini_hochberg',
    'detectable',
)


def _value(effects: LossEffects, column: str, row: int) -> float:
    if column == 'loss':
        return float(effects.intact + effects.difference[row])
    return float(getattr(effects, column)[row])


def masked_lm_ablation(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Pretrained | Finetuned | None = None,
    masks: Sequence[str] | Mapping[str, np.ndarray] = DISABLED,
    masking: Masking | None = None,
    baseline: str = 'uniform',
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> MaskedLMAblation:
    """Disable heads and layers of a masked LM one at a time, and measure what it predicts worse.

    Args:
      pretrained: A model with the head of a masked LM.
      texts: The texts; labels are not used. Strings, pairs of strings or `Example`s.
      tuned: The model after fine-tuning, which is read with the same head on the same texts. Of
        several fine-tuned models, the first is used.
      masks: The names of sets of masks ('heads', 'layers', 'one_head_left'), or masks [M, L, N] by
        the name of their set.
      masking: Which wordpieces are hidden; None hides 15 % of each text.
      baseline: The behaviour of a disabled head, as in `ablation`. For 'mean', the mean is that
        over the texts.
      seed: The seed of the bootstrap and, for 'resample', of the draw of other texts. What is
        hidden follows from `Masking.seed`.
      compute: How it is computed.
      subject: The names of the model and the texts, for sentences and captions.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: The model has no head of a masked LM, a set or the baseline is unknown, the masks
        do not fit the model, a text has nothing that could be hidden, there are fewer than two
        texts, or the fine-tuned model has other layers.
    """
    check_baseline(baseline)
    check_masked_lm(pretrained)
    masking = masking or Masking()
    models = {'before': pretrained}
    if tuned is not None:
        models['after'] = with_masked_lm(one_model(tuned), pretrained)
    chosen = named_masks(masks, pretrained.config)
    losses = {
        when: {
            name: masked_lm_losses(
                model,
                texts,
                mask_sets.with_intact(each),
                masking=masking,
                baseline=baseline,
                donor_seed=seed,
                compute=compute,
            )
            for name, each in chosen.items()
        }
        for when, model in models.items()
    }
    return assess_masked_lm(
        losses['before'],
        losses.get('after', {}),
        masking=masking,
        baseline=baseline,
        seed=seed,
        subject=subject or Subject(),
    )


def assess_masked_lm(
    before: Mapping[str, MaskedLosses],
    after: Mapping[str, MaskedLosses],
    *,
    masking: Masking,
    baseline: str,
    seed: int,
    subject: Subject,
) -> MaskedLMAblation:
    """Compare each mask with the intact model.

    Args:
      before: The losses of the model as it is under each set of masks, the first of which keeps all
        heads, by the name of the set.
      after: The same of the fine-tuned model; empty without one.
      masking, baseline, seed, subject: As in `masked_lm_ablation`.
    """
    tuning = None
    if after:
        # The model with all heads is the same in all sets.
        old, new = next(iter(before.values())), next(iter(after.values()))
        tuning = assess_losses(new.losses[:1], old.losses[0], old.hidden, seed=seed)
    return MaskedLMAblation(
        subject,
        baseline,
        masking,
        *(
            {
                name: LossAblated(
                    losses.masks[1:],
                    assess_losses(losses.losses[1:], losses.losses[0], losses.hidden, seed=seed),
                )
                for name, losses in sets.items()
            }
            for sets in (before, after)
        ),
        tuning,
    )


_SURE = ('low', 'high', 'p_value', 'p_max_t', 'p_benjamini_hochberg')
_DRAWN = ('heads', 'layers')


def _figure_name(name: str, when: str) -> str:
    return name if when == 'before' else f'{name}_{when}'


def _draw(result: MaskedLMAblation, name: str, when: str):
    ablated = dict(result._models(name))[when]
    found = ablated.effects
    label = 'change of the loss (nats)'
    if name == 'heads':
        shape = ablated.masks.shape[1:]
        figure = plots.effect_grid(
            found.difference.reshape(shape),
            label=label,
            real=(found.corrected <= LEVEL).reshape(shape),
            likely=(found.benjamini_hochberg <= LEVEL).reshape(shape),
        )
        what = (
            'without each head less that with all. Filled circles: significant at 5 % after '
            'correction for all heads (max-T); of the filled and the open ones together, at most '
            '5 % are expected to be chance (Benjamini-Hochberg).'
        )
    else:
        figure = plots.layer_effects(found.difference, found.low, found.high, label=label)
        what = 'without all heads of a layer less that with all; lines are 95 % intervals.'
    figure.source = plots.Source(name, 'difference', when)
    figure.caption = (
        f'Loss per hidden wordpiece of the masked LM {_WHEN[when]} {what} Above 0, they were of '
        f'use. {result._hidden} {instead(result.baseline)}'
    )
    return figure


def _effect(found: LossEffects, row: int) -> str:
    return (
        f'{found.difference[row]:+.4f} nats ({found.low[row]:+.4f} to {found.high[row]:+.4f}, '
        f'p = {found.p_value[row]:.2g}, corrected {found.corrected[row]:.2g})'
    )
