"""Do single heads find dependency relations, or other links between words? (Clark et al. 2019)

For each relation, the best head is chosen on a training part of the texts and reported on another,
beside the best fixed offset, random weights, and other places (`measure/links.py`).

Axes: R relations, L layers, N heads, 2 ways along a link.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, cast

import numpy as np
from absl import logging
from jaxtyping import Bool, Float, Int

from bert_secrets_jax import plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import marks
from bert_secrets_jax.analyses.common.links import beyond
from bert_secrets_jax.analyses.common.models import in_both
from bert_secrets_jax.analyses.common.texts import TextSettings, encoded_of, with_progress
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Encoded, bucket, mark
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.data.treebank import Parse, encode_parses
from bert_secrets_jax.measure.catalogue import relation
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.links import (
    RandomLinks,
    directions,
    link_scores,
    link_tests,
    with_random_links,
)
from bert_secrets_jax.measure.stream import Reduction, stream
from bert_secrets_jax.measure.word_links import (
    ALL,
    WAYS,
    Found,
    WordLinks,
    best_offsets,
    finding,
    links_of_annotations,
    links_of_parses,
)
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.weights import Pretrained, without_head
from bert_secrets_jax.names import head_name
from bert_secrets_jax.paper import clark
from bert_secrets_jax.plots.kinds import plain_relation
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.cost import Cost
from bert_secrets_jax.runs.findings import extreme, how_many, measured
from bert_secrets_jax.runs.result import Figures, Finding, Result, framed
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.shares import wilson
from bert_secrets_jax.stats.student import LEVEL, interval, p_above, reach

SOURCE = 'Clark et al. 2019, section 4.2, Table 1'
# Relations with fewer links in either part are not looked at alone: no interval would hold.
FEWEST = 20
# Links whose places are drawn to compare with: of so many texts, the first ones.
_NULL_TEXTS = 500
# Grids that are drawn, and findings that are stated.
_SHOWN = 6
_STATED = 5
# From which share of common texts on, two parts are not two.
_MOSTLY_SHARED = 0.5
# The published head, share and baseline of a relation without any.
_UNPUBLISHED = ('–', np.nan, np.nan)

Annotated = tuple[Sequence[Example], Sequence[Annotation]]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class SyntaxHeads(Result):
    """How often the most attended word of a head is the one that a word is linked to.

    Attributes:
      relations: The R relations with enough links; the last one is 'all', of every link.
      train, dev: The links that each head finds in the training part, and in the other part.
      offsets: [R] The best fixed offset of each relation, chosen on the training part.
      random: [R, 3] The share that the best head of each relation, chosen likewise, finds with
        random weights in the other part, and the ends of its 95 % interval; NaN if not tried.
      beyond: [R, L, N, 2] The greatest corrected p-value of the comparisons of the attention along
        the links with other places (`links.LinkTest.familywise`), in the other part; NaN where
        there are none.
      kinds: The kinds of places.
      few: The relations that have too few links to be looked at alone.
      left_out: The number of links, in both parts, an end of which has no wordpiece of its own.
      shared: The share of the texts of the other part that are in the training part, too.
    """

    title: ClassVar[str] = 'Heads that find relations between words'
    FORMAT: ClassVar[int] = 3

    relations: tuple[str, ...]
    train: Found
    dev: Found
    offsets: Int[np.ndarray, ' R']
    random: Float[np.ndarray, 'R 3']
    beyond: Float[np.ndarray, 'R L N 2']
    kinds: tuple[str, ...]
    few: tuple[str, ...]
    left_out: int
    shared: float = 0.0

    @property
    def best(self) -> list[tuple[int, int, int]]:
        """The layer, the head and the way, from 0, that find most links in the training part."""
        return chosen_heads(self.train)

    @property
    def p_values(self) -> Float[np.ndarray, ' R']:
        """The one-sided p-value of the best head of each relation against the offset."""
        place = _places(self.best)
        with np.errstate(divide='ignore', invalid='ignore'):
            t = self.dev.gain[place] / self.dev.gain_error[place]
        return p_above(np.nan_to_num(t, posinf=np.inf), self.dev.sentences - 1)

    @property
    def corrected(self) -> Float[np.ndarray, ' R']:
        """The same, corrected for the number of relations (Holm); 'all' is not one of them."""
        *single, of_all = self.p_values
        return np.append(holm(np.array(single)), of_all)

    @property
    def published_gains(self) -> dict[str, tuple[float, float, int]] | None:
        """The gain of the heads over the offset by the paper's relations; None of other links."""
        found = {
            name: self.gain_of(place)
            for place, name in enumerate(self.relations)
            if name in clark.RELATIONS and name != ALL
        }
        return found if self._has_published else None

    @property
    def _has_published(self) -> bool:
        """Whether the links are of the paper's kinds, and not such as coreference."""
        return any(name in clark.RELATIONS for name in (*self.relations[:-1], *self.few))

    def _published(self, place: int) -> clark.PublishedRelation | None:
        return clark.RELATIONS.get(self.relations[place]) if self._has_published else None

    @property
    def finds(self) -> Bool[np.ndarray, 'R L N 2']:
        """Whether each head finds each relation: the one verdict of sentences, circles and marks.

        It is surely above the offset, the best head of a relation after correction for all of them,
        and, if other places were compared, above all of these. Those of 'all' are not known.
        """
        reach = self._reach[:, None, None, None] * self.dev.gain_error
        found = self.dev.gain - reach > 0
        found[_places(self.best)] = self.corrected <= LEVEL
        if self.kinds:
            found[:-1] &= self.beyond[:-1] <= LEVEL
        return found

    def gain_of(self, place: int) -> tuple[float, float, int]:
        """Return a relation's gain of the head over the offset, its error, and its texts."""
        index, dev = (place, *self.best[place]), self.dev
        return float(dev.gain[index]), float(dev.gain_error[index]), int(dev.sentences[place])

    def verdicts(self):
        gains = self.published_gains
        if gains is None:
            needs = 'a treebank'
            both = (verdicts.RELATION_HEADS, verdicts.NO_HEAD_FOR_ALL)
            return [verdicts.not_measured(claim, needs) for claim in both]
        of_all = self.gain_of(len(self.relations) - 1)
        return [verdicts.relations_have_heads(gains), verdicts.no_head_for_all(*of_all)]

    def frames(self):
        frames = {'relations': self._relations(), 'heads': self._heads()}
        if self.few:
            caption = f'Relations with fewer than {FEWEST} links in a part: not looked at alone.'
            frames['few'] = framed(('relation',), [(name,) for name in self.few], caption)
        return frames

    def figures(self):
        shown = self._by_gain()[:_SHOWN]
        drawings = {'syntax_heads_relations': functools.partial(_draw_relations, self)}
        if shown:
            drawings['syntax_heads'] = functools.partial(_draw_heads, self, shown)
        return Figures(drawings)

    def findings(self):
        better, best, found = self.finds[_places(self.best)][:-1], self._by_gain(), []
        if better.size:
            found.append(
                how_many(
                    'relations with a head',
                    better,
                    'relations',
                    sample=int(self.dev.links[-1]),
                    sample_of='links',
                    source=SOURCE,
                    template='Heads find {estimate} {unit} beyond {beyond}.',
                    numbers={'beyond': beyond(self.kinds) if self.kinds else 'the best offset'},
                )
            )
        for place in [*best[:_STATED], len(self.relations) - 1]:
            found += self._findings(place)
        return found

    def notes(self):
        notes = [
            'A head finds a link if one end attends most to the other, "from the word" or "to the '
            'word".',
            'Heads and offsets are chosen on other texts than those they are measured on.',
        ]
        if self.shared:
            notes.append(
                f'{self.shared:.1%} of the texts that heads are measured on are among those that '
                'they were chosen on.'
            )
        if self._has_published:
            notes.append(
                'Published values: BERT-base on the Penn Treebank, chosen where they are measured.'
            )
        if self.kinds:
            notes.append('To find a relation, a head must beat the offset and all other places.')
        if self.left_out:
            notes.append(f'{self.left_out:,} links are left out: an end has no wordpiece.')
        return notes

    def head_notes(self):
        """The relations that each head finds, with their shares."""
        dev, texts = self.dev, np.full(self.dev.right.shape[1:3], '', object)
        for place, *head, way in np.argwhere(self.finds).tolist():
            before = f'{texts[*head]}, ' if texts[*head] else ''
            texts[*head] = (
                f'{before}{self.relations[place]} {dev.right[place, *head, way]:.0%} ({WAYS[way]}; '
                f'offset {dev.baseline[place]:.0%})'
            )
        return {'relations that it finds': texts.astype(str)}

    def head_marks(self):
        """Mark heads that find a relation."""
        dev, names = self.dev, self.relations[:-1]
        plain = list(map(plain_relation, names))
        shown, sentences, best = marks.empty(dev.right.shape[1:3])
        for place, *head, way in np.argwhere(self.finds[:-1]).tolist():
            sentences[*head] += (
                f'Finds {dev.right[place, *head, way]:.0%} of the links "{plain[place]}" '
                f'({names[place]}, {WAYS[way]}; the best offset {dev.baseline[place]:.0%}). '
            )
            gain = float(dev.gain[place, *head, way])
            if gain > best[*head]:
                shown[*head], best[*head] = plain[place], gain
        return [marks.made('finds a relation', 'colour', shown, sentences, rank=marks.LINK)]

    def _by_gain(self) -> list[int]:
        """Return the relations, best first by how much their head finds more than the offset."""
        gain = self.dev.gain[_places(self.best)][:-1]
        return np.argsort(-gain, kind='stable').tolist()

    def _findings(self, place: int) -> list[Finding]:
        head, dev, name = self.best[place][:2], self.dev, self.relations[place]
        fields = {'unit': 'share of links', 'sample': int(dev.links[place]), 'sample_of': 'links'}
        fields['source'] = SOURCE
        offset = {'offset': int(self.offsets[place]), 'baseline': float(dev.baseline[place])}
        words = 'All relations' if name == ALL else f'Relation "{plain_relation(name)}" ({name})'
        p_value, gain = float(self.corrected[place]), f'{name}: gain over the offset'
        said = 'finds {estimate:.0%} of the links'
        if not self.finds[place, *self.best[place]]:
            doubt = 'which {beyond} may explain' if p_value <= LEVEL else 'not clearly more'
            said = f'reaches {{estimate:.0%}} of the links, {doubt}'
        found = [
            extreme(
                f'{name}: best head',
                head,
                shares_found(dev, self.best)[:, place],
                template=f'{{Relation}}: {{where}} {said}; always guessing offset {{offset:+d}} '
                'reaches {baseline:.0%}.',
                numbers={'Relation': words, 'beyond': beyond(self.kinds), **offset},
                **fields,
            ),
            extreme(
                gain,
                head,
                self._gain(place),
                null=0.0,
                p=p_value,
                tests=1 if name == ALL else len(self.relations) - 1,
                **fields,
            ),
        ]
        if not np.isnan(self.random[place, 0]):
            found.append(measured(f'{name}: random weights', self.random[place], **fields))
        return found

    @property
    def _reach(self) -> np.ndarray:
        """How many standard errors a 95 % interval of each relation reaches [R]."""
        return reach(np.maximum(self.dev.sentences - 1, 1))

    def _gain(self, place: int) -> tuple[float, float, float]:
        """Return what the best head of a relation finds more than the offset, with its interval."""
        gain, error, _ = self.gain_of(place)
        return interval(gain, error, max(int(self.dev.sentences[place]) - 1, 1))

    def _relations(self):
        shares, dev = shares_found(self.dev, self.best), self.dev
        p_values, corrected = self.p_values, self.corrected
        rows = []
        for place, name in enumerate(self.relations):
            layer, head, way = best = self.best[place]
            theirs = self._published(place)
            published = (theirs.head, theirs.accuracy, theirs.baseline) if theirs else _UNPUBLISHED
            rows.append(
                (
                    name, dev.links[place], dev.sentences[place], head_name(layer, head),
                    WAYS[way], *shares[:, place], self.offsets[place], dev.baseline[place],
                    *self._gain(place), p_values[place], corrected[place], *self.random[place],
                    self.beyond[place, *best], *published,
                )
            )  # fmt: skip
        return framed(
            (
                'relation', 'links', 'sentences', 'name', 'way', 'share_of_links', 'low', 'high',
                'offset', 'share_at_offset', 'gain', 'gain_low', 'gain_high', 'p', 'p_corrected',
                'random_weights', 'random_low', 'random_high', 'p_beyond_other_places',
                'published_head', 'published_share', 'published_at_offset',
            ),
            rows,
            'The best head of each relation, the best fixed offset, and random weights.',
        )  # fmt: skip

    def _heads(self):
        dev = self.dev
        grids = np.stack([dev.right, dev.error, dev.gain, dev.gain_error], axis=-1)
        rows = [
            (self.relations[place], layer + 1, head + 1, WAYS[way], *grids[place, layer, head, way])
            for place, layer, head, way in np.ndindex(dev.right.shape)
        ]
        return framed(
            (
                'relation', 'layer', 'head', 'way', 'share_of_links', 'standard_error', 'gain',
                'gain_standard_error',
            ),
            rows,
            'The share of links that each head finds, and by how much it is above the offset.',
            colours=Colours(
                'heads',
                {'share_of_links': ('standard_error',), 'gain': ('gain_standard_error',)},
                by=('relation', 'way'),
            ),
        )  # fmt: skip


