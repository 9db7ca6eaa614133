"""Gates in a run: trained once, kept, and trained anew when what they depend on changes."""

import pytest

from bert_secrets_jax.configs import ranges
from bert_secrets_jax.programs import study as studies
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sections import SECTIONS, applicable
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.folder import open_folder


@pytest.fixture
def small(small):
    small.config.gates.coefficients, small.config.gates.epochs = '0.01, 0.1', 1
    open_folder(small.folder, small.config.to_dict())
    return small


@pytest.mark.slow
def test_gates_are_trained_once_for_each_model_and_price(small, monkeypatch):
    """Metrics choose the best epoch, so that others mean another model; so does another price."""
    trained, train = [], studies.train_gates

    def counted(*arguments, **settings):
        trained.append(settings['coefficients'])
        return train(*arguments, **settings)

    monkeypatch.setattr(studies, 'train_gates', counted)
    write_report([small], ['gates'])
    assert '<small>Gates of heads</small>' in (small.folder / 'report.html').read_text()
    # Unfinished work is removed.
    assert not list(small.folder.glob('unfinished/trained*'))
    for metrics, prices, metric in (
        ('', '0.01, 0.1', 'f1'), ('accuracy', '0.01, 0.1', 'accuracy'), ('', '0.1', 'f1')
    ):  # fmt: skip
        small.config.data.metrics, small.config.gates.coefficients = metrics, prices
        found = SECTIONS['gates'].answer(Study(small.config, small.folder), {})
        assert found.metric == metric
    assert trained == [(0.01, 0.1), (0.01, 0.1), (0.1,)]


def test_they_are_no_part_of_a_report_unless_they_are_asked_for(small):
    assert 'gates' not in applicable(small) and not SECTIONS['gates'].needs(small)
    small.config.data.source, small.config.data.file = 'file', 'mine.csv'
    assert 'labels' in SECTIONS['gates'].needs(small) or 'train' in SECTIONS['gates'].needs(small)
    small.config.data.label, small.config.ablation.checkpoint = 'label', 'model'
    assert 'labelled texts to train on' in SECTIONS['gates'].needs(small)


@pytest.mark.parametrize('text', ['', ',', '0.1,', 'a', '-1', '0.1,0.10', 'nan', '1e7', '1_0', '٣'])
def test_prices_that_are_none_are_named(study, text):
    study.config.gates.coefficients = text
    with pytest.raises(ValueError, match=r'^gates\.coefficients=.* must be different numbers with'):
        ranges.check(study.config)
