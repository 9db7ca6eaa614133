"""Maps of example sentences, to look at: as figures, and in the explorer (Figures 1 and 4)."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.models import Models, one_model
from bert_secrets_jax.analyses.tables import Tables, top_head
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.measure.maps import TokenMaps, attention_maps
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Figures, Result, Subject


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ExampleMaps(Result):
    """Maps of all heads on a few sentences.

    Attributes:
      subject: Model and texts.
      maps: Name of a model to its maps of each sentence; a second model is the fine-tuned one.
      telling: Why heads are shown in large ('L3-H1: most to [SEP]') to layer and head, from 0.
    """

    subject: Subject
    maps: Mapping[str, tuple[TokenMaps, ...]]
    telling: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        return 'Maps of example sentences'

    @property
    def first(self) -> tuple[TokenMaps, ...]:
        """Maps of the model as it is."""
        return next(iter(self.maps.values()))

    def figures(self):
        numbered = list(enumerate(self.first, 1))
        large = {
            f'maps{number}_heads': functools.partial(_draw_heads, self, example)
            for number, example in numbered
            if self.telling
        }
        every = {
            f'maps{number}_all': functools.partial(_draw_all, example)
            for number, example in numbered
        }
        # The page has the explorer instead.
        return Figures(large | every, only_files=every)

    def notes(self):
        notes = [
            'Each map shows how much every token (row) attends to every token (column). Choose a '
            'sentence and a head: a click, or the arrow keys and Enter, opens its map with what is '
            'known about it; Escape goes back. All heads together, for a paper, are in the files '
            'that end in "_all".'
        ]
        if self.telling:
            notes.append(
                'The figures below are of the heads that attend most to [CLS], to [SEP] and to the '
                'neighbouring tokens, and of the most focused and the broadest one.'
            )
        return notes

    def token_maps(self):
        return dict(self.maps)


def example_maps(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    tuned: Models | None = None,
    count: int = 3,
    max_length: int = 128,
    tables: Tables | None = None,
    subject: Subject | None = None,
) -> ExampleMaps:
    """Return the maps of all heads on a few of the texts that can be read in a figure.

    Args:
      pretrained: The model as it is.
      texts: To choose from: evenly over the shortest fifth.
      tuned: The same model fine-tuned; of several, the first.
      count: How many texts are shown.
      max_length: Longer inputs are cut to so many wordpieces.
      tables: Statistics of the heads (of `special_tokens`), from which heads that stand out are
        chosen; none are shown in large without them.
      subject: What model and texts are called.

    Raises:
      ValueError: `count` is below 1.
    """
    subject = subject or Subject()
    chosen = choose(pretrained, as_examples(texts), count=count, max_length=max_length)
    models = {subject.model: pretrained}
    if tuned is not None:
        models['fine-tuned'] = one_model(tuned)
    maps = {
        name: tuple(attention_maps(model, chosen, max_length=max_length))
        for name, model in models.items()
    }
    return ExampleMaps(subject, maps, telling_heads(tables) if tables else {})


def choose(
    pretrained: Pretrained, examples: Sequence[Example], *, count: int, max_length: int
) -> list[Example]:
    """Return examples that can be read in a figure: evenly over the shortest fifth.

    Raises:
      ValueError: `count` is below 1.
    """
    if count < 1:
        raise ValueError(f'The number of example sentences must be at least 1, not {count}.')
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    by_length = np.argsort(encoded.lengths, kind='stable')
    readable = by_length[: max(count, len(by_length) // 5)]
    places = np.linspace(0, len(readable) - 1, min(count, len(readable))).astype(int)
    return [examples[readable[place]] for place in places]


def telling_heads(tables: Tables) -> dict[str, tuple[int, int]]:
    """Return the heads that are extreme in a statistic: why they are, to layer and head.

    Args:
      tables: Of `special_tokens`; statistics that it lacks are left out.
    """
    extremes = {
        f'most to {name}': tables[name].mean
        for name in ('[CLS]', '[SEP]', 'previous token', 'next token')
        if name in tables
    }
    if 'entropy (nats)' in tables:
        entropy = tables['entropy (nats)'].mean
        extremes |= {'most focused': -entropy, 'broadest': entropy}
    reasons: dict[tuple[int, int], list[str]] = {}
    for reason, values in extremes.items():
        reasons.setdefault(top_head(values), []).append(reason)
    return {f'{head_name(*head)}: {", ".join(found)}': head for head, found in reasons.items()}


def _draw_heads(result: ExampleMaps, example: TokenMaps):
    figure = plots.head_maps(
        {title: example.attentions[tuple(head)] for title, head in result.telling.items()},
        example.tokens,
    )
    figure.caption = 'Heads that stand out over all texts, on: ' + ' '.join(example.tokens)
    return figure


def _draw_all(example: TokenMaps):
    figure = plots.map_grid(example.attentions)
    figure.caption = 'All heads, on: ' + ' '.join(example.tokens)
    return figure
