"""Texts to analyse, and the tasks of GLUE: columns, classes, metrics and names."""

import dataclasses
import numbers
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.embedding import Pooling


class Placed:
    """Something that was read from a file."""

    id: str
    where: str

    @property
    def place(self) -> str:
        """Where a person finds it: its file and line, or else its id."""
        return self.where or self.id


@dataclasses.dataclass(frozen=True)
class Example(Placed):
    """One sentence, or pair of sentences, as it stands in its file.

    Attributes:
      text_a, text_b: The sentences; `text_b` is None if there is only one.
      label: The class id, or the score in regression; None if the example has no label.
      id: The origin of the example, such as 'mrpc/dev/17'. Rows count from 0, without the header.
      where: The file and the line that it was read from, for errors.
      classes: The names of all classes by their ids, where the file or its reader has them.
      metrics: The metrics of its task (see `bs.finetune`), where its reader knows them. Neither
        these nor `where` and `classes` make a difference between examples.
    """

    text_a: str
    text_b: str | None = None
    label: int | float | None = None
    id: str = ''
    where: str = dataclasses.field(default='', repr=False, compare=False)
    classes: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)
    metrics: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, str | None]:
        """The texts that a model reads: the same ones under another id are no new example."""
        return self.text_a, self.text_b


# The most classes that numbers may count. A label such as 1000000000 is no class id: a classifier
# of as many classes would be made for it.
MOST_CLASSES = 1000

# The kinds of texts that all functions accept; all items of one list are of the same kind.
Text = str | tuple[str, str] | Example


def prepared(pooling: Pooling, texts: Sequence[Text], prompt: str | None = None) -> list[Example]:
    """Return texts as the model wants to read them, with its prompt before each."""
    before = pooling.before(prompt)
    examples = as_examples(texts)
    if any(each.text_b is not None for each in examples):
        raise TypeError('An embedding is of one text: give strings, and no pairs.')
    read = (before + each.text_a for each in examples)
    return [
        dataclasses.replace(each, text_a=text.lower() if pooling.lower else text)
        for each, text in zip(examples, read, strict=True)
    ]


def as_examples(texts: Sequence[Text]) -> list[Example]:
    """Return texts as examples.

    >>> as_examples(['The cat ran.'])
    [Example(text_a='The cat ran.', text_b=None, label=None, id='text/0')]

    The texts are strings, (text_a, text_b) pairs or examples, but not a mixture. Those without an
    id are given the ids 'text/0', 'text/1' and so on.

    Raises:
      TypeError: The texts are a single string, a mixture, or something else.
    """
    if isinstance(texts, str | Example):
        raise TypeError(
            f'Texts are several, and this is a single {type(texts).__name__}: give a list, '
            '[text], for one of them.'
        )
    # An iterator could be read only once, by whoever comes first.
    if isinstance(texts, Mapping) or not hasattr(texts, '__len__'):
        raise TypeError(f'A {type(texts).__name__} is no list of texts: {_KINDS_OF_TEXT}.')
    examples, kinds = [], {}
    for row, text in enumerate(texts):
        example, kind = as_example(text, row)
        examples.append(example)
        kinds.setdefault(kind, row)
    if len(kinds) > 1:
        found = ' and '.join(f'a {kind} at {row}' for kind, row in list(kinds.items())[:2])
        raise TypeError(f'The texts are mixed, {found}: {_KINDS_OF_TEXT}, all of one kind.')
    return examples


Drawn = TypeVar('Drawn')


def draw(
    examples: Sequence[Drawn], wanted: int, seed: int, *, setting: str = 'max_examples'
) -> list[Drawn]:
    """Draw examples, of any kind, at random, and return them in their original order.

    At most `wanted` are returned, 0 returns all; the error calls this number by its setting.

    Raises:
      ValueError: `wanted` is not a whole number, or is negative.
    """
    if not isinstance(wanted, numbers.Integral) or wanted < 0:
        raise ValueError(f'{setting}={wanted!r} must be a whole number, 0 for all.')
    if wanted == 0 or len(examples) <= wanted:
        return list(examples)
    chosen = np.random.default_rng(seed).permutation(len(examples))[:wanted]
    logging.info('%d of %d examples drawn (%s, seed %d).', wanted, len(examples), setting, seed)
    return [examples[index] for index in sorted(chosen)]


def unseen(examples: Sequence[Drawn], *seen: Sequence[Any]) -> list[Drawn]:
    """Return the examples whose texts are not among others, such as those of a training."""
    known = {each.texts for others in seen for each in others}
    return [each for each in examples if each.texts not in known]  # pyright: ignore


def joined(*examples: Sequence[Drawn]) -> list[Drawn]:
    """Return the examples of several lists, one list after the other."""
    return [each for some in examples for each in some]


def examples_of(items: Sequence[Any]) -> list[Example]:
    """Return the texts of tagged words, questions or sentences with trees, without the answers."""
    return [each if isinstance(each, Example) else each.example for each in items]


def first_texts(examples: Sequence[Example]) -> list[Example]:
    """Return the first text of each example, without the second one and the label."""
    return [dataclasses.replace(each, text_b=None, label=None) for each in examples]


_KINDS_OF_TEXT = (
    "give a list of strings, of pairs ('text a', 'text b') or of bs.Example(text_a, text_b)"
)


