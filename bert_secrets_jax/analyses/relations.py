"""Token to token: do heads follow relations, or only distances? (section 4.5)"""

from collections.abc import Sequence

from bert_secrets_jax import plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common import links
from bert_secrets_jax.analyses.common.inputs import TextSettings
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
from bert_secrets_jax.measure.links import directions, link_tests, offset_histogram
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.runs.result import drawn


class Relations(links.Linked):
    """The attention along relations between words.

    Attributes:
      tests, tables: As in `common.links.Linked`.
    """

    SOURCE = 'Kovaleva et al. 2019, section 4.5'
    NAMES = 'relations', 'relations', 'readings'
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

    def figures(self):
        drawings = {'relations_distances': _draw_distances} if self.tests else {}
        return super().figures() | drawn(self, **drawings)

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
    names = [each.name for each in wanted if each.name in tables]
    found = {name: tables[name] for name in names if tables[name].count}
    result = Relations(link_tests(tables, scores), found)
    return result.with_frames(links.links_frames(result))


def _draw_distances(result: Relations):
    return plots.distance_histograms(
        {name: offset_histogram(test.links) for name, test in result.tests.items()}
    ).captioned('How far apart linked tokens are.')
