"""Gates in a run: trained once, kept, and trained anew when what they depend on changes."""

import sys

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.configs import ranges
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sections import applicable, missing
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.folder import open_folder

assert bs.analyses.gates
gates = sys.modules['bert_secrets_jax.analyses.gates']


@pytest.fixture
def small(small):
    small.config.gates.coefficients, small.config.gates.epochs = '0.01, 0.1', 1
    open_folder(small.folder, small.config.to_dict())
    return small


@pytest.mark.slow
def test_gates_are_trained_once_for_each_model_and_price(small, monkeypatch):
    """Metrics choose the best epoch, so that others mean another model; so does another price."""
    trained, train = [], gates.train_gates

    def counted(*arguments, **settings):
        trained.append(settings['coefficients'])
        return train(*arguments, **settings)

    monkeypatch.setattr(gates, 'train_gates', counted)
    write_report([small], ['gates'])
    assert '<small>Gates of heads</small>' in (small.folder / 'report.html').read_text()
    # Unfinished work is removed.
    assert not list(small.folder.glob('unfinished/gates*'))
    for metrics, prices, metric in (
        ('', '0.01, 0.1', 'f1'), ('accuracy', '0.01, 0.1', 'accuracy'), ('', '0.1', 'f1')
    ):  # fmt: skip
        small.config.data.metrics, small.config.gates.coefficients = metrics, prices
        found = Given(Study(small.config, small.folder)).answer('gates')
        assert found.metric == metric
    assert trained == [(0.01, 0.1), (0.01, 0.1), (0.1,)]


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