def as_example(text: object, row: int) -> tuple[Example, str]:
    """Return a text as example, with an id made from its row, and its kind (or a TypeError)."""
    made_up = f'text/{row}'
    match text:
        case Example():
            return text if text.id else dataclasses.replace(text, id=made_up), 'bs.Example'
        case str():
            return Example(text, id=made_up), 'string'
        case (str() as first, str() as second):
            return Example(first, second, id=made_up), 'pair'
        case _:
            raise TypeError(f'Text {row} is a {type(text).__name__}: {_KINDS_OF_TEXT}.')


def check_labels_inputs(config: BertConfig) -> None:
    """Raise ValueError for a model that does not give each text one label."""
    how = 'gives others' if config.num_labels else 'has no classifier'
    if not config.labels_inputs:
        raise ValueError(
            f'Each text has one label here, and the model ({config.summary}) {how}: give one that '
            'was fine-tuned for that, such as `bs.finetune` returns.'
        )


def labels_of(texts: Sequence[Text], config: BertConfig) -> np.ndarray:
    """Return the labels of examples [E], checked against the classes of a model (ValueError)."""
    check_labels_inputs(config)
    examples = as_examples(texts)
    for example in examples:
        label = example.label
        if label is None:
            raise ValueError(f'{example.place} has no label: labelled texts are needed.')
        if config.num_labels == 1:
            if not np.isfinite(label):
                raise ValueError(f'The label of {example.place}, {label}, is not a finite number.')
        elif label != int(label) or not 0 <= label < config.num_labels:
            raise ValueError(
                f'The label of {example.place} is {label}, and the model has {config.num_labels} '
                f'classes, 0 to {config.num_labels - 1}: give a model that was fine-tuned on this '
                'task.'
            )
    return np.array([example.label for example in examples])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task of GLUE in the original TSV files and in tensorflow-datasets.

    Attributes:
      name, title: The short name, such as 'sst-2', and as it is printed and the folder spelled.
      tfds_config: The name after 'glue/' in tensorflow-datasets.
      text_columns: One or two column names in the header of the TSV file.
      tfds_text_features: The names of the texts in tensorflow-datasets.
      label_column: The column of the label in the same header.
      labels: The labels as the TSV file spells them. The position of a label is its class id, the
        same as in tensorflow-datasets and Hugging Face. Empty for regression.
      metrics: The metrics that GLUE reports, in its order.
      train_file, dev_file: The names of the files without their extension.
      tfds_dev_split: The name of the development split in tensorflow-datasets.
      columns: All columns of the TSV file, if it has no header.
      in_paper: Whether the task is in the paper, which left out CoLA and WNLI.
    """

    name: str
    title: str
    tfds_config: str
    text_columns: tuple[str, ...] = ('sentence1', 'sentence2')
    tfds_text_features: tuple[str, ...] = ('sentence1', 'sentence2')
    label_column: str = 'label'
    labels: tuple[str, ...] = ('0', '1')
    metrics: tuple[str, ...] = ('accuracy',)
    train_file: str = 'train'
    dev_file: str = 'dev'
    tfds_dev_split: str = 'validation'
    columns: tuple[str, ...] = ()
    in_paper: bool = True

    @property
    def is_pair(self) -> bool:
        """Whether an example has two sentences."""
        return len(self.text_columns) == 2

    @property
    def is_regression(self) -> bool:
        """Whether the label is a score rather than a class."""
        return not self.labels

    @property
    def num_labels(self) -> int:
        """The width of the classifier: the number of classes, or 1 for regression."""
        return len(self.labels) or 1


def _glue(title: str, texts: tuple[str, ...] = ('sentence1', 'sentence2'), **more: Any) -> Task:
    """Return a task whose names follow from its title, and whose texts have the same columns."""
    name = title.lower()
    more = {'text_columns': texts, 'tfds_text_features': texts, **more}
    return Task(name=name, title=title, tfds_config=name.replace('-', ''), **more)


_ENTAILMENT = ('entailment', 'not_entailment')
_TASKS = (
    _glue(
        'MRPC',
        text_columns=('#1 String', '#2 String'),
        label_column='Quality',
        metrics=('f1', 'accuracy'),
    ),
    _glue('STS-B', label_column='score', labels=(), metrics=('pearson', 'spearman')),
    _glue('SST-2', ('sentence',)),
    _glue(
        'QQP', ('question1', 'question2'), label_column='is_duplicate', metrics=('f1', 'accuracy')
    ),
    _glue('RTE', labels=_ENTAILMENT),
    _glue('QNLI', ('question', 'sentence'), labels=_ENTAILMENT),
    # MNLI-matched: the paper evaluates on the genres seen in training.
    _glue(
        'MNLI',
        tfds_text_features=('premise', 'hypothesis'),
        label_column='gold_label',
        labels=('entailment', 'neutral', 'contradiction'),
        dev_file='dev_matched',
        tfds_dev_split='validation_matched',
    ),
    _glue(
        'CoLA',
        ('sentence',),
        label_column='is_acceptable',
        metrics=('matthews',),
        columns=('source', 'is_acceptable', 'star', 'sentence'),
        in_paper=False,
    ),
    _glue('WNLI', in_paper=False),
)
GLUE: Mapping[str, Task] = types.MappingProxyType({task.name: task for task in _TASKS})


def get_task(name: str | Task) -> Task:
    """Return a task by its name; a task is returned as it is. Case, '-' and '_' do not matter.

    >>> get_task('STSB').name
    'sts-b'

    Raises:
      ValueError: There is no such task.
    """
    if isinstance(name, Task):
        return name
    tasks = {task.tfds_config: task for task in GLUE.values()}
    plain = name.lower().replace('-', '').replace('_', '')
    if plain not in tasks:
        check_name('task', name, GLUE)
    return tasks[plain]
