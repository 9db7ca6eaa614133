"""Maps to label, and the classifier that learns from them."""

import csv

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.programs.study import Study
from tests.tools.patterns.conftest import write_annotated
from tools.patterns import programs as patterns


def _with(study, **changes):
    config = study.config.copy_and_resolve_references()
    config.update_from_flattened_dict(changes)
    return Study(config, study.folder)


def test_maps_of_other_settings_are_not_labelled_as_these(study):
    study.config.patterns.count = 6
    study.folder.mkdir()
    drawn = patterns.maps_to_label(study, shipped=False)
    again = patterns.maps_to_label(_with(study), shipped=False)
    assert len(drawn) == 6 and again.example.tolist() == drawn.example.tolist()
    for name, value in (('patterns.count', 5), ('seed', 1), ('encoding.max_length', 20)):
        with pytest.raises(ValueError, match='of another model, of other texts or of other'):
            patterns.maps_to_label(_with(study, **{name: value}), shipped=False)
    with pytest.raises(ValueError, match='other maps than those that ship'):
        patterns.maps_to_label(study, shipped=True)
    other = Study(study.config, study.folder.with_name('shipped'))
    assert len(patterns.maps_to_label(other, shipped=True)) == 1546
    with pytest.raises(ValueError, match='of another model, of other texts or of other'):
        patterns.maps_to_label(other, shipped=False)


@pytest.mark.slow
def test_the_confusion_of_other_folds(study):
    """Another number of folds fits no other classifier, and the confusion is of left-out models."""
    folder = study.folder / 'annotated'
    write_annotated(folder, 4)
    settings = {'patterns.annotated': str(folder)}
    path = study.folder / 'classifier.safetensors'
    found = []
    for folds in (2, 3):
        patterns.train(_with(study, **settings, **{'patterns.folds': folds}))
        found.append(bs.patterns.load_classifier(path))
        lines = (study.folder / 'confusion.csv').read_text().splitlines()[1:]
        written = [list(map(int, line.split(',')[1:])) for line in lines]
        np.testing.assert_array_equal(found[-1].confusions.sum(axis=0), written)
        assert found[-1].confusions.sum() == 5 * 4
    np.testing.assert_array_equal(*(classifier.weights for classifier in found))
    with (study.folder / 'scores.csv').open() as file:
        rows = list(csv.DictReader(file))
    # Each evaluation of each model; the network only where it is asked for.
    models = {'kernel', 'regression', 'head majority', 'majority'}
    assert {(row['left_out'], row['model']) for row in rows} == {
        (left_out, model) for left_out in ('text', 'head', 'model') for model in models
    }
    assert all(0 <= float(row['accuracy_low']) <= float(row['accuracy']) for row in rows)
