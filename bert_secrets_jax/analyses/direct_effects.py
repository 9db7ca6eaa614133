"""Heads' own parts in the right answer, and what the model would answer after each layer.

Nothing is disabled: `contributions.direct` says what the direct path of a head is.

Shapes: E examples, L layers, N heads.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.contexts import on_devices
from bert_secrets_jax.ablation.masked_lm import FEW, assess_losses
from bert_secrets_jax.analyses.common import effects
from bert_secrets_jax.analyses.common.inputs import Models, check_several, labels_of, one_model
from bert_secrets_jax.analyses.common.tables import OF_SHARES, grids_frame
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute, fetch
from bert_secrets_jax.contributions.direct import direct_parts
from bert_secrets_jax.contributions.scores import check_classifies
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.masking import Masking, mask_words
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.config import MASKED_LM
from bert_secrets_jax.model.weights import check_whole
from bert_secrets_jax.names import head_name
from bert_secrets_jax.progress import progress
from bert_secrets_jax.runs.result import Figures, Result, drawn, framed, measured, noted
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.student import mean_interval

SOURCE = 'Elhage et al. 2021'
LENS = 'the logit lens, nostalgebraist 2020'
_WITHOUT = (
    'Change of the margin of the right answer, in logits, without the direct path of each head.'
)
_ANSWERS = 'Share of right answers if the output of each layer goes through the head of the model.'
MARGIN = Outcome('the direct margin', unit='logits', scale=1.0, digits=3)


class DirectEffects(Result):
    """The direct parts of heads in the margin of the right answer, and the answers of layers.

    Attributes:
      shape: The numbers of layers and heads.
      heads: The change of the margin without the direct part of each head, in logits.
      parts: [E] By name, what heads, feed-forward layers, biases and embeddings add to the margin,
        each all together. They sum to the margin.
      lens: [L, E] The share of right answers of each example if the output of a layer goes through
        the head of the model: 0 or 1 for a classifier.
    """

    title = 'What heads add to the answer themselves'

    shape: tuple[int, int]
    heads: Effects
    parts: Mapping[str, Float[np.ndarray, ' E']]
    lens: Float[np.ndarray, 'L E']

    @property
    def _accuracy(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean over examples, [L], and the ends of its interval, which stay within 0 and 1."""
        return mean_interval(self.lens, OF_SHARES)

    def figures(self):
        heads = 'heads', self.heads, self.shape, _WITHOUT, 'margin'
        draw = functools.partial(effects.draw_effects, *heads)
        return Figures({'direct_effects': draw}) | drawn(self, direct_effects_layers=_draw_lens)

    def _say_own(self):
        return measured(
            'direct part of heads',
            np.array(mean_interval(self.parts['heads'])),
            unit='logits',
            template='Of a mean margin of {margin:.2g} {unit}, heads add {estimate:.2g} directly.',
            margin=self.heads.intact,
            **effects.sample_of(self.heads, SOURCE),
        )

    def _say_answer(self):
        mean, low, high = self._accuracy
        _, worse, _ = mean_interval(self.lens[-1] - self.lens)
        first = int(np.flatnonzero(worse <= 0)[0])
        there = {'then': mean[first], 'from': low[first], 'to': high[first], 'end': mean[-1]}
        return measured(
            'first layer that is not clearly worse than the last',
            first + 1,
            unit=f'of {len(mean)} layers',
            template='After layer {estimate:.0f}, the model would answer {then:.0%} rightly '
            '({from:.0%} to {to:.0%}); after the last, {end:.0%}.',
            numbers=there,
            **effects.sample_of(self.heads, LENS),
        )

    def _say_usual(self):
        name = 'direct paths of heads'
        return list(effects.findings_of(self.heads, 'heads', source=SOURCE, name=name))

    def notes(self):
        return [
            'A head also acts through later attention and feed-forward layers. That is not counted '
            'here, and is what disabling it changes besides.',
            'The margin is the logit of the right answer less the mean of all others.',
            'The head of the model is trained on the last layer alone. Earlier states may hold the '
            'answer in another form.',
            *noted({'With few texts, intervals are slightly too narrow.': self.heads.sample < FEW}),
        ]


