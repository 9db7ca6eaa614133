"""What every head attends to: all statistics of the texts that are analysed, in one pass.

One pass over the model as it is, one over it and its fine-tuned self together; the sections of the
report (`special_tokens`, `features`, `relations`, `cls_tokens`, `attention_change`) read from them.
"""

import functools
import hashlib
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import bucket
from bert_secrets_jax.patterns.classifier import (
    Classifier,
    load_classifier,
    pattern,
    pattern_change,
)
from bert_secrets_jax.patterns.cnn import CLASSES
from bert_secrets_jax.progress import progress
from bert_secrets_jax.report import tables
from bert_secrets_jax.workdir import remember_input
from experiments import finetune, links
from experiments.study import Study, fails_once

ALL_SPECIAL = '[CLS] and all [SEP]'
SPECIAL = {
    '[CLS]': bs.statistics.to_cls,
    '[SEP]': bs.statistics.to_sep,
    ALL_SPECIAL: bs.statistics.to_special,
    'self': bs.statistics.to_self,
    'previous token': bs.statistics.to_previous,
    'next token': bs.statistics.to_next,
    'entropy (nats)': bs.statistics.entropy,
}
FEATURES = ('noun', 'verb', 'pronoun', 'subject', 'object', 'negation', 'punctuation')
# Those of the authors' notebook, by the marks that it had for them.
OF_NOTEBOOK = {name: name for name in FEATURES[:5]} | {'negation': 'negation_word'}
# The relations of section 4.5, and what the authors' notebook had of them: active subjects.
RELATIONS = ('verb-subject', 'noun-pronoun')
_RELATIONS_OF_NOTEBOOK = {'verb-subject': 'verb-nsubj'}
# Shares of a head's maps in each class of section 4.1, and of those that are in another one after
# fine-tuning.
PATTERNS = tuple(f'pattern: {name}' for name in CLASSES)
PATTERN_CHANGED = 'pattern: changed'


def classifier(study: Study) -> Classifier:
    """Return the classifier of patterns: the one that ships, or the user's."""
    path = study.config.patterns.classifier
    # Read before it is remembered: a file that is none leaves no trace.
    found = _load(path or None)
    if path:
        content = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        remember_input(study.workdir, 'classifier of patterns', content)
    return found


# The same object for the same file: jit knows it by its identity.
_load = functools.cache(load_classifier)


def statistics(study: Study) -> dict[tuple[str, ...], bs.statistics.Statistic]:
    """Return the statistics of both models, by the names of the values that each of them stacks."""
    special = {(name,): statistic for name, statistic in SPECIAL.items()}
    if not study.config.linguistics.pipeline:
        return special
    at = lambda names: tuple(f'{name}@notebook' for name in names)
    theirs = at(OF_NOTEBOOK.values())
    # The notebook counted examples without the feature as 0, but for negation and from [CLS].
    among = tuple({'negation': 'negation_substring'}.get(name, 'token') for name in OF_NOTEBOOK)
    to_features = {
        FEATURES: bs.statistics.attention_to(FEATURES),
        tuple(map(notebook, OF_NOTEBOOK)): bs.statistics.attention_to(theirs, among=among),
        tuple(map(from_cls, ('[CLS]', '[SEP]', *FEATURES))): bs.statistics.cls_to(
            ('cls', 'sep', *FEATURES)
        ),
        tuple(notebook(from_cls(name)) for name in OF_NOTEBOOK): bs.statistics.cls_to(theirs),
    }
    return special | to_features


