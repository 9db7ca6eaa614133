"""The catalogue of statistics: their names, their meanings and their sources.

    tables = bs.collect(pretrained, batches, ['[SEP]', 'entropy (nats)'])
    bs.catalogue.CATALOGUE['entropy (nats)'].title  # 'entropy of attention'

These facts stand here and nowhere else. A statistic of your own needs no entry:
'package.module:name' names a function of the form that `measure/statistics.py` describes, or a
`Described` that also has a title and a unit.
"""

import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

from jax.sharding import Mesh

from bert_secrets_jax.checks import check_different, meant
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure import statistics
from bert_secrets_jax.measure.links import directions
from bert_secrets_jax.measure.statistics import Comparison, Reading, Statistic
from bert_secrets_jax.measure.stream import MapsOf, Reduction, learned_maps, stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained, check_heads_alike

SHARE = 'share of attention'
ENTROPY = 'entropy (nats)'
UNIFORM = 'entropy of even attention'
CONFIDENCE = 'confidence'
GREATEST_AT_PREVIOUS = 'greatest at previous token'
GREATEST_AT_NEXT = 'greatest at next token'
# The statistics that are measured where none are named.
DEFAULTS = (
    '[CLS]',
    '[SEP]',
    '[CLS] and all [SEP]',
    'self',
    'previous token',
    'next token',
    ENTROPY,
)


@dataclasses.dataclass(frozen=True)
class Described:
    """A statistic and its description. It can be called like its function.

    Attributes:
      name: The key in tables, CSV files and configs.
      title: A noun phrase for captions, such as 'attention to [SEP]'.
      function: The statistic of one example, as `measure/statistics.py` describes it.
      unit: The unit of its values.
      limits: The least and the greatest possible value; infinite where there is none.
      least_first: Whether the smallest values are the most remarkable, as for entropy.
      source: The publication and the section that it comes from.
      reading: Whether words are found as the 'paper' says, or as its authors' 'notebook' did.
      pairwise: Whether its function takes the maps of two models and the marks.
      features, relations: The names, in `marks`, of the annotations that it reads; None if the
        features are not known.
      classifier: The trained classifier of patterns that it uses; None if it uses none.
      part: The place of its values on a further axis of those of `function`; None if these have no
        further axis. Statistics of one function are computed once.
    """

    name: str
    title: str
    function: Statistic | Comparison
    unit: str = 'value'
    limits: tuple[float, float] = (-math.inf, math.inf)
    least_first: bool = False
    source: str = ''
    reading: Reading = 'paper'
    pairwise: bool = False
    features: tuple[str, ...] | None = ()
    relations: tuple[str, ...] = ()
    classifier: Any = dataclasses.field(default=None, repr=False)
    part: int | None = None

    def __call__(self, *maps_and_marks):
        value, weight = self.function(*maps_and_marks)
        return value if self.part is None else value[..., self.part], weight

    @property
    def annotated(self) -> bool:
        """Whether its values may depend on the annotations of the texts."""
        return self.features is None or bool(self.features or self.relations)


def notebook(name: str) -> str:
    """Return the name of a statistic in the reading of the authors' notebook."""
    return f'{name} (notebook)'


def of_words(statistic: Described) -> Described:
    """Return a statistic of the maps between words instead of wordpieces.

    >>> of_words(CATALOGUE['previous token']).name
    'previous token (words)'
    """
    return dataclasses.replace(
        statistic,
        name=f'{statistic.name}{_WORDS}',
        title=f'{statistic.title}, between words',
        function=statistics.of_words(statistic.function),
    )


def from_cls(name: str) -> str:
    """Return the name of the attention of [CLS] to a kind of token."""
    return f'from [CLS] to {name}'


def change(name: str) -> str:
    """Return the name of a statistic's change: the second model's value minus the first model's."""
    return f'change of attention {name}' if name.startswith('from ') else f'change of {name}'


