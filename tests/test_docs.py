"""What the documents state twice is the same in both places."""

import re
import runpy

import yaml

from bert_secrets_jax.measure.catalogue import CATALOGUE
from tests.conftest import ROOT


def test_the_version_is_the_same_everywhere():
    (version,) = re.findall(r"^    version='(.+)',$", (ROOT / 'setup.py').read_text('utf-8'), re.M)
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text('utf-8'))
    assert citation['version'] == version
    assert f'bert_secrets_jax-{version}-py3-none-any.whl' in (ROOT / 'README.md').read_text('utf-8')
    releases = re.findall(r'^## (.+)$', (ROOT / 'CHANGELOG.md').read_text('utf-8'), re.M)
    assert releases[0] == f'{version} - {citation["date-released"]}'


def test_the_paper_is_cited():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text('utf-8'))
    (paper,) = citation['references']
    names = [each['family-names'] for each in paper['authors']]
    readme = (ROOT / 'README.md').read_text('utf-8')
    assert [name for name in names if f'. {name}' in readme] == names
    assert f'*{paper["title"]}.*' in readme
    assert f'{paper["start"]}-{paper["end"]}' in readme


def test_the_glossary_has_the_statistics_of_the_catalogue():
    glossary = runpy.run_path(str(ROOT / 'docs' / 'glossary.py'))
    text = glossary['PAGE'].read_text('utf-8')
    assert text.count('\n| `') == len(CATALOGUE)
    assert glossary['page'](text) == text, 'Run: python docs/glossary.py'
