"""Launchers hold no code of their own."""

import importlib
import re

import pytest

from bert_secrets_jax.configs import base, declared
from bert_secrets_jax.programs import cli
from bert_secrets_jax.programs.report import SECTIONS
from tests.conftest import ROOT
from tests.experiments.conftest import error_line, run

LAUNCHERS = sorted(
    path for path in (ROOT / 'experiments').glob('*.py') if path.stem != '__init__'
)  # fmt: skip


@pytest.mark.parametrize('path', LAUNCHERS, ids=lambda path: path.stem)
def test_a_launcher_is_short_and_imports_no_other(path):
    text = path.read_text()
    assert len(text.splitlines()) < 60
    # And none of what the analyses are made of.
    for name in re.findall(r'^ *(?:from|import) ([\w.]+)', text, re.MULTILINE):
        assert not name.startswith('experiments')
        assert name.startswith('bert_secrets_jax.programs') or 'bert_secrets_jax' not in name


def test_every_launcher_has_a_program():
    """Sections need no launcher of their own; documents and tests name these."""
    names = {path.stem for path in LAUNCHERS}
    tools = {'annotate', 'train_patterns'}
    # Without a clone the same under the same names; the report of all sections is `reproduce` here.
    assert names - tools - {'section', 'reproduce'} < set(declared.programs())
    assert {'reproduce', 'section', 'compare', 'serve', *tools} < names


def test_one_launcher_lists_every_section():
    shown = run('section', '--help', ok=False).stdout
    assert {*declared.sections()} == {*SECTIONS}
    for name, section in SECTIONS.items():
        assert re.search(rf'^  {name} +{re.escape(section.question)}$', shown, re.MULTILINE), name
    assert '\n  --workdir: ' in shown


def test_a_section_that_is_not_named_is_one_line(tmp_path):
    given = '--config=configs/quickstart.py:smoke', f'--workdir={tmp_path / "run"}'
    line = error_line(run('section', 'special_token', *given, ok=False))
    said = "error: There is no section 'special_token'. Did you mean special_tokens"
    assert line.startswith(said) and not (tmp_path / 'run').exists()


@pytest.mark.parametrize(('name', 'smoke'), [('quickstart', 'smoke'), ('paper', 'rte:smoke')])
def test_every_config_loads(name, smoke):
    files = {path.stem for path in (ROOT / 'configs').glob('*.py')} - {'__init__'}
    assert name in files and files | {'base'} == set(cli.CONFIGS)
    module = importlib.import_module(f'configs.{name}')
    config = module.get_config()
    assert config.to_dict().keys() == base.get_config().to_dict().keys()
    assert module.get_config(smoke).data.max_examples < config.data.max_examples
    with pytest.raises(ValueError, match='smoke'):
        module.get_config('rte:other')
