"""An analysis is one file and one line: then it is everywhere."""

import dataclasses
import pathlib

import pandas
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.programs import api, cli, comparing, launch, report, sections
from tests.analyses import punctuation


@pytest.fixture
def added(monkeypatch):
    """As if its line stood in `analyses/__init__.py`."""
    names = ('Punctuation', 'punctuation')
    for name in names:
        monkeypatch.setattr(bs.analyses, name, getattr(punctuation, name), raising=False)
    monkeypatch.setattr(bs.analyses, '__all__', [*bs.analyses.__all__, *names])
    every = dict(sections.SECTIONS)
    every['punctuation'] = sections._declared(punctuation.SECTION)
    for module in (sections, report, comparing, api):
        monkeypatch.setattr(module, 'SECTIONS', every)
    monkeypatch.setattr(launch, '_ANALYSES', pathlib.Path(punctuation.__file__).parent)
    return [each.name for each in sections.declarations()]


def test_an_analysis_is_one_file_and_one_line(added, model, texts, tmp_path, capsys):
    assert added == ['punctuation']
    settings = {
        'encoding.max_length': 32, 'linguistics.pipeline': '', 'model.allow_unknown': True
    }  # fmt: skip
    plain = [dataclasses.replace(text, label=None) for text in texts]
    for run, those in (('other', plain[::2]), ('one', plain)):
        found = bs.report(
            model, those, out=tmp_path / run, sections=['punctuation'], settings=settings
        )
    frame = found.results['punctuation'].frames()['heads']
    # The files, the page with its lines, and the comparison.
    written = pandas.read_csv(tmp_path / 'one' / 'punctuation_heads.csv')
    assert list(written.columns) == list(frame.columns) and len(written) == 12
    page = found.path.read_text()
    assert 'attends most to punctuation from' in page and 'bert-secrets punctuation' in page
    assert 'punctuation = bs.analyses.punctuation(pretrained, texts' in page
    compared = bs.compare_runs([tmp_path / 'one', tmp_path / 'other'])
    assert 'agreement' in compared.frames()
    # As the library measures it.
    again = bs.analyses.punctuation(
        model, plain, settings=bs.analyses.TextSettings(max_length=32)
    ).frames()['heads']
    pandas.testing.assert_frame_equal(frame, again, atol=1e-6)
    for given, said in ('--help', 'maps, punctuation'), ('report', 'punctuation       how often'):
        with pytest.raises(SystemExit):
            cli.main([given, '--help'])
        assert said in capsys.readouterr().out
    assert cli._parse(['punctuation']).program == 'punctuation'
    with pytest.raises(SystemExit, match="program 'punctation'. Did you mean punctuation"):
        cli._parse(['punctation'])