_WORDS = ' (words)'  # the end of the names of statistics of maps between words
# The features and relations of the paper, and those that its authors' notebook had.
FEATURES = ('noun', 'verb', 'pronoun', 'subject', 'object', 'negation', 'punctuation')
FEATURES_OF_NOTEBOOK = ('noun', 'verb', 'pronoun', 'subject', 'object', 'negation')
RELATIONS = ('verb-subject', 'noun-pronoun')
RELATIONS_OF_NOTEBOOK = ('verb-subject',)
# The names of its marks where they are others: it had active subjects only.
_MARKS_OF_NOTEBOOK = {'negation': 'negation_word', 'verb-subject': 'verb-nsubj'}
# It counted examples without a feature as 0, except for negation.
_COUNTED_BY_NOTEBOOK = {'negation': 'negation_substring'}

_OF_FEATURES = 'Kovaleva et al. 2019, section 4.4'
_OF_TOKENS = 'Kovaleva et al. 2019, section 4.5'


def plural(feature: str) -> str:
    """Return what several tokens of a kind are called; special tokens keep their names."""
    return feature if feature == 'punctuation' or feature.startswith('[') else f'{feature}s'


def _share(
    name: str, title: str, function: Statistic, *, reading: Reading, **more: Any
) -> Described:
    """Return a statistic whose values are shares of attention, named by its reading."""
    if reading == 'notebook':
        name, title = notebook(name), notebook(title)
    return Described(name, title, function, unit=SHARE, limits=(0.0, 1.0), reading=reading, **more)


def _without_annotations() -> list[Described]:
    clark, voita = 'Clark et al. 2019, section 3', 'Voita et al. 2019, section'
    share = functools.partial(Described, unit=SHARE, limits=(0.0, 1.0))
    special = functools.partial(share, source=_OF_FEATURES)
    neighbour = functools.partial(share, source=clark)
    summed = functools.partial(share, source=f'{clark}.2')
    even = functools.partial(Described, unit='nats', limits=(0.0, math.inf), source=f'{clark}.3')
    focused = functools.partial(even, least_first=True)
    role = functools.partial(
        Described, unit='share of tokens', limits=(0.0, 1.0), source=f'{voita} 5.1'
    )
    return [
        special('[CLS]', 'attention to [CLS]', statistics.to_cls),
        special('[SEP]', 'attention to [SEP]', statistics.to_sep),
        special('[CLS] and all [SEP]', 'attention to [CLS] and all [SEP]', statistics.to_special),
        neighbour('self', 'attention of a token to itself', statistics.to_self),
        neighbour('previous token', 'attention to the previous token', statistics.to_previous),
        neighbour('next token', 'attention to the next token', statistics.to_next),
        focused(ENTROPY, 'entropy of attention', statistics.entropy),
        summed('all [SEP]', 'attention to all [SEP] together', statistics.to_all_sep),
        summed(
            'period or comma',
            'attention to all full stops and commas together',
            statistics.to_period_or_comma,
        ),
        summed('[SEP] to [SEP]', 'attention of [SEP] to all [SEP] together', statistics.sep_to_sep),
        summed(
            'other tokens to [SEP]',
            'attention of other tokens to all [SEP] together',
            statistics.others_to_sep,
        ),
        focused(
            'entropy of [CLS] (nats)',
            'entropy of the attention of [CLS]',
            statistics.entropy_of_cls,
        ),
        focused(
            'entropy, smoothed (nats)', 'entropy of smoothed attention', statistics.smoothed_entropy
        ),
        focused(
            'entropy of [CLS], smoothed (nats)',
            'entropy of the smoothed attention of [CLS]',
            statistics.smoothed_entropy_of_cls,
        ),
        even(UNIFORM, UNIFORM, statistics.uniform_entropy),
        share(
            CONFIDENCE,
            'greatest attention of a token (confidence)',
            statistics.confidence,
            source=f'{voita} 4',
        ),
        role(
            GREATEST_AT_PREVIOUS,
            'greatest attention at the previous token',
            statistics.greatest_at_previous,
        ),
        role(GREATEST_AT_NEXT, 'greatest attention at the next token', statistics.greatest_at_next),
    ]


def _to_feature(feature: str, reading: Reading = 'paper') -> Described:
    marks, counted = feature, None
    if reading == 'notebook':
        marks = _MARKS_OF_NOTEBOOK.get(feature, feature)
        counted = _COUNTED_BY_NOTEBOOK.get(feature, 'token')
    return _share(
        feature,
        f'attention to {plural(feature)}',
        statistics.attention_to(marks, reading=reading, among=counted),
        reading=reading,
        source=_OF_FEATURES,
        features=(marks,) if counted in (None, 'token') else (marks, counted),
    )


