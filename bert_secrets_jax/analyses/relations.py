"""Token to token: do heads follow relations, or only distances? (section 4.5)"""

import functools
from collections.abc import Sequence

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import links
from bert_secrets_jax.analyses.common.inputs import TextSettings
from bert_secrets_jax.analyses.common.tables import heads_frame
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    RELATIONS,
    RELATIONS_OF_NOTEBOOK,
    Described,
    named,
    notebook,
    relation,
)
from bert_secrets_jax.measure.links import LinkTest, directions, link_tests
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.runs.result import Figures, drawn

SOURCE = 'Kovaleva et al. 2019, section 4.5'


class Relations(links.Linked):
    """The attention along relations between words.

    Attributes:
      tests, tables: As in `common.links.Linked`.
    """

    title = 'Subjects, verbs, nouns and pronouns'

    def verdicts(self):
        found = []
        claimed = zip((verdicts.VERB_SUBJECT, verdicts.NOUN_PRONOUN), RELATIONS, strict=True)
        for claim, name in claimed:
            both = directions([name])
            tests = {title: test for title, test in self.tests.items() if title in both}
            if tests:
                found.append(verdicts.position_explains(claim, tests))
        return found

    def frames(self):
        return {
            'relations': links.summary_frame(self.tests, self.tables),
            'nulls': links.nulls_frame(self.tests),
            'heads': links.tests_frame(self.tests),
            'readings': heads_frame(self.tables, links.UNIT, 'Both readings of every head.'),
        }

    def figures(self):
        if not self.tests:
            return Figures({})
        caption = f'The attention along each link. {links.CIRCLES}'
        return drawn(
            self.tests,
            relations=functools.partial(links.draw_grids, caption=caption),
            relations_distances=links.draw_distances,
        )

    def findings(self):
        return links.findings_of(self.tests, SOURCE)

    def notes(self):
        return [
            'A noun-pronoun link joins a pronoun with every noun before it, for spaCy resolves no '
            'coreference.'
        ]


def relation_statistics(relations: Sequence[str] = RELATIONS) -> list[Described]:
    """Return the statistics of attention along links, in both directions and readings."""
    titles = directions(relations)
    ours = [relation(each.relation, each.reverse) for each in titles.values()]
    theirs = [
        named(notebook(title))
        for title, each in titles.items()
        if each.relation in RELATIONS_OF_NOTEBOOK
    ]
    return [*ours, *theirs]


@analysis(
    question='verb and subject, noun and pronoun, and what distance alone explains',
    group='Syntax and meaning',
    report='always',
    reads=('links.', 'linguistics.'),
    inputs={'draws': 'links.draws'},
    needs=('annotations',),
    wants=lambda given: relation_statistics(),
    words=True,
)
def relations(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    relations: Sequence[str] = RELATIONS,
    draws: Count = 100,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Relations:
    """Measure attention along relations, and at places where these links could stand as well.

    The places are random ones, the same distances elsewhere and the same positions of other inputs
    (`measure/places.py`). With word classes, linked words are also compared with all words that a
    head can choose from, by what position and word class explain (`measure/choices.py`).

    Args:
      relations: Relations that spaCy finds ('verb-subject', 'noun-pronoun'), or those of
        `settings.annotations`.
      draws: The number of places to draw for each link, of each kind.
      seed: The seed of the draws.
      pretrained, texts, settings: As in `special_tokens`.

    Raises:
      ValueError: The texts lack a relation, two relations have the same ends, or the number of
        draws is below 1.
    """
    wanted = relation_statistics(relations)
    tables, scores = settings.links(pretrained, texts, relations, wanted, draws=draws, seed=seed)
    tests: dict[str, LinkTest] = link_tests(tables, scores)
    names = [each.name for each in wanted if each.name in tables]
    found = {name: tables[name] for name in names if tables[name].count}
    return Relations(tests, found)