def along_links(study: Study) -> dict[tuple[str, ...], bs.statistics.Statistic]:
    """Return the statistics of relations, in the same form."""
    if not study.config.linguistics.pipeline:
        return {}
    at = lambda names: tuple(f'{name}@notebook' for name in names)
    found = {}
    for reverse in (False, True):
        titles = {
            relation: title
            for title, (relation, reversed_) in links.directions(RELATIONS).items()
            if reversed_ == reverse
        }
        found[tuple(titles.values())] = bs.statistics.attention_of_links(
            tuple(titles), reverse=reverse
        )
        found[tuple(notebook(titles[relation]) for relation in _RELATIONS_OF_NOTEBOOK)] = (
            bs.statistics.attention_of_links(
                at(_RELATIONS_OF_NOTEBOOK.values()), among='token', reverse=reverse
            )
        )
    return found


def notebook(name: str) -> str:
    """Return the name of the same in the authors' reading."""
    return f'{name} (notebook)'


def from_cls(name: str) -> str:
    """Return the name of the attention of [CLS] to a feature."""
    return f'from [CLS] to {name}'


def change(name: str) -> str:
    """Return the name of the difference that fine-tuning makes."""
    return f'change of {name}'


@fails_once
def measure(study: Study) -> dict[str, bs.HeadTable]:
    """Measure all statistics of the model as it is, or read what a former run measured."""
    wanted = statistics(study) | along_links(study) | {PATTERNS: pattern(classifier(study))}
    file, links_file = study.workdir / 'heads.csv', study.workdir / 'relations.npz'
    _remember_annotations(study)
    if not is_measured(study):
        encoded, model, nulls = study.encoded, study.pretrained, {}
        if encoded.marks:
            encoded, nulls = links.with_random(
                encoded,
                RELATIONS,
                [links.MOVED],
                draws=study.config.links.draws,
                seed=study.config.seed,
            )
        measured = bs.collect(
            model.bert,
            model.params,
            progress(bucket(encoded, **study.encoding), 'Attention', size=lambda batch: batch.size),
            wanted | nulls,
            mesh=study.mesh,
        )
        if nulls:
            links.write(links_file, encoded, RELATIONS, measured)
        tables.write_heads(file, _apart({names: measured[names] for names in wanted}))
    return tables.read_heads(file, _names(wanted))


def is_measured(study: Study) -> bool:
    """Whether `measure` only reads."""
    files = ['heads.csv', *['relations.npz'] * bool(study.config.linguistics.pipeline)]
    return all((study.workdir / file).exists() for file in files)


def _remember_annotations(study: Study) -> None:
    """Notice annotations that were edited since something was measured on them."""
    for file in sorted((study.workdir / 'linguistics').glob('*.jsonl')):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        remember_input(study.workdir, f'annotations ({file.name})', content)


@fails_once
def measure_change(study: Study, seed: int) -> dict[str, bs.HeadTable]:
    """Measure the fine-tuned model, what has changed, and Figure 5's cosine.

    Returns:
      By name of the statistic the fine-tuned model's; by `change(name)` that less the pre-trained
      one's, example by example; 'cosine'; PATTERNS of the fine-tuned model, PATTERN_CHANGED.
    """
    file = changed_file(study, seed)
    both = {
        ('cosine',): bs.statistics.cosine,
        (*PATTERNS, PATTERN_CHANGED): pattern_change(classifier(study)),
    }
    for names, statistic in statistics(study).items():
        both[names] = bs.statistics.of_second(statistic)
        both[tuple(map(change, names))] = bs.statistics.difference(statistic)
    _remember_annotations(study)
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


def changed_file(study: Study, seed: int) -> pathlib.Path:
    """Return the file of `measure_change`."""
    return study.workdir / f'heads_seed{seed}.csv'


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


def over_seeds(
    runs: Sequence[Mapping[str, bs.HeadTable]], names: Iterable[str]
) -> dict[str, bs.HeadTable]:
    """Return the mean of several runs' tables; its variance is that over examples."""
    return {
        name: bs.HeadTable(
            mean=np.mean([run[name].mean for run in runs], axis=0),
            variance=np.mean([run[name].variance for run in runs], axis=0),
            count=runs[0][name].count,
        )
        for name in names
    }
