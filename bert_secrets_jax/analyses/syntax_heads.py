"""Do single heads find dependency relations, or other links between words? (Clark et al. 2019)

For each relation, the best head is chosen on a training part of the texts and reported on another,
beside the best fixed offset, random weights, and other places (`measure/links.py`).

Axes: R relations, L layers, N heads, 2 ways along a link.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import links, marks
from bert_secrets_jax.analyses.common.inputs import TextSettings, in_one_pass
from bert_secrets_jax.analyses.common.relation_heads import (
    FEWEST,
    Annotated,
    Part,
    RelationHeads,
    chosen,
    found_in,
    search,
    shared,
    shares_found,
)
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.encoding import mark
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.measure.catalogue import relation
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.links import directions, link_scores, link_tests, with_random_links
from bert_secrets_jax.measure.word_links import ALL, WAYS
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.weights import Pretrained, without_head
from bert_secrets_jax.plots.kinds import plain_relation
from bert_secrets_jax.runs.result import HeadMarks, Result, extreme, how_many, noted
from bert_secrets_jax.stats.student import LEVEL, reach

SOURCE = 'Clark et al. 2019, section 4.2, Table 1'
# Links whose places are drawn to compare with: of so many texts, the first ones.
_NULL_TEXTS = 500
# The published head, share and baseline of a relation without any.
_UNPUBLISHED = ('–', np.nan, np.nan)
_OF_PAPER = 'published_head', 'published_share', 'published_at_offset'
# The columns that are drawn, with those of the ends of an interval.
_DRAWN = {
    'best head': ('share_of_links', 'low', 'high'),
    'best fixed offset': ('share_at_offset', None, None),
    'random weights': ('random_weights', 'random_low', 'random_high'),
    'published: BERT-base': ('published_share', None, None),
}


class SyntaxHeads(RelationHeads, Result):
    """How often the most attended word of a head is the one that a word is linked to.

    Attributes:
      relations, train, dev, offsets: As in `common.relation_heads.RelationHeads`.
      beyond: [R, L, N, 2] The greatest corrected p-value of the comparisons of the attention along
        the links with other places (`links.LinkTest.familywise`), in the other part; NaN where
        there are none.
      kinds: The kinds of places.
      few: The relations that have too few links to be looked at alone.
      left_out: The number of links, in both parts, an end of which has no wordpiece of its own.
      shared: The share of the texts of the other part that are in the training part, too.
    """

    title = 'Heads that find relations between words'

    beyond: Float[np.ndarray, 'R L N 2']
    kinds: tuple[str, ...]
    few: tuple[str, ...]
    left_out: int
    shared: float = 0.0

    @property
    def published(self) -> dict[str, Any]:
        """The paper's heads by relation; none for links of other kinds, such as coreference."""
        known = paper.relations()
        of_these = any(name in known for name in (*self.relations[:-1], *self.few))
        return known if of_these else {}

    @property
    def published_gains(self) -> dict[str, tuple[float, float, int]] | None:
        """The gain of the heads over the offset by the paper's relations; None of other links."""
        known = self.published
        places = {name: place for place, name in enumerate(self.relations[:-1]) if name in known}
        return {name: self.gain_of(place) for name, place in places.items()} if known else None

    @property
    def finds(self) -> Bool[np.ndarray, 'R L N 2']:
        """Whether each head finds each relation: the one verdict of sentences, circles and marks.

        It is surely above the offset, the best head of a relation after correction for all of them,
        and, if other places were compared, above all of these. Those of 'all' are not known.
        """
        freedom = np.maximum(self.dev.sentences - 1, 1)[:, None, None, None]
        found = self.dev.gain - reach(freedom) * self.dev.gain_error > 0
        found[self.places] = self.corrected <= LEVEL
        if self.kinds:
            found[:-1] &= self.beyond[:-1] <= LEVEL
        return found

    def verdicts(self):
        if (gains := self.published_gains) is None:
            both = (verdicts.RELATION_HEADS, verdicts.NO_HEAD_FOR_ALL)
            return [verdicts.not_measured(claim, 'a treebank') for claim in both]
        of_all = self.gain_of(len(self.relations) - 1)
        return [verdicts.relations_have_heads(gains), verdicts.no_head_for_all(*of_all)]

    def _draw_syntax_heads_relations(self):
        frame = self.labelled['relations'].frame().iloc[self._order]
        points: dict[str, Any] = {
            title: tuple(None if each is None else frame[each].to_numpy() for each in columns)
            for title, columns in _DRAWN.items()
            if frame[columns[0]].notna().any()
        }
        labels = [
            f'{relation} ({name})'
            for relation, name in zip(frame.relation, frame.name, strict=True)
        ]
        of_others = f'. Published: another treebank ({SOURCE})' * ('published: BERT-base' in points)
        return plots.points_by_row(labels, points, label='share of links that are found').captioned(
            'How often the best head of each relation finds the other word (lines: 95 % intervals)'
            f'{of_others}.'
        )

    def _say_count(self):
        better = self.finds[self.places][:-1]
        count = how_many(
            'relations with a head',
            better,
            'relations',
            sample=int(self.dev.links[-1]),
            template='Heads find {estimate} {unit} beyond {beyond}.',
            **self._about,
        )
        # With too few links of each kind, there are only all of them.
        return count if better.size else None

    def _say_best_head(self):
        place = self._order[0]
        best, relation = self.best[place], self.relations[place]
        doubt = '' if self.finds[place, *best] else ', which {beyond} may explain'
        return extreme(
            f'{relation}: best head',
            best[:2],
            shares_found(self.dev, self.places)[:, place],
            unit='share of links',
            sample=int(self.dev.links[place]),
            template='Relation "{relation}": {where} finds {estimate:.0%} of the links'
            f'{doubt}. Always guessing offset {{offset:+d}} finds {{baseline:.0%}}.',
            relation=plain_relation(relation),
            offset=int(self.offsets[place]),
            baseline=float(self.dev.baseline[place]),
            **self._about,
        )

    @property
    def _about(self) -> dict[str, Any]:
        beyond = links.beyond(self.kinds) if self.kinds else 'the best offset'
        return {'source': SOURCE, 'sample_of': 'links', 'beyond': beyond}

    def notes(self):
        sometimes = {
            f'{self.shared:.1%} of the texts that heads are measured on are among those that they '
            'were chosen on.': self.shared,
            'Published values: BERT-base on the Penn Treebank, chosen where they are measured.': (
                self.published
            ),
            'To find a relation, a head must beat the offset and all other places.': self.kinds,
            f'{self.left_out:,} links are left out: an end has no wordpiece.': self.left_out,
        }
        return [
            'A head finds a link if one end attends most to the other, "from the word" or "to the '
            'word".',
            'Heads and offsets are chosen on other texts than those they are measured on.',
            *noted(sometimes),
        ]

    def gives(self):
        names = [name for name in self.relations if name != ALL]
        gains = np.stack([found.gain[: len(names)] for found in (self.train, self.dev)])
        # The way stands beside its relation: [2, R * ways, L, N].
        gains = np.moveaxis(gains, -1, 2)
        ways = tuple(f'{name}, {way}' for name in names for way in WAYS)
        return {'gains of relations': (ways, gains.reshape(2, len(ways), *gains.shape[-2:]))}

    def head_marks(self):
        dev, found = self.dev, []
        for place, *head, way in np.argwhere(self.finds[:-1]).tolist():
            name, at = self.relations[place], (place, *head, way)
            said = (
                f'Finds {dev.right[at]:.0%} of the links "{plain_relation(name)}" '
                f'({name}, {WAYS[way]}; the best offset {dev.baseline[place]:.0%}).'
            )
            found.append((tuple(head), said, plain_relation(name), float(dev.gain[at])))
        marked = marks.strongest(dev.right.shape[1:3], found)
        return [HeadMarks('finds a relation', *marked, rank=marks.LINK)]

    @property
    def _order(self) -> list[int]:
        """The relations, best first by how much their head finds more than the offset; then all."""
        *others, last = range(len(self.relations))
        return [*sorted(others, key=lambda place: -self.gain_of(place)[0]), last]