@analysis(
    question='what heads add to the answer themselves, and the answer after each layer',
    group='What matters',
    report='name',
    reads=('ablation.',),
    inputs={'tuned': 'model', 'examples': 'ablated', 'masking': ...},
    cost=lambda given: 4 * given.tokens('ablated'),
)
def direct_effects(
    tuned: Models,
    examples: Sequence[Text],
    *,
    masking: Masking | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> DirectEffects:
    """Take the margin of the right answer apart into what heads and other parts add directly.

    It takes a pass forward and about two for the parts, and the head of the model once for each
    layer. Nothing is disabled.

    Args:
      tuned: A model with a classifier of texts, or a masked LM. Of several, the first is used.
      examples: Labelled examples for a classifier; any texts for a masked LM.
      masking: Which wordpieces are hidden from a masked LM; None hides 15 % of each text.
      seed: The seed of the resamples of the test.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: The model is neither a classifier of texts nor a masked LM, predicts a single
        value or has lost heads; a label is missing or none of the model's; or there are fewer than
        two examples.
      FloatingPointError: The model predicts NaN or infinity.
    """
    model, examples = one_model(tuned), as_examples(examples)
    is_lm = model.config.head == MASKED_LM
    (check_whole if is_lm else check_classifies)(model)
    if not is_lm and model.config.num_labels < 2:
        raise ValueError('A regression has no right answer: give a classifier, or a masked LM.')
    check_several(examples)
    if is_lm:
        masked = mask_words(model.tokenizer, examples, masking=masking, **compute.encoding)
        batches, text, hidden = masked.batches, masked.text, masked.hidden
    else:
        labels = labels_of(examples, model.config)
        encoded = tokenize(model.tokenizer, examples, max_length=compute.max_length)
        batches, text = bucket(encoded, **compute.encoding), np.arange(len(examples))
        hidden = np.ones(len(text), int)
    params, _, place = on_devices(model.params, compute.mesh)
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    asked = np.bincount(text, hidden)
    each = np.zeros((len(asked), layers * heads))
    parts = {name: np.zeros(len(asked)) for name in _SUMS}
    lens = np.zeros((len(asked), layers))
    for batch in progress(batches, 'Direct parts', size=lambda batch: batch.size):
        rows = np.asarray(batch.example)
        real = rows >= 0
        if is_lm:
            batch = place(batch)
            found = direct_parts(model.bert, params, batch, batch.places, batch.words)
        else:
            targets = np.where(real, labels[rows], -1)[:, None].astype(np.int32)
            batch, targets = place((batch, targets))
            found = direct_parts(model.bert, params, batch, None, targets)
        found, of = fetch(found), text[rows[real]]
        check_finite(found.total[real, None])
        share = 1 / asked[of]
        np.add.at(each, of, share[:, None] * found.heads[real].reshape(len(of), -1))
        np.add.at(lens, of, share[:, None] * found.right[real].sum(axis=-1))
        for name, sums in _SUMS.items():
            np.add.at(parts[name], of, share * sums(found)[real])
    names = [head_name(*at) for at in np.ndindex(layers, heads)]
    about = {'names': names, 'outcome': MARGIN, 'sample_of': 'texts' if is_lm else 'examples'}
    effects = assess_losses(-each.T, np.zeros(len(each)), seed=seed, **about)
    margin = float(sum(part.mean() for part in parts.values()))
    effects = dataclasses.replace(effects, intact=margin)
    return labelled(DirectEffects((layers, heads), effects, parts, lens.T))


_SUMS = {
    'heads': lambda found: found.heads.sum(axis=(1, 2)),
    'feed-forward layers': lambda found: found.fed.sum(axis=1),
    'embeddings': lambda found: found.embeddings,
    'biases': lambda found: found.biases.sum(axis=1),
}


def _draw_lens(result: DirectEffects):
    return plots.layer_curves(
        {'after each layer': result._accuracy}, label='share of right answers', limits=(0.0, 1.02)
    ).captioned(f'{_ANSWERS} Lines: 95 % intervals.', plots.Source('layers', 'accuracy'))


def labelled(found: DirectEffects) -> DirectEffects:
    """Return the result with its tables: of heads, of other parts, and of layers."""
    return found.with_frames(
        {
            'heads': effects.frame_of({'margin': found.heads}, effects.TESTED, _WITHOUT, 'outcome'),
            'parts': framed(
                ('part', 'mean', 'low', 'high'),
                [(name, *map(float, mean_interval(each))) for name, each in found.parts.items()],
                'The parts of the mean margin of the right answer, in logits. They sum to it.',
            ),
            'layers': grids_frame(
                dict(zip(('accuracy', 'low', 'high'), found._accuracy, strict=True)),
                _ANSWERS,
                sure={'accuracy': ('low', 'high')},
            ),
        }
    )
