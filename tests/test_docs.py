"""Statements that the documents make twice are the same in both places."""

import ast
import inspect
import re
import runpy

import yaml
from flax.traverse_util import flatten_dict

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.measure.catalogue import CATALOGUE
from bert_secrets_jax.programs.sections import SECTIONS
from tests.conftest import ROOT


def test_the_version_is_the_same_everywhere():
    (version,) = re.findall(r"^    version='(.+)',$", (ROOT / 'setup.py').read_text('utf-8'), re.M)
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text('utf-8'))
    assert citation['version'] == version
    assert f'bert_secrets_jax-{version}-py3-none-any.whl' in (ROOT / 'README.md').read_text('utf-8')
    releases = re.findall(r'^## (.+)$', (ROOT / 'CHANGELOG.md').read_text('utf-8'), re.M)
    assert releases[0] == f'{version} - {citation["date-released"]}'


def test_the_glossary_has_the_statistics_of_the_catalogue():
    glossary = runpy.run_path(str(ROOT / 'docs' / 'glossary.py'))
    text = glossary['PAGE'].read_text('utf-8')
    assert text.count('\n| `') == len(CATALOGUE)
    assert glossary['page'](text) == text, 'Run: python docs/glossary.py'


def test_the_gallery_has_every_section_and_its_lines_can_be_called():
    text = (ROOT / 'docs' / 'gallery.md').read_text('utf-8')
    for section in SECTIONS:
        assert section == 'claims' or f'`bert-secrets {section}' in text, section
    calls = re.findall(r'`(bs\.analyses\.[^`]*)`', text)
    assert len(calls) > len(SECTIONS)
    for call in calls:
        # bs.analyses.NAME(...).figures()['FIGURE']
        analysis = ast.parse(call, mode='eval').body.value.func.value
        signature = inspect.signature(getattr(bs.analyses, analysis.func.attr))
        given = {keyword.arg: keyword.value for keyword in analysis.keywords}
        signature.bind(*analysis.args, **given)


def test_every_setting_is_documented():
    documents = [ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')]
    text = '\n'.join(path.read_text('utf-8') for path in documents)
    for name in flatten_dict(base.get_config().to_dict(), sep='.'):
        assert re.search(rf'\b{re.escape(name)}\b', text), name
