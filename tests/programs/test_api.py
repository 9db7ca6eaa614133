"""`bs.report`: the whole report from Python."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.programs import api

TEXTS = ['the cat saw a dog .', 'she ran and he ran .', 'a big red house']
OWN = 'tests.programs.test_api:first_half'
SETTINGS = {
    'encoding.max_length': 24, 'linguistics.pipeline': '', 'statistics': ('[SEP]', OWN)
}  # fmt: skip


def first_half(attentions, marks):
    """A statistic of one's own: attention to the first half of the tokens."""
    tokens = marks['token']
    first = tokens & (jnp.cumsum(tokens) <= tokens.sum() / 2)
    received = (attentions * first[None, None, None]).sum(-1) * tokens[None, None]
    return received.sum(-1) / tokens.sum(), jnp.ones(())


@pytest.fixture(scope='module')
def out(tmp_path_factory):
    return tmp_path_factory.mktemp('report') / 'out'


def test_texts_become_a_page(model, out):
    found = bs.report(
        model, TEXTS, out=out, sections=['special_tokens', 'claims'], settings=SETTINGS
    )
    assert found.path == out / 'report.html' and found.path.exists()
    assert str(found.path) in found._repr_html_()
    assert list(found.results) == ['special_tokens', 'claims']
    batches = bs.encode(model.tokenizer, TEXTS, max_length=24)
    for name, expected in bs.collect(model, batches, ['[SEP]', OWN]).items():
        table = found.results['special_tokens'].tables[name]
        np.testing.assert_allclose(table.mean, expected.mean, atol=2e-6)
        assert table.count == 3 and np.ptp(table.mean) > 0
    frames = bs.read_results(out)
    assert {'special_tokens_heads', 'claims'} <= set(frames)
    assert frames['special_tokens_heads']['statistic'].unique().tolist() == ['[SEP]', OWN]
    page = found.path.read_text()
    assert 'Your texts: texts.jsonl.' in page and '<td>first half</td>' in page


def test_again_it_is_read(model, out):
    page = (out / 'report.html').read_text()
    kept = {file: file.stat().st_mtime_ns for file in (out / 'kept').iterdir()}
    found = bs.report(model, TEXTS, out=out, sections=['special_tokens'], settings=SETTINGS)
    assert {file: file.stat().st_mtime_ns for file in (out / 'kept').iterdir()} == kept
    assert (out / 'report.html').read_text() == page
    # Finished sections that were not asked for this time are there, too.
    assert list(found.results) == ['special_tokens', 'claims']
    found = bs.report(model, TEXTS[:2], out=out, sections=['special_tokens'], settings=SETTINGS)
    assert found.results['special_tokens'].tables['[SEP]'].count == 2


def test_labelled_pairs_are_written_as_they_are(model, tmp_path):
    """Labels and second texts arrive, and the mistake in a setting is found before anything."""
    pairs = [bs.Example('the cat', 'a dog ran', 1), bs.Example('she ran', None, 0)]
    with pytest.raises(ValueError, match="No such setting: 'train.epoch'"):
        bs.report(model, pairs, train=pairs, out=tmp_path / 'out', settings={'train.epoch': 1})
    for name in ('texts', 'train'):
        lines = (tmp_path / 'out' / f'{name}.jsonl').read_text().splitlines()
        assert [json.loads(line) for line in lines] == [
            {'text_a': 'the cat', 'text_b': 'a dog ran', 'label': 1},
            {'text_a': 'she ran', 'text_b': None, 'label': 0},
        ]


def test_the_task_of_examples_says_their_metrics(model, tmp_path, monkeypatch):
    """As where the same texts are named in the settings: CoLA has Matthews' r, and no F1."""
    found = []

    def opened(config, out):
        found.append(config.data.metrics)
        raise ValueError('It is known.')

    monkeypatch.setattr(api, 'open_studies', opened)
    for metrics in (('matthews',), ('f1', 'accuracy'), ('pearson', 'spearman'), ()):
        texts = [bs.Example('the cat', None, label, metrics=metrics) for label in (0, 1)]
        with pytest.raises(ValueError, match='It is known'):
            bs.report(model, texts, train=texts, out=tmp_path / 'out')
    assert found == ['matthews', 'f1,accuracy', '', '']


def test_what_does_not_fit_is_refused(model, tmp_path):
    labelled = [bs.Example('the cat', None, 1)]
    for texts, train in ((TEXTS, labelled), ('dev.csv', labelled), (labelled, 'train.csv')):
        with pytest.raises(ValueError, match='texts and train must be of one kind'):
            bs.report(model, texts, train=train, out=tmp_path / 'out')
    with pytest.raises(FileNotFoundError, match='dev.csv'):
        bs.report(model, tmp_path / 'dev.csv', out=tmp_path / 'out')
    assert not (tmp_path / 'out' / 'report.html').exists()