def chosen_heads(found: Found) -> list[tuple[int, int, int]]:
    """Return, for each relation, the layer, the head and the way that find most links."""
    shape = found.right.shape[1:]
    flat = np.nan_to_num(found.right, nan=-1).reshape(len(found.right), -1).argmax(axis=1)
    layers, heads, ways = (each.tolist() for each in np.unravel_index(flat, shape))
    return list(zip(layers, heads, ways, strict=True))


def shares_found(found: Found, heads: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Return the shares of links that a head finds of each relation, with 95 % intervals [3, R]."""
    place = _places(heads)
    share, error = found.right[place], found.error[place]
    return np.stack([share, *wilson(share, error, found.links, found.sentences)])


def _places(best: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    return (np.arange(len(best)), *np.array(best).T)


@analysis(
    question='heads that find dependency relations, on a treebank',
    group='Syntax and meaning',
    time='15 s',
    reads=('treebank.', 'links.'),
    inputs={'train': 'trees', 'dev': 'dev_trees', 'draws': 'links.draws'},
    cost=lambda given: {'treebank': Cost(40_000, 12, 5)},
)
def syntax_heads(
    pretrained: Pretrained,
    train: Sequence[Parse] | Annotated,
    dev: Sequence[Parse] | Annotated,
    *,
    random_weights: bool = True,
    draws: int = 100,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> SyntaxHeads:
    """Look for heads whose greatest attention follows a relation between words.

        train, dev = bs.read_treebank('train.conllu'), bs.read_treebank('dev.conllu')
        bs.analyses.syntax_heads(pretrained, train, dev).frames()['relations']

    Coreference and any other relation come as annotated texts (`bs.read_annotations`), such as
    `"relations": {"coreference": [{"source": [[12, 18]], "target": [[4, 7], [30, 33]]}]}`: from the
    head word of a mention to those of its antecedents, any of which is right.

    Args:
      pretrained: The model.
      train: Sentences of `bs.read_treebank`, or texts and annotations of `bs.read_annotations`, on
        which heads and offsets are chosen.
      dev: Other ones of the same kind, on which the chosen ones are measured.
      random_weights: Whether to measure the same model with random weights, too.
      draws: The number of places of each kind to compare each link with, in the first 500 texts of
        `dev`; 0 does without.
      seed: The seed of the draws and of the random weights.
      settings: The settings for encoding. Passes are kept in `settings.folder` until it is deleted.

    Raises:
      ValueError: There are no links, or no relation has links in both parts.
    """
    pretrained = without_head(pretrained)
    parts = {
        name: _linked(pretrained, each, settings) for name, each in (('train', train), ('dev', dev))
    }
    counts = [
        dict(zip(each.links.names, each.links.counts, strict=True)) for each in parts.values()
    ]
    several = [name for name in counts[0] if min(each.get(name, 0) for each in counts) >= FEWEST]
    names = (*(name for name in several if name != ALL), ALL)
    few = sorted({*counts[0], *counts[1]} - set(names))
    parts = {
        name: dataclasses.replace(each, links=each.links.named(names))
        for name, each in parts.items()
    }
    offsets = best_offsets(parts['train'].links)

    def measured(model: Pretrained, what: str) -> list[Found]:
        return [
            _found(model, each, offsets, settings, f'{what}, {name}')
            for name, each in parts.items()
        ]

    on_train, on_dev = measured(pretrained, 'Relations')
    random = np.full((len(names), 3), np.nan)
    if random_weights:
        untrained = dataclasses.replace(pretrained, params=init_params(pretrained.bert, seed))
        random_train, random_dev = measured(untrained, 'Random weights')
        random = shares_found(random_dev, chosen_heads(random_train)).T
    beyond, kinds = _beyond(pretrained, parts['dev'], names, on_dev, draws, seed, settings)
    return SyntaxHeads(
        relations=names,
        train=on_train,
        dev=on_dev,
        offsets=offsets,
        random=random,
        beyond=beyond,
        kinds=kinds,
        few=tuple(few),
        left_out=sum(each.links.left_out for each in parts.values()),
        shared=_shared(*(each.examples for each in parts.values())),
    )


@dataclasses.dataclass(frozen=True)
class _Part:
    examples: Sequence[Example]
    annotations: Sequence[Annotation]
    encoded: Encoded
    links: WordLinks


def _linked(
    pretrained: Pretrained, texts: Sequence[Parse] | Annotated, settings: TextSettings
) -> _Part:
    if isinstance(texts, tuple) and len(texts) == 2 and not isinstance(texts[0], Parse):
        examples, annotations = cast(Annotated, texts)
        settings = dataclasses.replace(settings, annotations=annotations)
        encoded = encoded_of(pretrained, examples, settings, annotated=True)
        links = links_of_annotations(encoded, annotations)
        return _Part(as_examples(examples), list(annotations), encoded, links)
    parses = [each for each in texts if isinstance(each, Parse)]
    if not parses or len(parses) < len(texts):
        raise ValueError(
            'Sentences come from bs.read_treebank, annotated texts from bs.read_annotations.'
        )
    encoded = encode_parses(pretrained.tokenizer, parses, max_length=settings.max_length)
    examples, annotations = [each.example for each in parses], _with_all(parses)
    return _Part(examples, annotations, encoded, links_of_parses(encoded, parses))


def _shared(train: Sequence[Example], dev: Sequence[Example]) -> float:
    """Return the share of the texts of one part that are in the other, too."""
    share = in_both(train, dev) / len(dev)
    if share > _MOSTLY_SHARED:
        logging.warning(
            '%.0f %% of the texts that heads are measured on are among those that they are chosen '
            'on: give others.',
            100 * share,
        )
    return share


def _found(
    model: Pretrained, part: _Part, offsets: np.ndarray, settings: TextSettings, what: str
) -> Found:
    config, encoded, links = repr(dataclasses.asdict(model.config)), part.encoded, part.links
    texts = encoded.input_ids, encoded.token_type_ids, encoded.lengths, encoded.marks

    def compute() -> Found:
        shown = with_progress(bucket(encoded, **settings.bucketing), what)
        statistics = {'found': finding(links, offsets)}
        return stream((model,), shown, statistics, mesh=settings.mesh)['found']

    key = config, model.params, texts, links, offsets
    return store.kept(settings.folder, key, Found, compute)


def _beyond(
    pretrained: Pretrained,
    dev: _Part,
    names: Sequence[str],
    found: Found,
    draws: int,
    seed: int,
    settings: TextSettings,
) -> tuple[Float[np.ndarray, 'R L N 2'], tuple[str, ...]]:
    """Return the corrected p-values of attention along links against other places, and the kinds.

    Those of all relations together are not known.
    """
    p_values = np.full(found.right.shape, np.nan)
    relations = [name for name in names if name != ALL]
    if not draws or not relations:
        return p_values, ()
    some = np.arange(min(_NULL_TEXTS, len(dev.examples)))
    encoded = mark(dev.encoded, dev.annotations).take(some)
    # A part of the texts may have no such link.
    relations = [name for name in relations if (encoded.marks[name][..., 2] >= 0).any()]
    with_random, random = with_random_links(encoded, relations, draws=draws, seed=seed)
    titles = directions(relations)
    along = {
        title: relation(each.relation, each.reverse).function for title, each in titles.items()
    }
    shown = with_progress(bucket(with_random, **settings.bucketing), 'Other places')
    statistics: dict[str | RandomLinks, Callable | Reduction] = {**along, **random}
    measured = stream((pretrained,), shown, statistics, mesh=settings.mesh)
    tests = link_tests(
        {title: measured[title] for title in titles}, link_scores(encoded, relations, measured)
    )
    for title, test in tests.items():
        name, reverse = titles[title]
        p_values[names.index(name), :, :, int(reverse)] = test.familywise
    return p_values, tuple(next(iter(tests.values())).nulls if tests else ())


def _with_all(parses: Sequence[Parse]) -> list[Annotation]:
    """Return annotations that all have the same relations, empty where a text has none."""
    annotations = [each.annotation for each in parses]
    names = sorted({name for each in annotations for name in each.relations})
    return [
        dataclasses.replace(each, relations={name: each.relations.get(name, ()) for name in names})
        for each in annotations
    ]


def _draw_relations(result: SyntaxHeads):
    order = [*result._by_gain(), len(result.relations) - 1]
    points = {'best head': tuple(shares_found(result.dev, result.best)[:, order])}
    points['best fixed offset'] = (result.dev.baseline[order], None, None)
    if not np.isnan(result.random).all():
        points['random weights'] = tuple(result.random[order].T)
    published = [result._published(each) for each in order]
    if any(published):
        accuracies = [np.nan if each is None else each.accuracy for each in published]
        points['published: BERT-base'] = (np.array(accuracies), None, None)
    of_others = f'. Published: another treebank ({SOURCE})' if any(published) else ''
    labels = [f'{result.relations[each]} ({head_name(*result.best[each][:2])})' for each in order]
    return plots.points_by_row(labels, points, label='share of links that are found').captioned(
        'How often the best head of each relation finds the other word (lines: 95 % intervals)'
        f'{of_others}.'
    )


def _draw_heads(result: SyntaxHeads, shown: Sequence[int]):
    grids, marked = {}, {}
    for place in shown:
        layer, head, way = result.best[place]
        title = f'{result.relations[place]}, {WAYS[way]}'
        grids[title] = result.dev.right[place, :, :, way]
        marked[title] = np.zeros(grids[title].shape, bool)
        marked[title][layer, head] = result.finds[place, layer, head, way]
    return plots.head_grids(grids, label='share of links that are found', marked=marked).captioned(
        'The relations that heads find best, compared with the best fixed offset. Circles: heads '
        'that find them.',
        plots.Source('heads', 'share_of_links'),
    )
