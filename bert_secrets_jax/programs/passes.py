"""The passes of a study over its texts, each of which measures what all sections want of it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from absl import logging

from bert_secrets_jax.analyses.attention_change import for_reading
from bert_secrets_jax.analyses.texts import with_progress
from bert_secrets_jax.brief import MENDABLE
from bert_secrets_jax.data.encoding import Encoded, bucket, mark, tokenize
from bert_secrets_jax.measure.catalogue import RELATIONS, Described, change, measure, measure_change
from bert_secrets_jax.measure.links import LinkScores, directions, link_scores, with_random_links
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.runs.run import NotKept

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study

# This needs maps that are padded as in the authors' notebook, so it has a pass of its own.
_PADDED = 'cosine (padded)'
_Keys = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The outcome of one pass for one statistic, or for random links: the parts of their tests."""

    FORMAT: ClassVar[int] = 3

    table: HeadTable | None = None
    scores: LinkScores | None = None


def tables_before(study: 'Study', described: Sequence[Described]) -> dict[str, HeadTable]:
    """Return tables of statistics of the model as it is, by name."""
    measured = _before(study, described, ())
    return {each.name: measured[each.name].table for each in described}


def relation_scores(study: 'Study') -> dict[str, LinkScores]:
    """Return the parts of the tests of section 4.5's relations, by the directions' titles."""
    titles = list(directions(RELATIONS))
    measured = _before(study, (), titles)
    return {title: measured[_random(title)].scores for title in titles}


def _before(
    study: 'Study', described: Sequence[Described], titles: Sequence[str]
) -> dict[str, Measured]:
    statistics = {each.name: each for each in described}
    keys = {name: study._key(each) for name, each in statistics.items()}
    if titles:
        keys |= _keys_of_links(study)
    if not study.run.read_only:
        classified = any(each.classifier is not None for each in described)
        for each, key in _wanted_by_others(study, study.wanted):
            # Classes of patterns take longer to compile than all else, and have a pass of their
            # own: the first picture does not wait for them.
            if (each.classifier is not None) != classified:
                continue
            statistics[each.name] = each
            keys[each.name] = key
            if each.relations:
                keys |= _keys_of_links(study)

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = [each for name, each in statistics.items() if name in missing]
        links = [title for title in directions(RELATIONS) if _random(title) in missing]
        return _measure(study, wanted, links)

    asked = [*(each.name for each in described), *map(_random, titles)]
    return _kept(study, keys, compute, asked)


def _measure(
    study: 'Study', wanted: Sequence[Described], links: Sequence[str]
) -> dict[str, Measured]:
    annotated = bool(links) or any(each.annotated for each in wanted)
    encoded = _encoded(study, annotated, study.settings.max_length)
    with_random, random = encoded, {}
    if links:
        with_random, random = with_random_links(
            encoded, RELATIONS, draws=study.config.links.draws, seed=study.config.seed
        )
    batches = with_progress(bucket(with_random, **study.settings.bucketing), 'Attention')
    tables = measure(study.pretrained, batches, wanted, also=random, mesh=study.mesh)
    measured = {each.name: Measured(table=tables[each.name]) for each in wanted}
    if links:
        scores = link_scores(encoded, RELATIONS, tables)
        measured |= {_random(title): Measured(scores=scores[title]) for title in links}
    return measured


def tables_after(study: 'Study', seed: int, described: Sequence[Described]) -> dict[str, HeadTable]:
    """Return tables of the model of a seed, of its changes, and of comparisons, by name."""
    tuned = {'finetuned': study.finetuning_digest('pretrained'), 'seed': seed}
    of_each = {each.name: (each, study._key(each)) for each in described}
    padded = _PADDED in of_each
    if not (study.run.read_only or padded):
        others = _wanted_by_others(study, study.compared)
        of_each |= {each.name: (each, key) for each, key in others}
    names, keys = {}, {}
    for each, key in of_each.values():
        for name in [each.name] if each.pairwise else [each.name, change(each.name)]:
            names[name], keys[name] = each, key | tuned | {'of': name}

    def compute(missing: Sequence[str]) -> dict[str, Measured]:
        wanted = list({names[name].name: names[name] for name in missing}.values())
        settings = for_reading('notebook', study.settings) if padded else study.settings
        annotated = any(each.annotated for each in wanted)
        encoded = _encoded(study, annotated, settings.max_length)
        tables = measure_change(
            study.pretrained,
            study.finetuned('pretrained').models[study.seeds.index(seed)],
            with_progress(bucket(encoded, **settings.bucketing), f'Change (seed {seed})'),
            wanted,
            mesh=study.mesh,
        )
        return {name: Measured(table=table) for name, table in tables.items()}

    asked = {each.name for each in described}
    wanted = [name for name, each in names.items() if each.name in asked]
    kept = _kept(study, keys, compute, wanted)
    return {name: measured.table for name, measured in kept.items()}


def _kept(
    study: 'Study',
    keys: _Keys,
    compute: Callable[[Sequence[str]], Mapping[str, Measured]],
    asked: Sequence[str],
) -> dict[str, Measured]:
    """Measure what is missing in one pass; what others want, only if all of it can be."""
    try:
        return study.run.keep_each(Measured, keys, compute, wanted=asked)
    except NotKept:
        raise
    except Exception as error:
        own = {name: keys[name] for name in asked}
        if own.keys() == keys.keys():
            raise
        # The section that wants what failed will say so.
        logging.debug('Not measured together with others: %s', error)
        return study.run.keep_each(Measured, own, compute)


def _wanted_by_others(
    study: 'Study', wanted: Callable[['Study'], Iterable[Described]]
) -> Iterator[tuple[Described, dict[str, Any]]]:
    """Yield statistics that others want, with what they depend on, of which that is known."""
    try:
        described = list(wanted(study))
    except MENDABLE as error:
        # The section that wants it will say so.
        logging.debug('Not measured now: %s', error)
        return
    for each in described:
        try:
            yield each, study._key(each)
        except MENDABLE as error:
            logging.debug('%s is not measured now: %s', each.name, error)


def _keys_of_links(study: 'Study') -> _Keys:
    key = study.on_texts() | {
        'annotations': study.input('annotations'),
        'links': [study.config.links.draws, study.config.seed],
    }
    return {_random(title): key for title in directions(RELATIONS)}


def _encoded(study: 'Study', annotated: bool, max_length: int | None) -> Encoded:
    encoded = tokenize(study.pretrained.tokenizer, study.texts, max_length=max_length)
    wanted = study.has_words and (annotated or study.has_trees)
    return mark(encoded, study.annotations) if wanted else encoded


def _random(title: str) -> str:
    return f'random links from {title}'