def _from_cls_to(name: str, reading: Reading = 'paper') -> Described:
    marks = name.strip('[]').lower()
    if reading == 'notebook':
        marks = _MARKS_OF_NOTEBOOK.get(name, name)
    return _share(
        from_cls(name),
        f'attention of [CLS] to {plural(name)}',
        statistics.cls_to(marks, reading=reading),
        reading=reading,
        source=_OF_TOKENS,
        features=() if name.startswith('[') else (marks,),
    )


def relation(
    name: str, reverse: bool = False, reading: Reading = 'paper', *, marks: str = ''
) -> Described:
    """Return the statistic of attention along the links of a relation, such as one of your own.

    >>> relation('verb-object', reverse=True).name
    'object to verb'

    A name such as 'source-target' names both ends of a link; in reverse, attention goes from target
    to source. The reading 'paper' counts only examples that have a link. 'notebook' reads the links
    as the authors' notebook did (`data.annotation.align`), and counts every example. `marks` is the
    name of the links among the marks of texts, if it is another.
    """
    marks, ways = marks or name, directions([name]).items()
    (title,) = (title for title, direction in ways if direction.reverse == reverse)
    # The notebook counts every example.
    among = None if reading == 'paper' else 'token'
    along = statistics.attention_of_links(marks, reading=reading, among=among, reverse=reverse)
    named = {'reading': reading, 'source': _OF_TOKENS, 'relations': (marks,)}
    return _share(title, f'attention from {title}', along, **named)


def _along_links(reverse: bool) -> list[Described]:
    return [
        *(relation(name, reverse) for name in RELATIONS),
        *(
            relation(name, reverse, 'notebook', marks=_MARKS_OF_NOTEBOOK[name])
            for name in RELATIONS_OF_NOTEBOOK
        ),
    ]


def _comparisons() -> list[Described]:
    source = 'Kovaleva et al. 2019, section 4.3'
    cosine = functools.partial(
        Described, unit='cosine similarity', limits=(0.0, 1.0), pairwise=True, source=source,
        least_first=True,  # Much changed is little alike.
    )  # fmt: skip
    padded = 'cosine similarity of the padded maps (notebook)'
    return [
        cosine('cosine', 'cosine similarity of the maps', statistics.cosine),
        cosine('cosine (padded)', padded, statistics.cosine_padded, reading='notebook'),
    ]


CATALOGUE: Mapping[str, Described] = types.MappingProxyType(
    {
        each.name: each
        for each in (
            *_without_annotations(),
            *map(_to_feature, FEATURES),
            *(_to_feature(feature, 'notebook') for feature in FEATURES_OF_NOTEBOOK),
            *map(_from_cls_to, ('[CLS]', '[SEP]', *FEATURES)),
            *(_from_cls_to(feature, 'notebook') for feature in FEATURES_OF_NOTEBOOK),
            *_along_links(reverse=False),
            *_along_links(reverse=True),
            *_comparisons(),
        )
    }
)


def _limits_of_change(limits: tuple[float, float]) -> tuple[float, float]:
    least, greatest = limits
    return least - greatest, greatest - least


_LIMITS = {name: each.limits for name, each in CATALOGUE.items()} | {
    change(name): _limits_of_change(each.limits) for name, each in CATALOGUE.items()
}


def limits_of(name: str) -> tuple[float, float]:
    """Return the limits of a statistic of the catalogue, or of its change; infinite for others.

    >>> limits_of('[SEP]'), limits_of('change of [SEP]')
    ((0.0, 1.0), (-1.0, 1.0))
    """
    return _LIMITS.get(name.removesuffix(_WORDS), (-math.inf, math.inf))


