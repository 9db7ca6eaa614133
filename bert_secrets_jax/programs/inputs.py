"""How texts and labels are read, as the settings say."""

import operator
import pathlib

from ml_collections import ConfigDict

from bert_secrets_jax.checks import check_different, summary
from bert_secrets_jax.configs import schema
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.data.corpus import LABELS, read_corpus
from bert_secrets_jax.data.glue import read_glue, read_tfds
from bert_secrets_jax.data.rows import check_there
from bert_secrets_jax.data.tables import read_table, sorted_classes
from bert_secrets_jax.data.tasks import get_task
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import read_json
from bert_secrets_jax.runs.call import Call, call
from bert_secrets_jax.runs.folder import check_folder


def runs_of(config: ConfigDict, workdir: pathlib.Path) -> list[tuple[ConfigDict, pathlib.Path]]:
    """Return the settings and the folder of a run for each task that `data.task` names.

    Where labels are words, the settings have their names.
    """
    check_packages(config)
    schema.check(config)
    if tuple(config.statistics) != SETTINGS['statistics'].default:
        # Names of no statistic are refused before a model or a text is read. Loading the catalogue
        # takes seconds.
        from bert_secrets_jax.measure.catalogue import named

        for name in config.statistics:
            named(name)
    tasks = config.data.task.split(',') if config.data.source == 'glue' else []
    names = [get_task(task).name for task in tasks]
    if len(tasks) < 2:
        return [(with_classes(config, workdir), workdir)]
    check_different('data.task', names)
    if (workdir / 'config.json').exists():
        raise ValueError(f'{workdir} holds a run of one task: choose another folder.')
    runs = []
    for name in names:
        of_task = config.copy_and_resolve_references()
        of_task.data.task = name
        runs.append((of_task, workdir / name))
    return runs


def check(config: ConfigDict, workdir: pathlib.Path) -> None:
    """Refuse settings, a folder and tables that are wrong, without loading what takes seconds."""
    for own, folder in runs_of(config, workdir):
        check_folder(folder)
        data, is_alone = own.data, folder == workdir
        try:
            _check_files(own)
            learns = data.source == 'file' and data.train_file is not None
            if learns and data.label is None:
                raise ValueError(f'{data.train_file} needs labels: name them (setting data.label).')
            for split in (data.split, *['train'] * learns):
                made = reading(data, split)
                is_quick = made.function in (read_table, read_glue)
                if is_quick and data.bad_rows == 'error' and is_alone:
                    made.value()
        except FileNotFoundError:
            # A finished run is read without its inputs.
            if not (folder / 'config.json').exists():
                raise


def check_packages(config: ConfigDict) -> None:
    """Refuse a run whose page, words or data need packages that are not installed."""
    data, needed = config.data, ['matplotlib']
    if config.linguistics.pipeline and data.source != 'treebank':
        needed.append('spacy')
    if data.source == 'glue' and data.glue_dir is None:
        needed.append('tensorflow_datasets')
    require(*needed)


def _check_files(config: ConfigDict) -> None:
    """Raise FileNotFoundError for what a setting names and is not there; it names the setting."""
    for setting in (name for name, each in SETTINGS.items() if each.path):
        named = operator.attrgetter(setting)(config) or ()
        for file in (named,) if isinstance(named, str) else named:
            try:
                if setting != 'model.name':
                    # FrameNet may be where NLTK has it.
                    check_there(pathlib.Path('.' if file == 'framenet' else file))
                elif file.startswith(('/', '.', '~')) and not pathlib.Path(file).is_dir():
                    raise FileNotFoundError(
                        f'{file!r} is no directory here: give the folder of a model.'
                    )
            except OSError as error:
                raise type(error)(f'setting {setting}: {summary(error)}') from error


def with_classes(config: ConfigDict, folder: pathlib.Path) -> ConfigDict:
    """Return the settings of a run with the names of its classes, where labels are words."""
    data = config.data
    # The classes of a model that is ablated as it is have an order of their own.
    as_it_is = config.ablation.checkpoint == 'model'
    if data.source != 'file' or data.label is None or data.labels or as_it_is:
        return config
    columns = tuple(data.columns) or None
    try:
        texts = _file(data, data.split)
        names = sorted_classes(texts, data.train_file, label=data.label, columns=columns)
    except FileNotFoundError:
        file = folder / 'config.json'
        names = read_json(file)['data']['labels'] if file.exists() else ()
    named = config.copy_and_resolve_references()
    named.data.labels = tuple(names)
    return named


_QUESTIONS = {
    'mrpc': 'Do two sentences mean the same?',
    'sts-b': 'How alike are two sentences?',
    'sst-2': 'Does a reviewer like the film?',
    'qqp': 'Do two questions ask the same?',
    'rte': 'Does the first text imply the second?',
    'qnli': 'Does a sentence answer the question?',
    'mnli': 'Does the first sentence imply the second?',
    'cola': 'Is a sentence grammatical?',
    'wnli': 'Does the first sentence imply the second?',
}


