"""Token to token: do heads follow relations, or only distances? (section 4.5)"""

import dataclasses
import functools
from collections.abc import Sequence

from bert_secrets_jax.analyses import links
from bert_secrets_jax.analyses.tables import Tables, heads_frame, top_head, with_error
from bert_secrets_jax.analyses.texts import TextSettings, encoded_of, in_one_pass
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    RELATIONS,
    RELATIONS_OF_NOTEBOOK,
    Described,
    named,
    notebook,
    relation,
)
from bert_secrets_jax.measure.links import (
    MOVED,
    LinkTest,
    directions,
    link_scores,
    link_tests,
    with_random_links,
)
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import Figures, Result, Subject, framed

SOURCE = 'Kovaleva et al. 2019, section 4.5'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Relations(Result):
    """Attention along relations between words.

    Attributes:
      subject: Model and texts.
      tests: Direction ('verb to subject') to the attention along its links beside random ones, of
        those relations that any text has.
      tables: Direction to its table, in the paper's reading and, where there is one, in the
        notebook's ('verb to subject (notebook)').
    """

    subject: Subject
    tests: links.Tests
    tables: Tables

    @property
    def title(self) -> str:
        return 'Token to token'

    def frames(self):
        return {
            'relations': self._summary(),
            'heads': links.tests_frame(self.tests),
            'readings': heads_frame(self.tables, links.UNIT, 'Both readings of every head.'),
        }

    def figures(self):
        if not self.tests:
            return Figures({})
        caption = (
            'The greatest attention between the wordpieces of a link, mean over links and '
            'examples. Circles: more than the same head gives at the same distances elsewhere in '
            'the same inputs (5 % after correction for the heads of a panel).'
        )
        return Figures(
            {
                'relations': functools.partial(links.draw_grids, self.tests, caption),
                'relations_distances': functools.partial(links.draw_distances, self.tests),
            }
        )

    def findings(self):
        return [links.finding_of(title, test, SOURCE) for title, test in self.tests.items()]

    def notes(self):
        if not self.tests:
            return ['No text has such a relation.']
        return [
            'A head above random links does more than look a fixed number of tokens away. It need '
            'not know the relation: a head that merely prefers nouns also passes for pronoun to '
            'noun, since moved links end at other words. Links that can be moved to few places '
            'make a weak test.',
            'A noun-pronoun link joins a pronoun with all nouns before it: spaCy resolves no '
            'coreference, and the paper does not say how it paired them.',
        ]

    def head_notes(self):
        return links.notes_of_tests(self.tests)

    def _summary(self):
        rows = []
        for title, test in self.tests.items():
            null, theirs = test.nulls[MOVED], self.tables.get(notebook(title))
            rows.append(
                (
                    title, test.table.count, links.top_of(test), links.ideal_of(test),
                    null.mean[test.top], null.p[test.top], null.familywise[test.top],
                    int(test.real.sum()), test.places,
                    '–' if theirs is None else with_error(theirs, top_head(theirs.mean)),
                )
            )  # fmt: skip
        return framed(
            (
                'link', 'examples', 'top_head', 'ideal_head_at_one_offset', 'links_moved',
                'p_value', 'familywise', 'heads_beyond_position', 'places_of_a_link_median',
                'notebook_top_head',
            ),
            rows,
            'What position alone explains. An ideal head puts all its attention at one offset; '
            'moved links keep every distance, at random places of the same texts.',
        )  # fmt: skip


def relation_statistics(relations: Sequence[str] = RELATIONS) -> list[Described]:
    """Return the statistics along the links that `relations` measures.

    Args:
      relations: Names of relations; those of the paper are also read as in the notebook.
    """
    titles = directions(relations)
    ours = [relation(each.relation, each.reverse) for each in titles.values()]
    theirs = [
        named(notebook(title))
        for title, each in titles.items()
        if each.relation in RELATIONS_OF_NOTEBOOK
    ]
    return [*ours, *theirs]


def relations(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    relations: Sequence[str] = RELATIONS,
    draws: int = 100,
    seed: int = 0,
    settings: TextSettings | None = None,
    subject: Subject | None = None,
) -> Relations:
    """Measure attention along relations, and along the same links moved elsewhere.

    Args:
      pretrained: The model.
      texts: What it reads.
      relations: Names of relations that spaCy finds ('verb-subject', 'noun-pronoun'), or that your
        own annotations have (`settings.annotations`).
      draws: Draws of random links; at least 99, or no p-value can be 0.01.
      seed: Of the draws.
      settings: How the texts are encoded, and what finds words in them.
      subject: What model and texts are called.
    """
    settings = settings or TextSettings()
    encoded = encoded_of(pretrained, texts, settings, annotated=True)
    with_random, random = with_random_links(
        encoded, relations, kinds=[MOVED], draws=draws, seed=seed
    )
    measured = in_one_pass(
        pretrained, with_random, relation_statistics(relations), settings, 'Relations', also=random
    )
    scores = link_scores(encoded, relations, measured)
    return assemble(measured, scores, relations, subject or Subject())


def assemble(tables: Tables, scores, relations: Sequence[str], subject: Subject) -> Relations:
    """Return the result of a pass.

    Args:
      tables: Of `relation_statistics`.
      scores: Of `measure.links.link_scores`.
      relations: Names of the relations.
      subject: Model and texts.
    """
    tests: dict[str, LinkTest] = link_tests(tables, scores)
    names = [each.name for each in relation_statistics(relations)]
    return Relations(subject, tests, {name: tables[name] for name in names if tables[name].count})