def named(name: str) -> Described:
    """Return a statistic by its name.

    The name is one of `CATALOGUE`, or 'package.module:name' for a statistic of your own: a function
    of the maps and marks of one example, a function of the maps of two models and the marks, or a
    `Described`. Any of these with ' (words)' at its end is measured on maps between words.

    Raises:
      ValueError: There is no such statistic; the error says what is missing.
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    if name.endswith(_WORDS):
        return of_words(named(name.removesuffix(_WORDS)))
    module, colon, attribute = name.partition(':')
    parts = [*module.split('.'), attribute]
    if not colon or not all(map(str.isidentifier, parts)):
        near = f'There is no statistic {name!r}. {meant(name, CATALOGUE)}'.rstrip()
        raise ValueError(
            f'{near} list(bs.catalogue.CATALOGUE) has all names; one of your own is '
            "'package.module:function'."
        )
    return _own(name, _imported(name, module, attribute))


def _imported(name: str, module: str, attribute: str) -> Any:
    try:
        imported = importlib.import_module(module) if module else None
    except ModuleNotFoundError as error:
        # Something else that the module imports may be missing: that error says so by itself.
        if not f'{module}.'.startswith(f'{error.name}.'):
            raise
        imported = None
    if imported is None:
        raise ValueError(
            f'Statistic {name!r}: there is no module {module!r}. Is its folder on the Python path '
            '(PYTHONPATH)?'
        )
    try:
        return getattr(imported, attribute)
    except AttributeError:
        wrong = f'Statistic {name!r}: {module} has no {attribute!r}. '
        raise ValueError((wrong + meant(attribute, dir(imported))).rstrip()) from None


def _own(name: str, own: Any) -> Described:
    if isinstance(own, Described):
        return own
    if not callable(own) or isinstance(own, type):
        raise ValueError(
            f'Statistic {name!r} is a {type(own).__name__} and no function of maps and marks.'
        )
    arguments = sum(
        each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in inspect.signature(own).parameters.values()
    )
    if arguments not in (2, 3):
        raise ValueError(
            f'Statistic {name!r} takes {arguments} arguments: it should take the maps and marks of '
            'one example (attentions, marks), or the maps of two models and the marks.'
        )
    return Described(
        name=name,
        title=name.rpartition(':')[2].replace('_', ' '),
        function=cast('Statistic | Comparison', own),
        pairwise=arguments == 3,
        features=None,
    )


def collect(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Statistic] | Sequence[str | Described],
    *,
    also: Mapping[Any, Statistic | Reduction] = types.MappingProxyType({}),
    head_mask: Any = None,
    baseline: str = 'uniform',
    keep_values: bool = False,
    mesh: Mesh | None = None,
    maps_of: MapsOf = learned_maps,
) -> dict[Any, Any]:
    """Measure statistics of all heads over all examples, in one forward pass for each example.

    Args:
      pretrained: The model.
      batches: The batches from `encode`, or from `stream_batches` for a corpus of any size. Any
        iterable will do: it is read once, and at most two batches are held at a time.
      statistics: Names, such as ['[SEP]', 'entropy (nats)'], or functions by names of your choice,
        such as {'mine': my_statistic}. A listed name is one of `bs.catalogue.CATALOGUE`, or
        'package.module:name' of a function of your own; a `Described` can stand in its place. A
        function takes the maps and marks of one example (`measure/statistics.py`) and returns a
        value [L, N], or with further axes [L, N, ...], and a weight. If you pass the same function
        objects again, nothing is compiled again.
      also: Further statistics to measure in the same pass, such as those along random links
        (`links.with_random_links`). Their tables, or what a `Reduction` makes, have the same keys.
      head_mask: A mask [L, N] of the heads: 1 keeps a head, 0 replaces its map by the baseline.
        This also changes the maps of later layers. None keeps all heads.
      baseline: The map of masked heads: 'uniform' (the same weight on every token) or 'zero'.
      keep_values: Whether to return the value of each example as well, which takes memory.
      mesh: The devices, with an axis `data`, over which each batch is split; None uses one device.
        Rows must be a multiple of the devices (`encode(..., batch_multiple=...)`).
      maps_of: The values that the maps have: their weights, or how much is moved along them
        (`bs.shares_of_norms`, `bs.norms_of_heads`). The same function is not compiled again.

    Returns:
      A `HeadTable` for each name. It is the same for any size and order of the batches and any
      number of devices, up to the rounding of float32.

    Raises:
      ValueError: There are no batches, their rows cannot be split over the devices, the texts lack
        marks that a statistic reads, there is no statistic of that name, two have the same name, or
        one compares two models.
      TypeError: The arguments are not a model, batches and statistics.
    """
    described = _described(statistics)
    for each in described:
        if isinstance(each, Described) and each.pairwise:
            raise ValueError(
                f'{each.name!r} compares two models: bs.compare(before, after, batches, '
                f'[{each.name!r}]) measures it.'
            )
    return _apart(
        (pretrained,), batches, described, also,
        head_mask=head_mask, baseline=baseline, keep_values=keep_values, mesh=mesh, maps_of=maps_of,
    )  # fmt: skip


def compare(
    before: Pretrained,
    after: Pretrained,
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Comparison] | Sequence[str | Described],
    *,
    also: Mapping[Any, Comparison] = types.MappingProxyType({}),
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[Any, HeadTable]:
    """Compare the maps of two models, such as those before and after fine-tuning.

    Both models run in one compiled pass, and their maps are never stored. Tables, batches and the
    other options are as in `collect`.

    Args:
      before, after: The two models, with as many layers and as many heads each.
      statistics: Names, or functions by name, as in `collect`. A function takes the maps of the
        first model, those of the second and the marks. The name of a statistic of one model, such
        as '[SEP]', gives two tables: the second model's under its name, and the second model's
        minus the first model's, example by example, under 'change of [SEP]'.

    Raises:
      ValueError, TypeError: As in `collect`.
    """
    check_heads_alike(before, after)
    described = _described(statistics)
    if isinstance(described, list):
        both = ([each] if each.pairwise else [of_second(each), changed(each)] for each in described)
        described = list(itertools.chain.from_iterable(both))
    return _apart((before, after), batches, described, also, keep_values=keep_values, mesh=mesh)


# Further names of the same functions.
measure, measure_change = collect, compare
_MEND = (
    "give names, ['[SEP]', 'entropy (nats)'], or functions by name, {'mine': my_statistic}; "
    'list(bs.catalogue.CATALOGUE) has all names.'
)


def _described(
    statistics: Mapping[Hashable, Any] | Sequence[str | Described],
) -> Mapping[Hashable, Any] | list[Described]:
    """Return functions by name as they are, and of a list the description of each."""
    if isinstance(statistics, Mapping):
        for name, statistic in statistics.items():
            if not callable(statistic):
                raise TypeError(
                    f'Statistic {name!r} is a {type(statistic).__name__} and no function: {_MEND}'
                )
        return statistics
    if isinstance(statistics, str | Described) or callable(statistics):
        raise TypeError(f'Statistics are several, and this is a single one: {_MEND}')
    described = []
    for each in statistics:
        if not isinstance(each, str | Described):
            raise TypeError(f'A {type(each).__name__} has no name as a statistic: {_MEND}')
        described.append(named(each) if isinstance(each, str) else each)
    return described


def of_second(described: Described) -> Described:
    """Return a statistic of one model as a comparison that measures the second of two models."""
    return _compared(described, statistics.of_second)


def changed(described: Described) -> Described:
    """Return the second model's statistic minus the first model's, example by example."""
    return dataclasses.replace(
        _compared(described, statistics.difference),
        name=change(described.name),
        title=change(described.title),
        limits=_limits_of_change(described.limits),
        least_first=False,
    )


def _compared(described: Described, make: Callable[..., Comparison]) -> Described:
    if described.pairwise:
        raise ValueError(f'{described.name!r} compares two models already.')
    return dataclasses.replace(described, function=make(described.function), pairwise=True)


def _apart(models, batches, described, also: Mapping[Any, Any], **options) -> dict[Any, Any]:
    """Measure statistics, each function once, and return the table of each."""
    if isinstance(described, Mapping):
        return stream(models, batches, {**described, **also}, **options)
    names = [each.name for each in described]
    check_different('statistics', [*names, *also], 'measure each once')
    first: dict[Any, str] = {}
    for each in described:
        first.setdefault(each.function, each.name)
    functions = {name: function for function, name in first.items()}
    measured = stream(models, batches, {**functions, **also}, **options)
    tables = {}
    for each in described:
        table = measured[first[each.function]]
        tables[each.name] = table if each.part is None else table.unstack()[each.part]
    return tables | {key: measured[key] for key in also}
