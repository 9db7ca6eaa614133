"""Gates in a run: the inputs that they need, and prices that are refused."""

import pytest

from bert_secrets_jax.configs import ranges
from bert_secrets_jax.programs.sections import applicable, missing
from bert_secrets_jax.runs.folder import open_folder


@pytest.fixture
def small(small):
    small.config.gates.coefficients, small.config.gates.epochs = '0.01, 0.1', 1
    open_folder(small.folder, small.config.to_dict())
    return small


def test_they_are_no_part_of_a_report_unless_they_are_asked_for(small):
    assert 'gates' not in applicable(small) and not missing(small, 'gates')
    small.config.data.source, small.config.data.file = 'file', 'mine.csv'
    assert 'labels' in missing(small, 'gates') or 'train' in missing(small, 'gates')
    small.config.data.label, small.config.ablation.checkpoint = 'label', 'model'
    assert 'labelled texts to train on' in missing(small, 'gates')


@pytest.mark.parametrize('text', ['', ',', '0.1,', 'a', '-1', '0.1,0.10', 'nan', '1e7', '1_0', '٣'])
def test_prices_that_are_none_are_named(study, text):
    study.config.gates.coefficients = text
    with pytest.raises(ValueError, match=r'^gates\.coefficients=.* must be different numbers with'):
        ranges.check(study.config)
