"""Maps of examples on their way through a file."""

import numpy as np
import pytest

from bert_secrets_jax.files import write_arrays
from configs import base
from experiments import maps
from experiments.study import Study


@pytest.fixture
def study(tmp_path):
    return Study(base.get_config(), tmp_path)


def test_maps_come_back_from_the_file(study):
    attentions = np.full((1, 2, 3, 3), 1 / 3, np.float32)
    arrays = {'maps0': attentions, 'tokens0': np.array(['[CLS]', 'so', '[SEP]'])}
    write_arrays(study.workdir / 'maps.npz', arrays | {'second0': np.array(0)})
    (found,) = maps.compute(study)
    assert list(found.tokens) == ['[CLS]', 'so', '[SEP]'] and found.second is None
    np.testing.assert_array_equal(found.attentions, attentions)
    # An earlier version kept no beginning of the second text.
    write_arrays(study.workdir / 'maps.npz', arrays)
    with pytest.raises(ValueError, match='maps.npz is from another version: delete it'):
        maps.compute(study)


def test_no_examples_are_refused_before_the_model_is_loaded(study):
    study.config.maps.examples = 0
    study.config.model.name = 'no-such-model'
    with pytest.raises(ValueError, match='maps.examples must be at least 1'):
        maps.compute(study)
