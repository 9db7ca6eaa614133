"""Which heads the model needs as it is: the loss of a masked LM without each head or layer.

No labels and no fine-tuning are needed. Some wordpieces of each text are hidden, the same under all
masks, and the model is asked for them. The loss is the only outcome: its parts (see
`ablation.outcomes`) would take the logits of the whole vocabulary for each hidden wordpiece.

Shapes: M masks, L layers, N heads, E texts.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_secrets_jax.ablation import masked_lm
from bert_secrets_jax.ablation.masks import describe, with_intact
from bert_secrets_jax.analyses.common import disabling, effects, marks
from bert_secrets_jax.analyses.common.disabling import MaskSets
from bert_secrets_jax.analyses.common.inputs import (
    check_several,
    learnt_nothing,
    one_model,
    unless_noise,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import MASKS, Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.weights import Pretrained, with_masked_lm
from bert_secrets_jax.runs.result import Finding, Result
from bert_secrets_jax.stats.effects import Effects

SOURCE = 'masked language modelling, Devlin et al. 2019, section 3.1'
_WHEN = {'before': 'as it is', 'after': 'after fine-tuning'}
_COLUMNS = {'loss': 'value', **effects.TESTED}


class MaskedLMAblation(Result):
    """The effect of disabling each head and each layer on the loss of a masked LM.

    Attributes:
      baseline: The behaviour of a disabled head, as in `ablation`.
      masking: Which wordpieces are hidden.
      shape: The numbers of layers and heads.
      before: By the name of the set, the effects of masks on its loss in nats per hidden wordpiece.
      after: The same after fine-tuning, with the head from before; empty without such a model.
      guessing: The loss of each model ('before', 'after') compared with that of the best guess
        that knows only how frequent wordpieces are (`frequency_loss`).
      tuning: The loss after fine-tuning compared with that before; None without such a model.
    """

    baseline: str
    masking: Masking
    shape: tuple[int, int]
    before: Mapping[str, Effects]
    guessing: Mapping[str, Effects]
    after: Mapping[str, Effects] = dataclasses.field(default_factory=dict)
    tuning: Effects | None = None

    title = 'Heads that the masked LM needs'

    def figures(self):
        after = {'after': functools.partial(_draw, when='after')} if self.after else {}
        return effects.drawn_sets(self, self.before, effects=_draw, **after)

    def findings(self):
        found = [
            finding
            for name in self.before
            for when, each in self._models(name).items()
            for finding in effects.findings_of(
                each, name, name=f'{name} {_WHEN[when]}', source=SOURCE
            )
        ]
        for when, each in self._models(next(iter(self.before))).items():
            found.append(effects.intact_of(each, source=SOURCE, when=_WHEN[when]))
        if self.tuning is not None:
            name = 'change of the loss by fine-tuning, read with the same head'
            found.append(effects.effect_of(self.tuning, 0, name=name, source=SOURCE))
        return unless_noise([*self._not_learnt(), *found])

    def notes(self):
        hidden = f'In each text, {self.masking.share:.0%} of the wordpieces are hidden at once.'
        if self.masking.one_at_a_time:
            hidden = 'Every wordpiece is hidden, one at a time (pseudo-log-likelihood).'
        without = disabling.instead(self.baseline)
        return [f'{hidden} {without} Other texts may need other heads.']

    def head_marks(self):
        if 'heads' not in self.before:
            return []
        what = 'the loss of the masked LM'
        return marks.mark_effects(self.before['heads'], self.shape, rank=marks.MASKED_LM, what=what)

    def _models(self, name: str) -> dict[str, Effects]:
        sets = {'before': self.before, 'after': self.after}
        return {when: each[name] for when, each in sets.items() if name in each}

    @property
    def _unlearnt(self) -> dict[str, float]:
        """The one-sided p-values of the models that are not surely better than guessing."""
        p_values = {}
        for when, each in self.guessing.items():
            half = float(each.p_value[0]) / 2
            p_values[when] = half if each.difference[0] < 0 else 1 - half
        return {when: p_value for when, p_value in p_values.items() if learnt_nothing(p_value)}

    def _not_learnt(self) -> Iterator[Finding]:
        """Yield the warning about each of them."""
        for when, p_value in self._unlearnt.items():
            each = self.guessing[when]
            yield effects.effect_of(
                each,
                0,
                name=f'loss {_WHEN[when]} less that of guessing',
                source='entropy, Chao and Shen 2003',
                warning=True,
                p=p_value,
                template='Not learnt {which}: loss {loss:.3g}, not clearly below guessing by '
                'frequency ({guess:.3g}); what follows is noise.',
                which=_WHEN[when],
                loss=each.value[0],
                guess=each.intact,
            )


@analysis(
    question='which heads a masked LM needs as it is, without fine-tuning',
    group='What matters',
    section='masked_lm',
    title='masked LM',
    settings={
        'share': {
            'help': 'The share of the wordpieces of each text that are hidden from a masked LM,'
            ' or all of them one at a time (pseudo-log-likelihood).',
            'default': 0.15,
            'range': [0.01, 0.99],
        },
        'one_at_a_time': {'default': False},
    },
    inputs={'pretrained': 'masked_lm', 'tuned': 'tuned_already', 'baseline': 'ablation.baseline'},
    check=lambda given: check_several(given.value('texts')),
    cost=lambda given: (
        disabling.passes_without(given) * (1 + given.study.has_training) * given.tokens('texts')
    ),
    shares=True,
    axis=MASKS,
)
def masked_lm_ablation(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Pretrained | Finetuned | None = None,
    masks: MaskSets = ('heads', 'layers'),
    masking: Masking | None = None,
    baseline: str = 'uniform',
    seed: int = 0,
    compute: Compute = Compute(),
) -> MaskedLMAblation:
    """Disable heads and layers of a masked LM one at a time, and measure what it predicts worse.

    Args:
      pretrained: A model with the head of a masked LM.
      texts: The texts; labels are not used. Strings, pairs of strings or `Example`s.
      tuned: The model after fine-tuning, which is read with the same head on the same texts. Of
        several fine-tuned models, the first is used.
      masks, baseline: As in `ablation`; the mean of 'mean' is that over the texts.
      masking: Which wordpieces are hidden, by a seed of its own; None hides 15 % of each text.
      seed: The seed of the bootstrap and, for 'resample', of the draw of other texts.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown, or does not fit the model; it is no masked LM; a text has
        nothing to hide; or there are fewer than two texts.
    """
    check_baseline(baseline)
    check_several(texts)
    masked_lm.check_masked_lm(pretrained)
    masking = masking or Masking()
    models = {'before': pretrained}
    if tuned is not None:
        models['after'] = with_masked_lm(one_model(tuned), pretrained)
    how = {'masking': masking, 'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    chosen = disabling.named_masks(masks, pretrained.config)
    losses: dict[str, Any] = {}
    assessed: dict[str, Any] = {when: {} for when in _WHEN}
    for when, model in models.items():
        for name, each in chosen.items():
            found = masked_lm.masked_lm_losses(model, texts, with_intact(each), **how)
            names = [describe(mask) for mask in each]
            given = found.losses[1:], found.losses[0], found.hidden
            assessed[when][name] = masked_lm.assess_losses(*given, names=names, seed=seed)
            # The model with all heads is the same in all sets.
            losses.setdefault(when, found)
    before, tuning = losses['before'], None
    guess = masked_lm.frequency_loss(before.words) * before.hidden
    guessing = {
        when: masked_lm.assess_losses(each.losses[:1], guess, each.hidden, names=['all heads'])
        for when, each in losses.items()
    }
    if tuned is not None:
        after = losses['after'].losses[:1], before.losses[0], before.hidden
        tuning = masked_lm.assess_losses(*after, names=['after fine-tuning'], seed=seed)
    shape = before.masks.shape[1:]
    return labelled(
        MaskedLMAblation(baseline, masking, shape, **assessed, guessing=guessing, tuning=tuning)
    )


def _draw(result: MaskedLMAblation, name: str, when: str = 'before'):
    caption = f'Change of the loss per hidden wordpiece without {effects.WITHOUT[name]} '
    caption += f'(the model {_WHEN[when]}).'
    return effects.draw_effects(name, result._models(name)[when], result.shape, caption, when)


def labelled(found: MaskedLMAblation) -> MaskedLMAblation:
    """Return the result with the table of each set."""
    frames = {}
    for name in found.before:
        without = effects.WITHOUT.get(name, 'each set')
        caption = f'Loss in nats per hidden wordpiece without {without}, and its change.'
        frames[name] = effects.frame_of(found._models(name), _COLUMNS, caption, 'model')
        frames[name]['learnt'] = ~frames[name]['model'].isin(found._unlearnt)
    return found.with_frames(frames)
