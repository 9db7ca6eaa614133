"""The passes of a run over its texts, each of which measures what all sections want of it."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from absl import logging

from bert_secrets_jax.analyses.attention_change import for_reading
from bert_secrets_jax.analyses.common.texts import (
    TextSettings,
    batches_of,
    encoded_of,
    in_one_pass,
    with_progress,
)
from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.brief import MENDABLE
from bert_secrets_jax.files import sha256
from bert_secrets_jax.measure.catalogue import (
    CATALOGUE,
    RELATIONS,
    Described,
    change,
    measure_change,
    named,
)
from bert_secrets_jax.measure.links import LinkScores, directions, link_scores, with_random_links
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.programs.given import Given

# This needs maps that are padded as in the authors' notebook, so it has a pass of its own.
_PADDED = 'cosine (padded)'
_Keys = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedSettings(TextSettings):
    """The settings of a run, by which sections share the passes over its texts."""

    given: Given

    def tables(self, pretrained, texts, statistics):
        return measured_before(self.given, statistics)[0]

    def changes(self, pretrained, tuned, texts, statistics):
        if tuned is None:
            return {}
        seeds = self.given.study.seeds
        return {str(seed): tables_after(self.given, seed, statistics) for seed in seeds}

    def links(self, pretrained, texts, relations, statistics, *, draws, seed):
        return measured_before(self.given, statistics, list(directions(RELATIONS)))


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The outcome of one pass for one statistic, or for random links: the parts of their tests."""

    FORMAT: ClassVar[int] = 3

    table: HeadTable | None = None
    scores: LinkScores | None = None


def measured_before(
    given: Given, described: Sequence[Described], titles: Sequence[str] = ()
) -> tuple[dict[str, HeadTable], dict[str, LinkScores]]:
    """Return tables of statistics of the model as it is, by name, and parts of tests of relations.

    The relations are those of section 4.5, by the titles of their directions.
    """
    classified = any(each.classifier is not None for each in described)
    # Classes of patterns take longer to compile than all else, and have a pass of their own: the
    # first picture does not wait for them.
    others = [
        each
        for each in _wanted_by_others(given, 'wants')
        if (each.classifier is not None) == classified
    ]
    of_each = {each.name: each for each in (*described, *others)}
    keys = {name: statistic_key(given, each) for name, each in of_each.items()}
    if titles or any(each.relations for each in others):
        key = _on_texts(given) | {
            'annotations': given.digest('annotations'),
            'links': [given['links.draws'], given['seed']],
        }
        keys |= {_random(title): key for title in directions(RELATIONS)}

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = [each for name, each in of_each.items() if name in missing]
        links = [title for title in directions(RELATIONS) if _random(title) in missing]
        settings = _settings(given, bool(links) or any(each.annotated for each in wanted))
        model, random, scores = given.value('pretrained'), {}, {}
        encoded = with_random = encoded_of(model, given.value('texts'), settings, annotated=False)
        if links:
            how = {'draws': given['links.draws'], 'seed': given['seed']}
            with_random, random = with_random_links(encoded, RELATIONS, **how)
        tables = in_one_pass(model, with_random, wanted, settings, 'Attention', also=random)
        if links:
            scores = link_scores(encoded, RELATIONS, tables)
        measured = {each.name: Measured(table=tables[each.name]) for each in wanted}
        return measured | {_random(title): Measured(scores=scores[title]) for title in links}

    names = [each.name for each in described]
    kept = _kept(given, keys, compute, [*names, *map(_random, titles)])
    scores = {title: kept[_random(title)].scores for title in titles}
    return {name: kept[name].table for name in names}, scores


