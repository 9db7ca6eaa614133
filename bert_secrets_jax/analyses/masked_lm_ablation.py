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
from bert_secrets_jax.ablation.effects import Effects
from bert_secrets_jax.ablation.masked_lm import (
    FEW,
    MaskedLosses,
    assess_losses,
    check_masked_lm,
    masked_lm_losses,
)
from bert_secrets_jax.analyses import marks
from bert_secrets_jax.analyses.ablation import NAMES, instead, named_masks
from bert_secrets_jax.analyses.effects import (
    draw_heads,
    draw_layers,
    effect_of,
    findings_of,
    frame_of,
    intact_of,
    notes_of,
)
from bert_secrets_jax.analyses.models import one_model
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.weights import Pretrained, with_masked_lm
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject

SOURCE = 'masked language modelling, Devlin et al. 2019, section 3.1'
# The parts that are disabled by default.
DISABLED = ('heads', 'layers')
_WHEN = {'before': 'as it is', 'after': 'after fine-tuning'}
# The attribute of the effects in each column of a frame.
_COLUMNS = {
    'loss': 'value',
    'difference': 'difference',
    'low': 'low',
    'high': 'high',
    'p_value': 'p_value',
    'p_max_t': 'corrected',
    'p_benjamini_hochberg': 'benjamini_hochberg',
    'detectable': 'detectable',
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class MaskedLMAblation(Result):
    """The effect of disabling each head and each layer on the loss of a masked LM.

    Attributes:
      subject: The names of the model and the texts.
      baseline: The behaviour of a disabled head, as in `ablation`.
      masking: Which wordpieces are hidden.
      shape: The numbers of layers and heads.
      hidden: The number of hidden wordpieces.
      before: The effects of each set of masks on the loss of the model as it is, in nats per hidden
        wordpiece, by the name of the set.
      after: The same after fine-tuning, with the head that the model had before; empty without a
        fine-tuned model.
      tuning: The loss after fine-tuning compared with that before; None without such a model.
    """

    subject: Subject
    baseline: str
    masking: Masking
    shape: tuple[int, int]
    hidden: int
    before: Mapping[str, Effects]
    after: Mapping[str, Effects] = dataclasses.field(default_factory=dict)
    tuning: Effects | None = None

    title: ClassVar[str] = 'Heads that the masked LM needs'
    FORMAT: ClassVar[int] = 3

    def frames(self):
        caption = (
            'Loss in nats per hidden wordpiece without what is disabled, and its change (95 % '
            f'interval over texts). {instead(self.baseline)}'
        )
        return {
            name: frame_of(self._models(name), _COLUMNS, caption, key='model')
            for name in self.before
        }

    def figures(self):
        drawings = {
            _figure_name(name, when): functools.partial(_draw, self, name, when)
            for name in self.before
            for when in self._models(name)
            if name in _DRAWN
        }
        return Figures(drawings)

    def findings(self):
        found = [
            finding
            for name in self.before
            for when, each in self._models(name).items()
            for finding in findings_of(
                each,
                name=f'{name} {_WHEN[when]}',
                what=NAMES.get(name, 'sets of heads'),
                source=SOURCE,
            )
        ]
        return [*found, *self._loss_findings(), *self._tuning_findings()]

    def notes(self):
        said = [f'{self._hidden} {instead(self.baseline)} Other texts may need other heads.']
        if next(iter(self.before.values())).sample < FEW:
            said.append('With so few texts, intervals are a little too narrow.')
        return said

    def head_notes(self):
        return {
            f'loss without it, {_WHEN[when]} (nats)': notes_of(each, self.shape)
            for when, each in self._models('heads').items()
        }

    def head_marks(self):
        if 'heads' not in self.before:
            return []
        what = 'the loss of the masked LM'
        return marks.mark_effects(self.before['heads'], self.shape, rank=marks.MASKED_LM, what=what)

    @property
    def _hidden(self) -> str:
        """A sentence that says what is hidden."""
        if self.masking.one_at_a_time:
            return 'Every wordpiece is hidden, one at a time (pseudo-log-likelihood).'
        return f'In each text, {self.masking.share:.0%} of the wordpieces are hidden at once.'

    def _models(self, name: str) -> dict[str, Effects]:
        sets = {'before': self.before, 'after': self.after}
        return {when: each[name] for when, each in sets.items() if name in each}

    def _loss_findings(self) -> Iterator[Finding]:
        """Return the loss of each model with all heads, and its exponential."""
        for when, effects in self._models(next(iter(self.before))).items():
            intact = intact_of(effects, name=f'loss {_WHEN[when]}', source=SOURCE)
            yield intact
            yield dataclasses.replace(
                intact,
                name=f'perplexity {_WHEN[when]}',
                estimate=math.exp(min(effects.intact, 700)),
                unit='perplexity',
                template='The model {when} has a perplexity of {estimate:,.1f} on {hidden:,} '
                'hidden wordpieces.',
                numbers={'when': _WHEN[when], 'hidden': self.hidden},
            )

    def _tuning_findings(self) -> Iterator[Finding]:
        if self.tuning is None:
            return
        name = 'change of the loss by fine-tuning, read with the same head'
        yield effect_of(self.tuning, 0, name=name, source=SOURCE)
        heads = [each.difference for each in self._models('heads').values()]
        if len(heads) == 2:
            yield Finding(
                name='rank correlation of heads before and after fine-tuning',
                estimate=paper.spearman(*heads),
                unit='rank correlation',
                sample=len(heads[0]),
                sample_of='heads',
                source=SOURCE,
            )


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
        tuning = assess_losses(
            new.losses[:1], old.losses[0], old.hidden, names=['after fine-tuning'], seed=seed
        )
    first = next(iter(before.values()))
    return MaskedLMAblation(
        subject,
        baseline,
        masking,
        first.masks.shape[1:],
        int(first.hidden.sum()),
        *(
            {
                name: assess_losses(
                    losses.losses[1:],
                    losses.losses[0],
                    losses.hidden,
                    names=[mask_sets.describe(mask) for mask in losses.masks[1:]],
                    seed=seed,
                )
                for name, losses in sets.items()
            }
            for sets in (before, after)
        ),
        tuning,
    )


_DRAWN = ('heads', 'layers')


def _figure_name(name: str, when: str) -> str:
    return name if when == 'before' else f'{name}_{when}'


def _draw(result: MaskedLMAblation, name: str, when: str):
    effects, source = result._models(name)[when], plots.Source(name, 'difference', when)
    missing = 'each head' if name == 'heads' else 'all heads of a layer'
    caption = (
        f'Loss per hidden wordpiece of the masked LM {_WHEN[when]} without {missing} less that '
        f'with all. {result._hidden} {instead(result.baseline)}'
    )
    if name == 'heads':
        return draw_heads(effects, result.shape, caption, source)
    return draw_layers(effects, caption, source)
