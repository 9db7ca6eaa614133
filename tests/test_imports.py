"""The public names: all there, loaded when they are used, whatever was imported before."""

import ast
import functools
import importlib.metadata
import inspect
import subprocess
import sys
import types

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax import patterns, plots
from tests.conftest import ROOT

HEAVY = (
    'jax flax matplotlib spacy tensorflow_datasets sklearn scipy orbax pandas transformers torch '
    'bert_secrets_jax.model'
).split()
# Public functions with the name of the folder that they are made of.
FUNCTIONS = ('finetune', 'measure', 'report')
# Public modules, under the names that users see.
MODULES = (
    'analyses catalogue claims links masks paper patterns plots significance statistics'
).split()

# The parts of `analyses` that any analysis may import.
SHARED = ('common', 'declaration', 'verdicts')
LOADED = 'print(*[name for name in sys.argv[1:] if name in sys.modules])'


def run(program: str, *arguments: str) -> str:
    """Return what a program prints in a process of its own, with warnings as errors."""
    result = subprocess.run(
        [sys.executable, '-W', 'error::ImportWarning', '-c', program, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ('package', 'name'),
    [(package, name) for package in (bs, patterns, plots) for name in package.__all__],
)
def test_every_name_is_there(package, name):
    value = getattr(package, name)
    assert isinstance(value, types.ModuleType) == (package is bs and name in MODULES)
    assert vars(package)[name] is value


def test_names_are_listed():
    assert set(bs.__all__) < set(dir(bs))
    assert {'__doc__', '__version__'} < set(dir(bs))
    names = {}
    exec('from bert_secrets_jax import *', names)
    assert set(bs.__all__) <= set(names) and '__version__' not in names
    assert str(inspect.signature(bs.collect)).startswith('(pretrained')
    with pytest.raises(AttributeError, match="'bert_secrets_jax' has no attribute 'atention_maps'"):
        bs.atention_maps  # noqa: B018
    with pytest.raises(ImportError, match='cannot import name'):
        from bert_secrets_jax import nothing  # noqa: F401


def test_nothing_heavy_is_loaded_before_it_is_used():
    assert run(f'import sys, bert_secrets_jax; {LOADED}', *HEAVY).split() == []


def test_importing_takes_no_time():
    program = 'import time; start = time.process_time(); import bert_secrets_jax; '
    program += 'print(time.process_time() - start)'
    assert min(float(run(program)) for _ in range(3)) <= 0.3


def test_measuring_loads_no_plots_and_no_readers():
    program = (
        'import sys, bert_secrets_jax as bs; '
        'bs.collect, bs.sweep, bs.from_pretrained, bs.encode, bs.finetune, bs.measure; '
    )
    late = 'matplotlib spacy tensorflow_datasets sklearn pandas transformers torch orbax'.split()
    assert run(program + LOADED, *late).split() == []


@pytest.mark.slow
@pytest.mark.parametrize('order', ['before', 'after'])
@pytest.mark.parametrize('name', FUNCTIONS)
def test_a_function_stays_a_function_whatever_is_imported(name, order):
    """Python binds a folder of the package to its name when anything in it is imported."""
    module = {'finetune': 'metrics', 'measure': 'links', 'report': 'explorer'}[name]
    use = f'assert callable(bs.{name}); from bert_secrets_jax import {name} as function'
    folder = (
        f'from bert_secrets_jax.{name} import {module}; import bert_secrets_jax.{name}.{module}'
    )
    steps = [use, folder] if order == 'before' else [folder, use]
    run(
        '; '.join(['import bert_secrets_jax as bs, inspect', *steps, use])
        + f'; assert inspect.isfunction(bs.{name}) and bs.{name} is function'
        + f'; assert {module}.__name__ == "bert_secrets_jax.{name}.{module}"'
    )


def test_the_version():
    assert bs.__version__ == importlib.metadata.version('bert_secrets_jax')
    program = (
        'import importlib.metadata as metadata, bert_secrets_jax as bs\n'
        'def version(name): raise metadata.PackageNotFoundError(name)\n'
        'metadata.version = version\n'
        'print(bs.__version__)'
    )
    assert run(program).strip() == 'unknown'


CACHE = """
import sys, jax, jax.numpy as jnp, pathlib, bert_secrets_jax as bs, bert_secrets_jax.compute
folder = bs.enable_cache(sys.argv[1] or None)
# Short compilations are not kept in a folder of ours.
least = jax.config.jax_persistent_cache_min_compile_time_secs
assert not sys.argv[1] or least == bs.compute._WORTH_KEEPING_SECONDS
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.jit(lambda x: jnp.sin(x) + 2)(jnp.ones(3)).block_until_ready()
print(folder, jax.config.jax_compilation_cache_dir, any(pathlib.Path(folder).iterdir()))
"""


def test_compiled_programs_are_kept(tmp_path, monkeypatch):
    monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR', raising=False)
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    mine = str(tmp_path / 'mine')
    assert run(CACHE, mine).split() == [mine, mine, 'True']
    default = str(tmp_path / 'home' / '.cache' / 'bert_secrets_jax' / 'compiled')
    assert run(CACHE, '').split() == [default, default, 'True']
    other = str(tmp_path / 'other')
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', other)
    assert run(CACHE, '').split() == [other, other, 'True']


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return the modules of the package that each imports, also inside a function."""
    modules = {}
    for path in sorted((ROOT / 'bert_secrets_jax').rglob('*.py')):
        name = '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')
        modules[name] = ast.parse(path.read_text())

    def imported(name):
        for node in ast.walk(modules[name]):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f'{node.module}.{alias.name}'
                    yield whole if whole in modules else node.module

    return {name: {each for each in imported(name) if each in modules} for name in modules}


def test_modules_import_in_one_direction():
    """No module needs itself by way of others."""
    needs = dict(imports())
    assert needs['bert_secrets_jax.programs.cli']
    while needs:
        # Those that need nothing that is left.
        free = [name for name, others in needs.items() if not others & needs.keys()]
        assert free, f'Circles among {", ".join(sorted(needs))}.'
        for name in free:
            del needs[name]


def test_an_analysis_imports_no_other():
    """What several take is in `common`, which needs no analysis; verdicts do not even need that."""
    home = 'bert_secrets_jax.analyses.'
    needs = {name.removeprefix(home): others for name, others in imports().items() if home in name}
    shared = {name for name in needs if name.partition('.')[0] in SHARED}
    taken = {
        name: {each.removeprefix(home) for each in others if home in each} - shared
        for name, others in needs.items()
    }
    assert not any(taken.values()), taken
    assert '.common' not in str([each for name, each in needs.items() if 'verdicts' in name])


def test_a_decoder_is_named_without_pytorch():
    """A user need not have it; then the lists of models in transformers cannot be imported."""
    program = (
        'import sys; sys.modules["torch"] = None; '
        'from bert_secrets_jax.model.config import not_implemented; print(not_implemented("gpt2"))'
    )
    assert "'gpt2' is not implemented: it is a decoder, or has one" in run(program)