@analysis(
    question='heads that find dependency relations, on a treebank',
    group='Syntax and meaning',
    time='15 s',
    reads=('treebank.', 'links.'),
    inputs={'train': 'trees', 'dev': 'dev_trees', 'draws': 'links.draws'},
    cost=lambda given: 40_000,
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
    heads, parts, few = search(pretrained, train, dev, settings)
    random = np.full((len(heads.relations), 3), np.nan)
    if random_weights:
        untrained = dataclasses.replace(pretrained, params=init_params(pretrained.bert, seed))
        here, there = found_in(untrained, parts, heads.offsets, settings, 'Random weights')
        random = shares_found(there, chosen(here)).T
    beyond, kinds = _beyond(pretrained, parts[1], heads, draws, seed, settings)
    result = SyntaxHeads(
        **vars(heads),
        beyond=beyond,
        kinds=kinds,
        few=tuple(few),
        left_out=sum(each.links.left_out for each in parts),
        shared=shared(*(each.examples for each in parts)),
    )
    return _labelled(result, random)


def _beyond(
    pretrained: Pretrained,
    dev: Part,
    found: RelationHeads,
    draws: int,
    seed: int,
    settings: TextSettings,
) -> tuple[Float[np.ndarray, 'R L N 2'], tuple[str, ...]]:
    """Return the corrected p-values of attention along links against other places, and the kinds.

    Those of all relations together are not known.
    """
    p_values = np.full(found.dev.right.shape, np.nan)
    relations = [name for name in found.relations if name != ALL]
    if not draws or not relations:
        return p_values, ()
    some = np.arange(min(_NULL_TEXTS, len(dev.examples)))
    encoded = mark(dev.encoded, dev.annotations).take(some)
    # A part of the texts may have no such link.
    relations = [name for name in relations if (encoded.marks[name][..., 2] >= 0).any()]
    with_random, random = with_random_links(encoded, relations, draws=draws, seed=seed)
    ways = directions(relations)
    along = [relation(*each) for each in ways.values()]
    means = in_one_pass(pretrained, with_random, along, settings, 'Other places', also=random)
    tests = link_tests(means, link_scores(encoded, relations, means))
    for title, test in tests.items():
        name, reverse = ways[title]
        p_values[found.relations.index(name), :, :, int(reverse)] = test.familywise
    return p_values, tuple(next(iter(tests.values())).nulls if tests else ())


def _labelled(found: SyntaxHeads, random: Float[np.ndarray, 'R 3']) -> SyntaxHeads:
    """Return the result with its tables: of relations, of heads, and of what is too rare."""
    dev, known = found.dev, found.published
    published = [
        (each.head, each.accuracy, each.baseline) if each else _UNPUBLISHED
        for each in map(known.get, found.relations)
    ]
    relations = table(
        'The best head of each relation, the best fixed offset, and random weights.',
        **found.columns,
        **dict(zip(('random_weights', 'random_low', 'random_high'), random.T, strict=True)),
        p_beyond_other_places=found.beyond[found.places],
        **dict(zip(_OF_PAPER, zip(*published, strict=True), strict=True)),
    )
    _, layers, count, _ = dev.right.shape
    by = {'layer': range(1, layers + 1), 'head': range(1, count + 1), 'way': WAYS}
    heads = table(
        'The share of links that each head finds, and by how much it is above the offset.',
        {'relation': found.relations} | by,
        share_of_links=dev.right,
        standard_error=dev.error,
        gain=dev.gain,
        gain_standard_error=dev.gain_error,
    )
    sure = {'share_of_links': ('standard_error',), 'gain': ('gain_standard_error',)}
    heads.attrs['colours'] = Colours('heads', sure, by=('relation', 'way'))
    caption = f'Relations with fewer than {FEWEST} links in a part: not looked at alone.'
    few = {'few': table(caption, relation=found.few)} if found.few else {}
    return found.with_frames({'relations': relations, 'heads': heads, **few})
