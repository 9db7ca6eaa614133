"""Texts that are allowed; the table of tasks, checked against tensorflow-datasets' own."""

import pytest
from tensorflow_datasets.text.glue import Glue

from bert_secrets_jax.data import tasks

Example = tasks.Example
CONFIGS = {config.name: config for config in Glue.BUILDER_CONFIGS}


def test_the_papers_seven_tasks_and_the_two_that_it_left_out():
    of_paper = ['mrpc', 'sts-b', 'sst-2', 'qqp', 'rte', 'qnli', 'mnli']
    assert list(tasks.GLUE) == [*of_paper, 'cola', 'wnli']
    assert [task.name for task in tasks.GLUE.values() if task.in_paper] == of_paper


@pytest.mark.parametrize('task', tasks.GLUE.values(), ids=lambda task: task.name)
def test_agrees_with_tensorflow_datasets(task):
    config = CONFIGS[task.tfds_config]
    assert config.data_dir == task.title
    assert tuple(config.text_features) == task.tfds_text_features
    # TFDS builds MRPC from Microsoft's files and so names no text columns for it.
    if task.name != 'mrpc':
        assert tuple(config.text_features.values()) == task.text_columns
    assert config.label_column == task.label_column
    classes = config.label_classes
    assert task.is_regression == (classes is None)
    assert task.num_labels == len(classes or [''])
    # As TFDS reads a TSV: the name of a class, or else its number.
    for class_id, label in enumerate(task.labels):
        assert label == classes[class_id] if label in classes else int(label) == class_id


def test_get_task():
    for name, found in {'MRPC': 'mrpc', 'sst2': 'sst-2', 'sts_b': 'sts-b', 'CoLA': 'cola'}.items():
        assert tasks.get_task(name) is tasks.GLUE[found]


@pytest.mark.parametrize(
    ('texts', 'expected'),
    [
        (['a', 'b'], [Example('a', id='text/0'), Example('b', id='text/1')]),
        ((('a', 'b'),), [Example('a', 'b', None, 'text/0')]),
        ([Example('a'), Example('b', id='c')], [Example('a', id='text/0'), Example('b', id='c')]),
        ([], []),
    ],
)  # fmt: skip
def test_texts_become_examples(texts, expected):
    assert tasks.as_examples(texts) == expected


@pytest.mark.parametrize(
    ('texts', 'message'),
    [
        ('the cat', 'this is a single str: give a list'),
        (Example('a'), 'this is a single Example: give a list'),
        (['a', ('b', 'c')], 'mixed, a string at 0 and a pair at 1: give a list of strings'),
        (['a', Example('b')], 'mixed, a string at 0 and a bs.Example at 1'),
        ([3], 'Text 0 is a int: give a list of strings'),
        ([('a', 'b', 'c')], 'Text 0 is a tuple'),
        ([('a', None)], 'Text 0 is a tuple'),
        ({'a': 'b'}, 'A dict is no list of texts'),
        (iter('ab'), 'is no list of texts'),
    ],
)
def test_other_texts_are_refused(texts, message, untyped):
    with pytest.raises(TypeError, match=message):
        tasks.as_examples(texts)