def tables_after(given: Given, seed: int, described: Sequence[Described]) -> dict[str, HeadTable]:
    """Return tables of the model of a seed, of its changes, and of comparisons, by name."""
    tuned = {'finetuned': given.input('tuned').key, 'seed': seed}
    asked = {each.name for each in described}
    padded = _PADDED in asked
    others = [] if padded else _wanted_by_others(given, 'compares')
    of_each = {
        name: each
        for each in (*described, *others)
        for name in [each.name, *[change(each.name)] * (not each.pairwise)]
    }
    keys = {
        name: statistic_key(given, each) | tuned | {'of': name} for name, each in of_each.items()
    }

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = list({of_each[name].name: of_each[name] for name in missing}.values())
        settings = _settings(given, any(each.annotated for each in wanted))
        settings = for_reading('notebook', settings) if padded else settings
        model, texts = given.value('pretrained'), given.value('texts')
        tables = measure_change(
            model,
            given.value('tuned').models[given.study.seeds.index(seed)],
            with_progress(
                batches_of(model, texts, settings, annotated=False), f'Change (seed {seed})'
            ),
            wanted,
            mesh=settings.mesh,
        )
        return {name: Measured(table=table) for name, table in tables.items()}

    wanted = [name for name, each in of_each.items() if each.name in asked]
    kept = _kept(given, keys, compute, wanted)
    return {name: measured.table for name, measured in kept.items()}


def _kept(
    given: Given,
    keys: _Keys,
    compute: Callable[[Sequence[str]], Mapping[str, Measured]],
    asked: Sequence[str],
) -> dict[str, Measured]:
    """Measure what is missing in one pass; what others want, only if all of it can be."""
    try:
        return given.study.run.keep_each(Measured, keys, compute, wanted=asked)
    except Exception as error:
        own = {name: keys[name] for name in asked}
        if own.keys() == keys.keys():
            raise
        # The section that wants what failed will say so.
        logging.debug('Not measured together with others: %s', error)
        return given.study.run.keep_each(Measured, own, compute)


def _wanted_by_others(given: Given, wanted: Literal['wants', 'compares']) -> Iterator[Described]:
    """Yield statistics that others want, of which it is known what they depend on."""
    try:
        sections = [ANALYSES[name] for name in given.study.watched]
        described = [each for section in sections for each in getattr(section, wanted)(given)]
    except MENDABLE as error:
        # The section that wants it will say so.
        logging.debug('Not measured now: %s', error)
        return
    for each in described:
        try:
            statistic_key(given, each)
            yield each
        except MENDABLE as error:
            logging.debug('%s is not measured now: %s', each.name, error)


def _settings(given: Given, annotated: bool) -> TextSettings:
    """Return how texts are read; with annotations if words are wanted, and known."""
    wanted = given.has_words and (annotated or given.study.has_trees)
    annotations = given.value('annotations') if wanted else None
    return TextSettings(**vars(given.study.compute()), annotations=annotations)


def _on_texts(given: Given) -> dict[str, Any]:
    """Return everything that each statistic of the model as it is depends on."""
    digests = {'weights': given.digest('pretrained'), 'texts': given.digest('texts')}
    return digests | {'max_length': given['encoding.max_length']}


def statistic_key(given: Given, described: Described) -> dict[str, Any]:
    """Return everything that a statistic depends on."""
    key = {'statistic': described.name} | _on_texts(given)
    if given.has_words and (described.annotated or given.study.has_trees):
        key['annotations'] = given.digest('annotations')
    if described.classifier is not None:
        key['classifier'] = given.digest('classifier')
    own = own_code(given)
    if described.name in own:
        key['code'] = own[described.name]
    return key


def own_code(given: Given) -> dict[str, str]:
    """Return the digest of the file of each statistic of one's own, by the statistic's name."""

    def find() -> dict[str, str]:
        digests = {}
        for name in given['statistics']:
            module, colon, _ = name.partition(':')
            if colon and name not in CATALOGUE:
                own = named(name).name
                digests[own] = sha256(sys.modules[module].__file__)
        return digests

    return given.study.once('own code', find)


def _random(title: str) -> str:
    return f'random links from {title}'
