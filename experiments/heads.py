"""What every head attends to: all statistics of the texts that are analysed, in one pass.

One pass over the model as it is, one over it and its fine-tuned self together; the sections of the
report (`special_tokens`, `features`, `relations`, `cls_tokens`, `attention_change`) read from them.
"""

import dataclasses
from collections.abc import Iterable

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import bucket
from bert_secrets_jax.files import write_arrays
from bert_secrets_jax.measure.links import random_links
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import tables
from experiments import finetune
from experiments.study import Study

SPECIAL = {
    '[CLS]': bs.statistics.to_cls,
    '[SEP]': bs.statistics.to_sep,
    'self': bs.statistics.to_self,
    'previous token': bs.statistics.to_previous,
    'next token': bs.statistics.to_next,
    'entropy (nats)': bs.statistics.entropy,
}
FEATURES = ('noun', 'verb', 'pronoun', 'subject', 'object', 'negation', 'punctuation')


def directions(relations: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Return, for relations named 'source-target', the two ways of attention along their links.

    Returns:
      Title ('source to target', 'target to source') to the relation and whether it is reversed.
    """
    titles = {}
    for relation in relations:
        source, _, target = relation.partition('-')
        source, target = source or 'source', target or 'target'
        titles[f'{source} to {target}'] = (relation, False)
        titles[f'{target} to {source}'] = (relation, True)
    return titles


RELATIONS = directions(('verb-subject', 'noun-pronoun'))


def statistics(study: Study) -> dict[tuple[str, ...], bs.statistics.Statistic]:
    """Return all statistics, by the names of the values that each of them stacks."""
    special = {(name,): statistic for name, statistic in SPECIAL.items()}
    if not study.config.linguistics.pipeline:
        return special
    at = lambda names: tuple(f'{name}@notebook' for name in names)
    # The notebook counted examples without the feature as 0, but for negation.
    among = tuple({'negation': 'negation_substring'}.get(name, 'token') for name in FEATURES)
    to_features = {
        FEATURES: bs.statistics.attention_to(FEATURES),
        tuple(map(notebook, FEATURES)): bs.statistics.attention_to(at(FEATURES), among=among),
        tuple(map(from_cls, ('[CLS]', '[SEP]', *FEATURES))): bs.statistics.cls_to(
            ('cls', 'sep', *FEATURES)
        ),
    }
    along_links = {}
    for reverse in (False, True):
        names = tuple(name for name, (_, reversed_) in RELATIONS.items() if reversed_ == reverse)
        links = tuple(RELATIONS[name][0] for name in names)
        along_links[names] = bs.statistics.attention_of_links(links, reverse=reverse)
        along_links[tuple(map(notebook, names))] = bs.statistics.attention_of_links(
            at(links), among='token', reverse=reverse
        )
    return special | to_features | along_links


def notebook(name: str) -> str:
    """Return the name of the same in the authors' reading."""
    return f'{name} (notebook)'


def from_cls(name: str) -> str:
    """Return the name of the attention of [CLS] to a feature."""
    return f'from [CLS] to {name}'


def change(name: str) -> str:
    """Return the name of the difference that fine-tuning makes."""
    return f'change of {name}'


def measure(study: Study) -> dict[str, bs.HeadTable]:
    """Measure all statistics of the model as it is, or read what a former run measured."""
    file, wanted = study.workdir / 'heads.csv', statistics(study)
    if not file.exists():
        encoded, model = study.encoded, study.pretrained
        nulls, moved = {}, {}
        for title, (relation, reverse) in RELATIONS.items() if encoded.marks else ():
            elsewhere = f'{relation}, moved'
            nulls[title,] = bs.statistics.attention_of_random_links(elsewhere, reverse=reverse)
            moved[elsewhere] = random_links(
                encoded.marks[relation],
                encoded.text,
                draws=study.config.linguistics.draws,
                seed=study.config.seed,
                same_distance=True,
            )
        encoded = dataclasses.replace(encoded, marks={**encoded.marks, **moved})
        batches = bucket(encoded, **study.encoding)
        measured = bs.collect(
            model.bert,
            model.params,
            progress(batches, 'Attention', size=lambda batch: batch.size),
            wanted | nulls,
            mesh=study.mesh,
        )
        if nulls:
            links = {relation: encoded.marks[relation] for relation, _ in RELATIONS.values()}
            drawn = {title: measured.pop((title,)).mean for (title,) in nulls}
            write_arrays(study.workdir / 'relations.npz', **links, **drawn)
        tables.write_heads(file, _apart(measured))
    return tables.read_heads(file, _names(wanted))


def measure_change(study: Study, seed: int) -> dict[str, bs.HeadTable]:
    """Measure the same of the fine-tuned model, what has changed, and Figure 5's cosine.

    Returns:
      By name of the statistic the fine-tuned model's; by `change(name)` that less the pre-trained
      one's, example by example; 'cosine'.
    """
    file = study.workdir / f'heads_seed{seed}.csv'
    both = {('cosine',): bs.statistics.cosine}
    for names, statistic in statistics(study).items():
        both[names] = bs.statistics.of_second(statistic)
        both[tuple(map(change, names))] = bs.statistics.difference(statistic)
    if not file.exists():
        finetune.run(study, 'pretrained')
        before, after = study.pretrained, finetune.load(study, 'pretrained', seed)
        batches = bucket(study.encoded, **study.encoding)
        measured = bs.compare(
            (before.bert, before.params),
            (after.bert, after.params),
            progress(batches, f'Change (seed {seed})', size=lambda batch: batch.size),
            both,
            mesh=study.mesh,
        )
        tables.write_heads(file, _apart(measured))
    return tables.read_heads(file, _names(both))


def _names(statistics) -> list[str]:
    return [name for names in statistics for name in names]


def _apart(measured: dict[tuple[str, ...], bs.HeadTable]) -> dict[str, bs.HeadTable]:
    """Return the tables that were stacked, by their own names."""
    return {
        name: table
        for names, stacked in measured.items()
        for name, table in zip(
            names, [stacked] if stacked.mean.ndim == 2 else stacked.unstack(), strict=True
        )
    }
