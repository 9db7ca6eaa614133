"""Maps to label, and the classifier that learns from them."""

import pytest

from bert_secrets_jax.programs.given import Study
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