# Settings that mean nothing for a source of texts.
_MEANINGLESS = {
    'segments': ('text_b', 'columns', 'label', 'labels', 'train_file'),
    'tags': ('text_b', 'columns'),
    **dict.fromkeys(('questions', 'treebank'), ('text_b', 'columns', 'label', 'labels')),
}


def reading(data: ConfigDict, split: str) -> Call:
    """Return the call that reads all texts of a split, with what is to be learnt from them.

    Readers that load JAX are imported where they are needed: the first errors take no time.
    """
    for name in _MEANINGLESS.get(data.source, ()):
        if data[name]:
            setting = f'data.{name} means nothing with data.source={data.source}'
            raise ValueError(f'The setting {setting}: leave it out.')
    bad_rows = {'bad_rows': data.bad_rows}
    names = {name: tuple(data[name]) or None for name in ('labels', 'columns')}
    match data.source:
        case 'corpus':
            return call(read_corpus, split)
        case 'glue' if data.glue_dir is None:
            return call(read_tfds, data.task, split=split, data_dir=data.tfds_dir)
        case 'glue':
            return call(read_glue, data.glue_dir, data.task, split=split, **bad_rows)
        case 'segments':
            # As Clark et al. (2019, section 3) took them. Without a file, they are of the text that
            # comes with the package. The tokenizer tells how long they may be.
            from bert_secrets_jax.data.segments import read_segments

            return call(read_segments, data.file, count=0)
        case 'questions':
            from bert_secrets_jax.data.questions import read_questions

            return call(read_questions, _file(data, split), **bad_rows)
        case 'treebank':
            from bert_secrets_jax.data.treebank import read_treebank

            return call(read_treebank, _file(data, split), **bad_rows)
        case 'file':
            columns = {name: data[name] for name in ('text_a', 'text_b', 'label')}
            return call(read_table, _file(data, split), **columns, **names, **bad_rows)
    from bert_secrets_jax.data.tagged import read_conllu, read_tagged

    file = _file(data, split)
    suffix = pathlib.PurePath(file).suffix.lower()
    if suffix == '.conllu':
        return call(read_conllu, file, column=data.label or 'upos', **bad_rows)
    if suffix != '.jsonl':
        raise ValueError(
            f'{file}: words with tags are read from .jsonl and .conllu (Universal Dependencies, '
            'other tags in a column such as misc.NER), not from '
            f'{suffix or "a file without an ending"}.'
        )
    # The default is the name of a text, and not of a list of words.
    words = 'tokens' if data.text_a == 'text_a' else data.text_a
    tags = data.label or 'tags'
    return call(read_tagged, file, words=words, tags=tags, names=names['labels'], **bad_rows)


def text_name(data: ConfigDict, split: str) -> str:
    """Return the name of the texts of a split, for sentences and captions."""
    if data.name is not None:
        return f'{data.name}, train' if split == 'train' else data.name
    match data.source:
        case 'glue':
            task = get_task(data.task)
            return f'{task.title} {split}' + ('' if task.in_paper else ' (not in the paper)')
        case 'corpus':
            return 'example comments, train' if split == 'train' else 'example comments'
        case 'segments' if data.file is None:
            return 'example prose'
        case _:
            return pathlib.PurePath(_file(data, split)).name


def texts_in_words(data: ConfigDict) -> str:
    """Return a sentence that says what the texts are."""
    if data.source == 'corpus' and data.name is None:
        unseen = '' if data.split == 'train' else ', on which no weight was trained'
        return f'Texts: example comments of this package{unseen}.'
    return f'{"Your texts" if is_own(data) else "Texts"}: {text_name(data, data.split)}.'


def is_own(data: ConfigDict) -> bool:
    """Return whether the texts are in a file of one's own."""
    return data.source != 'glue' and data[_file_setting(data.split)] is not None


def question_of(data: ConfigDict) -> str:
    """Return what a model is asked about a text, as a question; empty for texts of one's own."""
    if data.source == 'corpus':
        return 'Does a comment welcome the news?'
    return _QUESTIONS.get(get_task(data.task).name, '') if data.source == 'glue' else ''


def label_names(data: ConfigDict) -> tuple[str, ...] | None:
    """Return the names of the classes, one name for regression; None if labels are numbers."""
    match data.source:
        case 'corpus':
            return LABELS
        case 'glue':
            return get_task(data.task).labels or ('score',)
        case 'questions':
            return None
    if data.label is None and data.source != 'tags':
        raise ValueError('Fine-tuning needs labels: name their column (setting data.label).')
    return tuple(data.labels) or None


def _file_setting(split: str) -> str:
    return 'train_file' if split == 'train' else 'file'


def _file(data: ConfigDict, split: str) -> str:
    name = _file_setting(split)
    if data[name] is None:
        kinds = {'tags': '.conllu or .jsonl', 'questions': '.json or .jsonl', 'treebank': '.conllu'}
        kind = kinds.get(data.source, '.tsv, .csv or .jsonl')
        raise ValueError(f'The setting data.{name} is not given: name a {kind}.')
    return data[name]
