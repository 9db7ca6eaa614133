"""Attention: where it goes, how evenly, and how much it matters (Clark et al. 2019, section 3)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import marks
from bert_secrets_jax.analyses.common.inputs import (
    Models,
    TextSettings,
    batches_of,
    labels_of,
    one_model,
    seeds_of,
    with_progress,
)
from bert_secrets_jax.analyses.common.tables import (
    LEVEL,
    Tables,
    grids_frame,
    heads_frame,
    mean_finding,
    mean_over_runs,
    worded,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import BROADLY, SEP_MOVES_LITTLE, layers_between
from bert_secrets_jax.analyses.verdicts.verdict import layers_named
from bert_secrets_jax.data.encoding import with_labels
from bert_secrets_jax.data.masking import Masking, mask_words
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.finetune.losses import task_loss
from bert_secrets_jax.measure.catalogue import ENTROPY, SHARE, UNIFORM, named
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.gradients import OTHERS, gradient_importance, masked_lm_loss
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.config import MASKED_LM, SEQUENCES
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import HeadMarks, Result, drawn, framed
from bert_secrets_jax.stats.student import reach

SOURCE = 'Clark et al. 2019, section 3'
OF_CLS = 'entropy of [CLS] (nats)'
# The kinds of tokens of which it is counted how many heads give them more than half.
COUNTED = ('self', 'previous token', 'next token', '[CLS]', 'all [SEP]', 'period or comma')
STATISTICS = (
    *COUNTED,
    '[SEP] to [SEP]',
    'other tokens to [SEP]',
    ENTROPY,
    OF_CLS,
    'entropy, smoothed (nats)',
    'entropy of [CLS], smoothed (nats)',
    UNIFORM,
)
# The panels of each figure, by title, the label of its numbers, and its caption.
_FIGURES = {
    'attention': (
        {
            'attention of all tokens': ('[CLS]', 'all [SEP]', 'period or comma'),
            'attention to [SEP]': ('other tokens to [SEP]', '[SEP] to [SEP]'),
        },
        SHARE,
        f'Attention to all tokens of a kind, by layer ({SOURCE}, Figure 2).',
    ),
    'entropies': (
        {
            'attention of all tokens': ('entropy, smoothed (nats)', UNIFORM),
            'attention of [CLS]': ('entropy of [CLS], smoothed (nats)', UNIFORM),
        },
        'entropy (nats)',
        f'Entropy of smoothed attention, by layer ({SOURCE}, Figure 4).',
    ),
}
_PUBLISHED = 'Clark et al.: BERT-base'
_POINTS = 'Points: heads; lines: means.'


HIDDEN, CLASSES, REGRESSION = (
    'the loss of the masked LM',
    'the cross entropy of the task',
    'the squared error of the task',
)
# Gradients take about as many times the memory of a forward pass.
_MEMORY = 4
_UNITS = {HIDDEN: 'nats', CLASSES: 'nats', REGRESSION: 'squared error'}


@dataclasses.dataclass(frozen=True)
class Gradients:
    """How much a loss depends on attention to each type of token.

    Attributes:
      loss: The name of the loss: HIDDEN, CLASSES or REGRESSION.
      tables: The mean of |d loss / d attention| for each head, by the type of token.
      of: The model, if it is another than the one that is studied, such as 'fine-tuned, seed 0'.
    """

    loss: str
    tables: Tables
    of: str = ''

    @property
    def title(self) -> str:
        """The loss that the gradients are of, as a noun phrase."""
        return self.loss + (f' ({self.of})' if self.of else '')

    @property
    def unit(self) -> str:
        """The unit of the gradients."""
        return f'{_UNITS[self.loss]} per unit of attention'


def loss_of(pretrained: Pretrained, examples: Sequence[Example]) -> str:
    """Return the name of the loss that a model has on texts; ValueError if it has none."""
    config = pretrained.config
    if config.head == MASKED_LM:
        return HIDDEN
    if config.head != SEQUENCES or not config.num_labels:
        raise ValueError(
            f'The model ({config.summary}) has no loss to take gradients of: give a masked LM '
            '(bs.with_masked_lm), or a classifier of texts and labelled texts.'
        )
    labels_of(examples, config)
    return REGRESSION if config.num_labels == 1 else CLASSES


def gradients_of(
    pretrained: Pretrained,
    examples: Sequence[Example],
    *,
    masking: Masking | None = None,
    settings: TextSettings = TextSettings(),
) -> Gradients:
    """Measure how much the loss of each text depends on attention to each type of token.

    The loss is that of `loss_of`; `measure.gradients.gradient_importance` says what is averaged.
    """
    # The way back needs all maps of a batch, and the scores of all wordpieces.
    fewer = max(settings.tokens_per_batch // _MEMORY, 1)
    settings = dataclasses.replace(settings, tokens_per_batch=fewer)
    name = loss_of(pretrained, examples)
    if name == HIDDEN:
        masked = mask_words(pretrained.tokenizer, examples, masking=masking, **settings.bucketing)
        batches = masked.batches
    else:
        labels = labels_of(examples, pretrained.config)
        plain = batches_of(pretrained, examples, settings, annotated=False)
        batches = [with_labels(batch, labels) for batch in plain]
    tables = gradient_importance(
        pretrained,
        with_progress(batches, 'Gradients'),
        masked_lm_loss if name == HIDDEN else task_loss,
        mesh=settings.mesh,
    )
    return Gradients(name, tables)


class LookAt(Result):
    """Attention of each head: where it goes, how evenly, and how much the loss depends on it.

    Attributes:
      tables: The table of all heads for each statistic, by its name.
      gradients: How much a loss depends on attention to each type of token; None if not measured.
      no_gradients: Why it was not measured, in a sentence; empty if it was.
    """

    title = 'What heads look at'

    tables: Tables
    gradients: Gradients | None = None
    no_gradients: str = ''

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.tables['[CLS]'].mean)

    def verdicts(self):
        tables, gradients = self.tables, self.gradients
        return [
            verdicts.heads_look_at_sep(tables['all [SEP]']),
            verdicts.sep_looks_at_sep(tables['[SEP] to [SEP]']),
            verdicts.cls_looks_broadly(tables[OF_CLS], tables[UNIFORM]),
            verdicts.not_measured(verdicts.SEP_NO_OP, 'gradients')
            if gradients is None
            else verdicts.sep_is_a_no_op(gradients.tables, loss=gradients.title),
        ]

    def figures(self):
        drawings: dict[str, Any] = {name: functools.partial(_draw, name=name) for name in _FIGURES}
        if self.gradients is not None:
            drawings['gradients'] = _draw_gradients
        return drawn(self, **drawings)

    def _say_no_op(self):
        middle = layers_between(6, 10, self.layers)
        return mean_finding(
            'attention to [SEP]',
            [self.tables],
            ['all [SEP]'],
            middle,
            unit=SHARE,
            source=f'{SOURCE}.2',
            where=layers_named(middle.start + 1, middle.stop),
            template='Heads give [SEP] {estimate:.0%} of the attention in {where}; BERT-base '
            'gives more than half in {their_layers}.',
            their_layers=layers_named(6, 10),
        )

    def _say_gradients(self):
        if self.gradients is None:
            return None
        tables, late = [self.gradients.tables], layers_between(5, 12, self.layers)
        return mean_finding(
            'gradient at [SEP]',
            tables,
            ['[SEP]'],
            late,
            unit=self.gradients.unit,
            source=f'{SOURCE}.2',
            where=f'layers from {late.start + 1} on',
            template='In {where}, the gradient of {loss} at [SEP] is {ratio:.2f} of that '
            'at other tokens.',
            loss=self.gradients.title,
            ratio=mean_over_runs(tables, ['[SEP]'], late).mean
            / mean_over_runs(tables, [OTHERS], late).mean,
        )

    def notes(self):
        said = ['Attention to a kind of token is the sum over its tokens.']
        return said + [f'There are no gradients. {self.no_gradients}'] * bool(self.no_gradients)

    def head_marks(self):
        if not self.tables[ENTROPY].count:
            return []
        entropy, even = (self.tables[name].mean for name in (ENTROPY, UNIFORM))
        share = entropy / np.maximum(even, 1e-9)
        sentences = worded('The entropy of its attention is {:.0%} of even attention.', share)
        broad = np.where(share >= BROADLY, 'broad', '')
        return [HeadMarks('attention is broad', broad, sentences, rank=marks.SHARE)]


def heads_over_half(table: HeadTable) -> tuple[list[str], int, int]:
    """Return the heads with a mean share of attention above half, by their names.

    Then the ends of the 95 % interval of their number, for all heads together (Bonferroni).
    """
    above = table.mean > SEP_MOVES_LITTLE.threshold
    low, high = 0, above.size
    if table.count > 1:
        # All heads at once: a pair of bounds for each of them.
        half = reach(table.count - 1, LEVEL / 2 / above.size) * table.standard_error
        low = int((table.mean - half > SEP_MOVES_LITTLE.threshold).sum())
        high = int((table.mean + half > SEP_MOVES_LITTLE.threshold).sum())
    return [head_name(*head) for head in np.argwhere(above)], low, high


def _has_own_loss(given) -> bool:
    """Return whether the model has a loss on the texts with the head that it came with."""

    def find() -> bool:
        model = given.value('pretrained')
        theirs = [name.lower() for name in model.config.label_names]
        ours = [name.lower() for name in given['data.labels']]
        # The same classes in another order would have another loss.
        same = theirs == ours or sorted(theirs) != sorted(ours)
        try:
            return same and bool(loss_of(model, given.value('texts')))
        except ValueError:
            return False

    return given.holds('has a loss', find, unknown=False, others=('texts',))


@analysis(
    question='attention to [SEP], neighbours and punctuation, entropies, gradients',
    time='10 s',
    inputs={'tuned': lambda given: None if _has_own_loss(given) else given.input('tuned_already')},
    wants=lambda given: map(named, STATISTICS),
    cost=lambda given: 6 * given.tokens('texts'),
)
def look_at(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    gradients: bool | None = None,
    masking: Masking | None = None,
    settings: TextSettings = TextSettings(),
) -> LookAt:
    """Measure what heads look at, as Clark et al. (2019, section 3) do.

    Their texts are segments of running text, which `data.segments.read_segments` reads.

    Args:
      tuned: The model fine-tuned: gradients are of its loss, or of the first of several, if the
        model as it is has none on these texts.
      gradients: Whether to measure how much a loss depends on attention, in about three times the
        time of all else. None does if there is a loss, and otherwise says why not.
      masking: Which wordpieces are hidden for the loss of a masked LM; None takes the defaults.
      pretrained, texts, settings: As in `special_tokens`.

    Raises:
      ValueError: Gradients are asked for and the model has no loss to take them of, or a text has
        nothing that can be hidden; or `encode` would refuse the texts.
    """
    examples, models = as_examples(texts), {'': pretrained}
    if tuned is not None:
        models[f'fine-tuned, seed {seeds_of(tuned)[0]}'] = one_model(tuned)
    # First, since they may be refused.
    found, why = None, 'They were not asked for.'
    for name, model in models.items() if gradients is not False else ():
        try:
            found = gradients_of(model, examples, masking=masking, settings=settings)
            found, why = dataclasses.replace(found, of=name), ''
            break
        except ValueError as error:
            # Such as of a model of tags, or of texts without labels or what can be hidden.
            why = str(error)
    if found is None and gradients:
        raise ValueError(why)
    tables = settings.tables(pretrained, examples, list(map(named, STATISTICS)))
    looked = LookAt(tables, found, why)
    return labelled(looked)


def labelled(found: LookAt) -> LookAt:
    """Return the result with its tables: layers, heads above half, gradients, and all heads."""
    layers, tables, gradients = found.layers, dict(found.tables), found.gradients
    units = {name: named(name).unit for name in STATISTICS}
    means = {name: table.mean.mean(axis=1) for name, table in tables.items()}
    means |= {f'Clark et al.: {name}': each for name, each in _published(layers).items()}
    theirs = paper.what_bert_looks_at().heads_over_half
    counts = [
        (name, len(heads), *ends, ', '.join(heads) or 'none', theirs.get(name, np.nan))
        for name in COUNTED
        for heads, *ends in [heads_over_half(tables[name])]
        if tables[name].count
    ]
    frames = {
        'layers': grids_frame(
            means,
            'Mean over the heads of a layer; attention as a share, entropies in nats.'
            + _read_from_figures(layers),
        ),
        'counts': framed(
            ('attention to', 'heads', 'at least', 'at most', 'which', 'BERT-base'),
            counts,
            'Heads that give a kind of token more than half of their attention.',
        ),
    }
    if gradients is not None:
        rows = [
            (layer + 1, name, each.mean[layer].mean(), each.standard_error[layer].mean(),
             each.count, gradients.unit)
            for name, each in gradients.tables.items()
            if each.count
            for layer in range(layers)
        ]  # fmt: skip
        frames['gradients'] = framed(
            ('layer', 'type', 'mean', 'standard_error', 'examples', 'unit'),
            rows,
            f'Gradient of {gradients.title}, mean over heads.',
            colours=Colours('layers', {'mean': ('standard_error', 'examples')}, by=('type',)),
        )
        theirs = {f'gradient at {name}': each for name, each in gradients.tables.items()}
        tables, units = tables | theirs, units | dict.fromkeys(theirs, gradients.unit)
    return found.with_frames(
        frames | {'heads': heads_frame(tables, units, 'Every statistic of every head.')}
    )


def _published(layers: int) -> dict[str, np.ndarray]:
    means = paper.what_bert_looks_at().layers
    return {name: values for name, values in means.items() if len(values) == layers}


def _read_from_figures(layers: int) -> str:
    """Return a sentence on the errors of what is published, if it is of as many layers."""
    published = paper.what_bert_looks_at()
    errors = f'{published.error:g} (entropies: {published.entropy_error:g})'
    return f' Published: BERT-base, read from figures to {errors}.' if _published(layers) else ''


def _draw(result: LookAt, name: str):
    kinds, label, caption = _FIGURES[name]
    # A tokenizer may have neither a full stop nor a comma.
    known = {name: table.mean for name, table in result.tables.items() if table.count}
    panels = {
        title: {name: known[name] for name in names if name in known}
        for title, names in kinds.items()
    }
    published = {'published': _published(result.layers), 'published_name': _PUBLISHED}
    caption += f' {_POINTS}{_read_from_figures(result.layers)}'
    return plots.head_points(panels, label=label, **published).captioned(
        caption, plots.Source('heads', 'mean')
    )


def _draw_gradients(result: LookAt):
    gradients = result.gradients
    assert gradients is not None
    known = {name: table.mean for name, table in gradients.tables.items() if table.count}
    # The caption names the loss, which may be too long for a title.
    return plots.head_points({'gradient of the loss': known}, label=gradients.unit).captioned(
        f'Gradient of {gradients.title}, by type of token ({SOURCE}, Figure 3). {_POINTS}',
        plots.Source('heads', 'mean', 'gradient at {}'),
    )
