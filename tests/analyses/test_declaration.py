"""An analysis is one file and one line, with inputs and settings of its own: it is everywhere."""

import dataclasses
import importlib
import pathlib

import pandas
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.configs import base, declared, schema
from bert_secrets_jax.programs import cli
from bert_secrets_jax.runs.call import INPUTS


@pytest.fixture
def added(monkeypatch, tmp_path):
    """As if its line stood in `analyses/__init__.py`."""
    module = importlib.reload(importlib.import_module('tests.analyses.listed_words'))
    for name in ('ListedWords', 'listed_words', 'read_words'):
        monkeypatch.setattr(bs.analyses, name, getattr(module, name), raising=False)
    folder = pathlib.Path(module.__file__).parent
    own = declared.sections(folder)['listed_words']
    every = {**declared.sections(), 'listed_words': own}
    monkeypatch.setattr(declared, 'sections', lambda: every)
    for name, fields in own.settings.items():
        setting = schema._setting(f'listed_words.{name}', fields)
        monkeypatch.setitem(schema.SETTINGS, setting.name, setting)
    yield
    del INPUTS['word_list'], ANALYSES['listed_words']


def test_an_analysis_is_one_file_and_one_line(added, model, texts, tmp_path, capsys):
    words = tmp_path / 'words.txt'
    words.write_text('the\ncat\n')
    settings = {
        'encoding.max_length': 32, 'linguistics.pipeline': '', 'model.allow_unknown': True,
        'listed_words.file': str(words),
    }  # fmt: skip
    plain = [dataclasses.replace(text, label=None) for text in texts]
    asked = {'sections': ['listed_words'], 'settings': settings}
    for run, those in (('other', plain[::2]), ('one', plain)):
        found = bs.report(model, those, out=tmp_path / run, **asked)
    frame = found.results['listed_words'].frames()['heads']
    # The files, the page with its lines and colours, and the comparison.
    written = pandas.read_csv(tmp_path / 'one' / 'listed_words_heads.csv')
    assert list(written.columns) == list(frame.columns) and len(written) == 12
    page = found.path.read_text()
    assert 'attends most to the listed words' in page and 'bert-secrets listed_words' in page
    line = 'listed_words = bs.analyses.listed_words(pretrained, texts, word_list'
    assert line in page and f'listed_words.file={words}' in page
    assert 'word_list = bs.analyses.read_words(' in page
    assert 'agreement' in bs.compare_runs([tmp_path / 'one', tmp_path / 'other']).frames()
    # As the library measures it.
    again = bs.analyses.listed_words(
        model, plain, ['the', 'cat'], settings=bs.analyses.TextSettings(max_length=32)
    ).frames()['heads']
    pandas.testing.assert_frame_equal(frame, again, atol=1e-6)
    # Another list, and other updates, are other results; the same are found again.
    kept = sorted((tmp_path / 'one' / 'kept').glob('listed*.npz'))
    bs.report(model, plain, out=tmp_path / 'one', **asked)
    assert sorted((tmp_path / 'one' / 'kept').glob('listed*.npz')) == kept
    words.write_text('dog\n')
    bs.report(model, plain, out=tmp_path / 'one', **asked)
    asked['settings'] = settings | {'listed_words.updates': 3}
    bs.report(model, plain, out=tmp_path / 'one', **asked)
    assert len(sorted((tmp_path / 'one' / 'kept').glob('listed*.npz'))) == len(kept) + 2
    with pytest.raises(ValueError, match='needs a list of words .setting listed_words.file'):
        bs.report(model, plain, out=tmp_path / 'none', sections=['listed_words'])


def test_its_help_and_settings(added, capsys):
    for given, said in ('--help', 'listed_words'), ('report', 'which heads attend to the words'):
        with pytest.raises(SystemExit):
            cli.main([given, '--help'])
        assert said in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(['listed_words', '--help'])
    assert '# Steps of the fit.\n  listed_words.updates=20' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="program 'listed_word'. Did you mean listed_words"):
        cli._parse(['listed_word'])
    config = base.get_config('smoke')
    assert config.listed_words.updates == 2
    config.listed_words.updates = 0
    with pytest.raises(ValueError, match='listed_words.updates=0 must be a whole number'):
        schema.check(config)
