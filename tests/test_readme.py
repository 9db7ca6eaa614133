"""Code that the documents show runs as it stands there, and what they mention exists."""

import ast
import json
import pathlib
import re

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs import titles
from tests.conftest import ROOT, parameters_of

DOCUMENTS = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').glob('*.md'))]


def blocks_of(path: pathlib.Path) -> list[str]:
    return re.findall(r'```python\n(.*?)```', path.read_text('utf-8'), re.DOTALL)


@pytest.mark.slow
def test_the_examples_run(optimized, capsys):
    blocks = blocks_of(ROOT / 'README.md')
    assert blocks
    # As a reader would, one after the other.
    names = {}
    for block in blocks:
        exec(compile(block, 'README.md', 'exec'), names)
    assert names['tables']['[SEP]'].mean.shape == (6, 12)
    batch, layers, heads, *_ = names['output'].attentions.shape
    assert (layers, heads) == (6, 12)
    said = capsys.readouterr().out
    assert f'({batch}, 6, 12, ' in said and 'entropy (nats)' in said
    assert 'Attention to [SEP] is greatest in layer' in said


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    text = path.read_text('utf-8')
    headings = {
        re.sub(r'[^\w\- ]', '', heading).strip().lower().replace(' ', '-')
        for heading in re.findall(r'^#+ (.*)$', text, re.MULTILINE)
    }
    for target in re.findall(r'\]\(([^)\s]+)\)', text):
        file, _, heading = target.partition('#')
        if file.startswith('https:'):
            continue
        assert not file or (path.parent / file).exists(), target
        assert file or heading in headings, target


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_settings_exist(path):
    text = path.read_text('utf-8')
    settings = flatten_dict(base.get_config().to_dict(), sep='.')
    for name in re.findall(r'--config\.([\w.]*\w)', text):
        # `--config.train.*` stands for all settings of a group.
        known = name in settings or any(each.startswith(f'{name}.') for each in settings)
        assert known, name
    for name in re.findall(r'--set "?([\w.]+)=', text):
        assert name in settings, name
    for folder, name in re.findall(r'python -m (experiments|benchmarks)\.([a-z]\w*)', text):
        assert (ROOT / folder / f'{name}.py').exists(), name
    for name in re.findall(r'^(?:    )?(?:PYTHONPATH=\. )?bert-secrets (\w+)', text, re.MULTILINE):
        assert name in titles.PROGRAMS, name


def test_every_program_is_documented():
    text = (ROOT / 'docs' / 'running.md').read_text('utf-8')
    for path in (ROOT / 'experiments').glob('[!_]*.py'):
        assert f'`{path.stem}' in text, path.stem
    for name in titles.PROGRAMS:
        assert f'`{name}`' in text or f'bert-secrets {name}' in text, name


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: path.name)
def test_public_names_exist(path):
    """Examples of the other documents need files that a reader has: their names alone are tried."""
    for block in blocks_of(path):
        ast.parse(block)
    for name in re.findall(r'\bbs((?:\.[A-Za-z_]\w*)+)', path.read_text('utf-8')):
        value = bs
        for part in name[1:].split('.'):
            value = getattr(value, part)


def test_arguments_in_the_documents_exist():
    """Keyword arguments of calls of `bs.`, which a name that exists would not show to be wrong."""
    notebook = json.loads((ROOT / 'docs' / 'tutorial.ipynb').read_text('utf-8'))
    cells = [''.join(cell['source']) for cell in notebook['cells'] if cell['cell_type'] == 'code']
    for block in [*cells, *(block for path in DOCUMENTS for block in blocks_of(path))]:
        for node in ast.walk(ast.parse(block)):
            # A method of what a call returned is no name of the library: `bs.encode(...).copy()`.
            if isinstance(node, ast.Call) and re.fullmatch(r'bs(\.\w+)+', ast.unparse(node.func)):
                function = eval(ast.unparse(node.func), {'bs': bs})
                known = parameters_of(function)
                for keyword in node.keywords:
                    assert keyword.arg is None or keyword.arg in known, ast.unparse(node)


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        (
            lambda model, maps: bs.sweep(
                model, bs.encode(model.tokenizer, ['The cat']), np.ones((1, 2, 1))
            ),
            r'masks must be \[masks, layers, heads\] = \[M, 3, 4\]',
        ),
        (lambda model, maps: bs.masks.single_heads(model), 'Masks are made for a config, such as'),
        (
            lambda model, maps: bs.masks.disable(model.config, [(0, 1)]),
            r'Each set is a list of \(layer, head\): \[\[\(0, 1\)\]\]',
        ),
        (
            lambda model, maps: bs.analyses.ablation(model.bert, [bs.Example('The cat', label=0)]),
            'Bert is not a model: give what `bs.from_pretrained` or `bs.finetune` returns.',
        ),
        (
            lambda model, maps: bs.analyses.ablation(model, [bs.Example('The cat')]),
            'text/0 has no label: labelled texts are needed.',
        ),
        (
            lambda model, maps: bs.analyses.claims(maps),
            'TokenMaps is not a result: give what functions of `bs.analyses` return.',
        ),
        (
            lambda model, maps: bs.Explorer([maps]),
            'An explorer takes maps by the name of their mod',
        ),
        (
            lambda model, maps: bs.Explorer({'it': maps}),
            'An explorer takes a list of maps for each',
        ),
        (lambda model, maps: bs.to_bertviz([maps]), 'bertviz shows one example'),
        (
            lambda model, maps: bs.plots.head_maps({'L1-H1': maps.attentions}, maps.tokens),
            r"The map 'L1-H1' must be \[T, T\] of 2 tokens, got \[1, 1, 2, 2\]",
        ),
    ],
)
def test_mistakes_in_python_are_named(pretrained, untyped, wrong, message):
    maps = bs.TokenMaps(['a', 'b'], np.full((1, 1, 2, 2), 0.5))
    with pytest.raises((TypeError, ValueError), match=f'^{message}'):
        wrong(pretrained, maps)
