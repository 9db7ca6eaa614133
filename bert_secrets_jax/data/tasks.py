"""The seven GLUE tasks of the paper: their columns, classes, metrics and names."""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Example:
    """One sentence, or pair of sentences, as it stands in its file.

    Attributes:
      text_a: the first or only sentence.
      text_b: the second sentence; None where there is one only.
      label: class id, or score in regression; None where the file has no labels.
      id: where it comes from, as 'mrpc/dev/17'. Rows count from 0, header excluded.
    """

    text_a: str
    text_b: str | None
    label: int | float | None
    id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task of GLUE in the original TSV files and in tensorflow-datasets.

    Attributes:
      name: short name, as 'sst-2'.
      title: name as printed in the paper, and folder of the original layout.
      text_columns: one or two column names in the header of the TSV.
      label_column: column of the label in the same header.
      labels: labels as the TSV spells them; the index is the class id, which is the one
        of tensorflow-datasets and Hugging Face. Empty for regression.
      metrics: what GLUE reports, in its order.
      train_file: stem of the training file.
      dev_file: stem of the development file.
      tfds_config: name after 'glue/' in tensorflow-datasets.
      tfds_text_features: names of the texts in tensorflow-datasets.
      tfds_dev_split: name of the development split in tensorflow-datasets.
    """

    name: str
    title: str
    text_columns: tuple[str, ...]
    label_column: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    train_file: str = 'train'
    dev_file: str = 'dev'
    tfds_config: str
    tfds_text_features: tuple[str, ...]
    tfds_dev_split: str = 'validation'

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
        """Width of the classifier: the number of classes, 1 for regression."""
        return len(self.labels) or 1


GLUE: Mapping[str, Task] = types.MappingProxyType(
    {
        task.name: task
        for task in (
            Task(
                name='mrpc',
                title='MRPC',
                text_columns=('#1 String', '#2 String'),
                label_column='Quality',
                labels=('0', '1'),
                metrics=('f1', 'accuracy'),
                tfds_config='mrpc',
                tfds_text_features=('sentence1', 'sentence2'),
            ),
            Task(
                name='sts-b',
                title='STS-B',
                text_columns=('sentence1', 'sentence2'),
                label_column='score',
                labels=(),
                metrics=('pearson', 'spearman'),
                tfds_config='stsb',
                tfds_text_features=('sentence1', 'sentence2'),
            ),
            Task(
                name='sst-2',
                title='SST-2',
                text_columns=('sentence',),
                label_column='label',
                labels=('0', '1'),
                metrics=('accuracy',),
                tfds_config='sst2',
                tfds_text_features=('sentence',),
            ),
            Task(
                name='qqp',
                title='QQP',
                text_columns=('question1', 'question2'),
                label_column='is_duplicate',
                labels=('0', '1'),
                metrics=('f1', 'accuracy'),
                tfds_config='qqp',
                tfds_text_features=('question1', 'question2'),
            ),
            Task(
                name='rte',
                title='RTE',
                text_columns=('sentence1', 'sentence2'),
                label_column='label',
                labels=('entailment', 'not_entailment'),
                metrics=('accuracy',),
                tfds_config='rte',
                tfds_text_features=('sentence1', 'sentence2'),
            ),
            Task(
                name='qnli',
                title='QNLI',
                text_columns=('question', 'sentence'),
                label_column='label',
                labels=('entailment', 'not_entailment'),
                metrics=('accuracy',),
                tfds_config='qnli',
                tfds_text_features=('question', 'sentence'),
            ),
            # MNLI-matched: the paper evaluates on the genres seen in training.
            Task(
                name='mnli',
                title='MNLI',
                text_columns=('sentence1', 'sentence2'),
                label_column='gold_label',
                labels=('entailment', 'neutral', 'contradiction'),
                metrics=('accuracy',),
                dev_file='dev_matched',
                tfds_config='mnli',
                tfds_text_features=('premise', 'hypothesis'),
                tfds_dev_split='validation_matched',
            ),
        )
    }
)


def get_task(name: str | Task) -> Task:
    """Find a task by name; case, '-' and '_' do not matter. A task is returned as it is.

    >>> get_task('STSB').name
    'sts-b'

    Raises:
      ValueError: for a name that is not among the paper's tasks.
    """
    if isinstance(name, Task):
        return name
    wanted = _plain(name)
    for task in GLUE.values():
        if _plain(task.name) == wanted:
            return task
    known = ', '.join(GLUE)
    if wanted in ('cola', 'wnli'):
        raise ValueError(
            f'The paper excluded CoLA and WNLI from its tasks, so {name!r} is not '
            f'here; known: {known}.'
        )
    raise ValueError(f'Unknown task {name!r}; known: {known}.')


def _plain(name: str) -> str:
    return name.lower().replace('-', '').replace('_', '')
