"""The maps of example sentences, as figures and in the explorer (Figures 1 and 4)."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common.inputs import Models, one_model, readable
from bert_secrets_jax.analyses.common.tables import Tables, top_head
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.contributions.attention_maps import KINDS, attention_maps
from bert_secrets_jax.contributions.scores import METHODS, RANDOM, SIGNED
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.catalogue import DEFAULTS, ENTROPY, named
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.result import Figures, Result, noted

# First those that know which class is predicted; random scores say nothing of a token.
_METHODS = (*SIGNED, *(method for method in METHODS if method not in (RANDOM, *SIGNED)))


class ExampleMaps(Result):
    """The maps of all heads on a few sentences.

    Attributes:
      maps: The maps of each sentence; behind those of the model, those of the 'fine-tuned'.
      telling: The heads that are drawn large, as layer and head counted from 0, by the reason for
        it ('L3-H1: most to [SEP]').
    """

    title = 'Maps of example sentences'

    maps: Mapping[str, tuple[TokenMaps, ...]]
    telling: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> tuple[TokenMaps, ...]:
        """The maps of the model before fine-tuning, one for each sentence."""
        return next(iter(self.maps.values()))

    def figures(self):
        large, every = {}, {}
        for number, example in enumerate(self.first, 1):
            every[f'maps{number}_all'] = functools.partial(_draw_all, example)
            if self.telling:
                large[f'maps{number}_heads'] = functools.partial(_draw_heads, self, example)
        # On a page, the explorer stands in for the maps of all heads.
        return Figures(large | every, only_files=every)

    def notes(self):
        further = 'Norms: how much a head moves from each token. Rollout: what arrives through all '
        return [
            'Rows attend to columns. Choose a sentence and a head: a click, or Enter, opens its '
            'map; Escape goes back.',
            *noted({f'{further}layers.': any(example.further for example in self.first)}),
        ]

    def token_maps(self):
        return {name or self.subject.model: maps for name, maps in self.maps.items()}


def _tables(given) -> Call:
    """Return the tables of `special_tokens`, with its usual statistics whatever it measures."""

    def load() -> Tables:
        settings, wanted = given.value('settings'), [named(name) for name in DEFAULTS]
        return settings.tables(given.value('pretrained'), given.value('texts'), wanted)

    result = given.result('special_tokens')
    return Call(operator.attrgetter('tables'), (result,), make=load, content=lambda: DEFAULTS)


def _check(given) -> None:
    """Refuse to show the maps of no sentence."""
    if given['maps.examples'] < 1:
        raise ValueError(
            'maps.examples must be at least 1; to do without, leave out the section maps.'
        )


@analysis(
    question='maps of example sentences, and an explorer of all heads',
    report='always',
    section='maps',
    file='maps',
    title='maps',
    inputs={'tuned': 'tuned_already', 'count': 'maps.examples', 'tables': _tables},
    wants=lambda given: map(named, DEFAULTS),
    check=_check,
)
def example_maps(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    count: Count = 3,
    max_length: int | None = None,
    tables: Tables | None = None,
) -> ExampleMaps:
    """Return the maps of all heads on a few texts that are short enough for a figure.

    Args:
      pretrained: The model before fine-tuning.
      texts: The texts to choose from. The chosen ones are spread evenly over the shortest fifth.
      tuned: The same model fine-tuned, whose maps are shown, too. Of several, the first is used.
      count: The number of texts to show. If there are fewer, all are shown.
      max_length: The greatest number of tokens, as in `bs.encode`.
      tables: The statistics of `special_tokens`, in which extreme heads are drawn large; None draws
        no head large.

    Raises:
      ValueError: The count is below 1.
    """
    chosen = readable(pretrained, as_examples(texts), count=count, max_length=max_length)
    models = {'': pretrained} | ({} if tuned is None else {'fine-tuned': one_model(tuned)})
    maps = {
        name: tuple(maps_of(model, chosen, max_length=max_length)) for name, model in models.items()
    }
    return ExampleMaps(maps, telling_heads(tables) if tables else {})


def maps_of(
    model: Pretrained, texts: Sequence[Text], *, max_length: int | None = None
) -> list[TokenMaps]:
    """Return the maps of a few texts, of all kinds and with the scores of all methods."""
    classifies = model.config.head == SEQUENCES and model.config.num_labels
    methods = _METHODS if classifies else ()
    return attention_maps(model, texts, max_length=max_length, kinds=tuple(KINDS), methods=methods)


def telling_heads(tables: Tables) -> dict[str, tuple[int, int]]:
    """Return the heads, from 0, that are extreme in a statistic, by the reason."""
    extremes = {
        f'most to {name}': tables[name].mean
        for name in ('[CLS]', '[SEP]', 'previous token', 'next token')
        if name in tables
    }
    if ENTROPY in tables:
        entropy = tables[ENTROPY].mean
        extremes |= {'most focused': -entropy, 'broadest': entropy}
    reasons: dict[tuple[int, int], list[str]] = {}
    for reason, values in extremes.items():
        reasons.setdefault(top_head(values), []).append(reason)
    return {f'{head_name(*head)}: {", ".join(found)}': head for head, found in reasons.items()}


def _draw_heads(result: ExampleMaps, example: TokenMaps):
    return plots.head_maps(
        {title: example.attentions[tuple(head)] for title, head in result.telling.items()},
        example.tokens,
    ).captioned('Heads that stand out, on a sentence.')


def _draw_all(example: TokenMaps):
    return plots.map_grid(example.attentions).captioned('All heads on a sentence.')
