"""Files that the package writes and reads again: results, fine-tunings, tables of runs."""

import dataclasses
import functools
import hashlib
import io
import json
import math
import pathlib
import unittest.mock
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example
from hypothesis import strategies as st

import bert_secrets_jax as bs
from bert_secrets_jax import files
from bert_secrets_jax.finetune import train
from bert_secrets_jax.finetune.outcome import Finetuned
from bert_secrets_jax.model import weights
from bert_secrets_jax.model.bert import param_shapes
from bert_secrets_jax.runs.run import Run
from tests.fuzz.broken import (
    Format,
    integer,
    logged,
    number,
    plain_json,
    require,
    sample,
    visible,
)
from tests.fuzz.damage import (
    any_file,
    broken,
    changed_json,
    changed_npz,
    changed_value,
    changes,
    damaged,
    encoded,
    npy,
    respelled,
    with_bomb,
    zipped,
)
from tests.fuzz.test_checkpoints import load, make_checkpoint
from tests.fuzz.test_texts import split_csv


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A part of a result."""

    words: tuple[str, ...]
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class Probe(bs.Result):
    """A result with a field of each kind."""

    values: np.ndarray
    counts: np.ndarray
    name: str
    score: float
    size: int
    seeds: tuple[int, ...]
    part: Part
    by_name: Mapping[str, np.ndarray]
    nothing: str | None


def result(seed: int) -> Probe:
    """Return the result of a seed."""
    rng = np.random.default_rng(seed)
    return Probe(
        values=rng.normal(size=(2, 3, 4)).astype(np.float32),
        counts=np.arange(3) + seed,
        name=f'result of {seed}',
        score=0.25 + seed,
        size=7 + seed,
        seeds=(0, 1, seed),
        part=Part(('cat', 'dög'), 0.5),
        by_name={'first': rng.normal(size=4), 'second': np.array(['a', 'bc'])},
        nothing=None,
    )


def _keep(folder: pathlib.Path, seed: int, compute=None) -> Probe:
    # Another object each time, as in another process.
    compute = compute or functools.partial(result, seed)
    return Run(folder).keep('numbers', Probe, {'seed': seed}, compute)


def make_kept(folder: pathlib.Path) -> None:
    for seed in (0, 1):
        _keep(folder, seed)
    # Nothing reads the file that the lock leaves.
    for lock in folder.rglob('*.lock'):
        lock.unlink()


def _read_kept(folder: pathlib.Path) -> Probe:
    """Whatever the file has become, the result is the same; but then a line of the log names it."""
    computed = []
    stems = {path.stem for path in folder.rglob('*') if path.suffix == '.npz'}

    def compute():
        computed.append(True)
        return result(0)

    with logged() as lines:
        found = _keep(folder, 0, compute)
    if computed and any(path.is_symlink() or path.exists() for path in folder.rglob('*.damaged')):
        assert any(stem in line for line in lines for stem in stems), 'the log does not say why'
    return found


KEPT = Format(make_kept, _read_kept)


def kept_files() -> list[str]:
    """Return the files of both results, that of seed 0 first."""
    found = [name for name in sample(make_kept) if name.endswith('.npz')]
    return sorted(found, key=lambda name: b'result of 0' not in _texts(sample(make_kept)[name]))


def _texts(data: bytes) -> bytes:
    with np.load(io.BytesIO(data)) as arrays:
        return ' '.join(str(each) for each in arrays.values() if each.dtype.kind == 'U').encode()


def other_kept() -> st.SearchStrategy[dict[str, bytes | str]]:
    """The file of seed 0 is damaged, another archive, that of seed 1, or any other file."""
    mine, _ = kept_files()
    data = sample(make_kept)
    others = st.sampled_from(sorted(data.values()))
    return st.fixed_dictionaries({mine: damaged(data[mine]) | changed_npz(data[mine]) | others})


@broken(st.deferred(other_kept) | any_file(KEPT))
def test_kept(changed):
    KEPT.check(changed)


def make_result(folder: pathlib.Path) -> None:
    result(0).save(folder / 'result.npz')


def _plain_result(folder: pathlib.Path) -> Any:
    """Return what the archive of arrays and its text of JSON say, if each part has its type."""
    with np.load(folder / 'result.npz') as archive:
        arrays = dict(archive)
    tree = plain_json(str(arrays.pop('tree')))
    require(tree['class'] == 'Probe' and tree['format'] == 1)
    value, whole = tree['value'], result(0)
    require(set(value) == {field.name for field in dataclasses.fields(whole)})

    def array(node, like):
        require(set(node) == {'array'})
        found = arrays[node['array']]
        require((found.shape, found.dtype.kind) == (like.shape, like.dtype.kind))
        require(found.dtype == like.dtype or like.dtype.kind == 'U')
        return found

    part = value['part']
    require(set(part) == {'words', 'share'})
    by_name = dict(value['by_name'])
    require(len(by_name) == len(value['by_name']) and by_name.keys() == whole.by_name.keys())
    seeds = [integer(seed, -(2**63), 2**63) for seed in value['seeds']]
    texts = [value['name'], *part['words']]
    require(all(isinstance(text, str) for text in texts))
    require(value['nothing'] is None or isinstance(value['nothing'], str))
    return Probe(
        values=array(value['values'], whole.values),
        counts=array(value['counts'], whole.counts),
        name=value['name'],
        score=number(value['score']),
        size=integer(value['size'], -(2**63), 2**63),
        seeds=tuple(seeds),
        part=Part(tuple(part['words']), number(part['share'])),
        by_name={name: array(by_name[name], like) for name, like in whole.by_name.items()},
        nothing=value['nothing'],
    )


RESULT = Format(make_result, lambda folder: Probe.load(folder / 'result.npz'), _plain_result)


@broken(changes(RESULT, 'result.npz', changed_npz))
@example({'result.npz': npy(np.zeros(3))})
@example({'result.npz': zipped({'tree.npy': npy(np.array('{}'))[:12] + b'{', 'values.npy': b''})})
def test_result(changed):
    RESULT.check(changed)


def test_a_bomb_in_a_result():
    name = 'tree.npy'
    RESULT.check({'result.npz': with_bomb(sample(make_result)['result.npz'], name)})


def _history() -> list[dict[str, Any]]:
    history = []
    for epoch in (0, 1):
        for seed in (0, 1):
            accuracy = 0.5 + 0.1 * epoch
            scores = {'f1': accuracy, 'accuracy': accuracy, 'score': accuracy}
            row = {'split': 'dev', 'seed': seed, 'step': 2 * epoch, 'epoch': epoch, 'loss': 0.7}
            history.append(row | scores)
            train = {'split': 'train', 'seed': seed, 'step': 2, 'epoch': 1.0, 'loss': 0.6}
            history.append(train | {'learning_rate': 5e-5})
    return history


@functools.cache
def _pretrained():
    """Return the tiny model that a fine-tuning starts from."""
    folder = pathlib.Path('model').resolve()
    folder.mkdir()
    make_checkpoint(folder)
    return load(folder)


def _finetune(folder: pathlib.Path) -> tuple[Finetuned, bool]:
    """Fine-tune with everything but the training; return the outcome, and whether it trained.

    Training takes a dozen seconds of compiling. What it writes and what is read again later is
    the same without.
    """
    trained = []

    def train_runs(bert, initial, *_, save, **__):
        trained.append(True)
        for seed, params in enumerate(initial):
            save(seed, 'best', params)
            save(seed, 'last', params)
        return _history()

    def init_params(bert, _):
        # Weights that are not trained either need not be drawn.
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), param_shapes(bert))

    texts = [bs.Example('the cat ran .', label=place % 2, id=f'{place}') for place in range(8)]
    with (
        unittest.mock.patch.object(train, 'train_runs', train_runs),
        unittest.mock.patch.object(weights, 'init_params', init_params),
    ):
        found = bs.finetune(
            _pretrained(), texts, texts, seeds=2, epochs=1, batch_size=4, micro_batch=4,
            max_length=16, folder=folder,
        )  # fmt: skip
    return found, bool(trained)


def make_finetuned(folder: pathlib.Path) -> None:
    _finetune(folder)


def _asked(found: Finetuned) -> tuple:
    """Return what everybody asks an outcome first."""
    return found.scores, found.first_scores, found.best_scores, found.p_learnt, found.learnt


def _read_outcome(folder: pathlib.Path) -> Any:
    found = Finetuned.load(folder)
    names = [field.name for field in dataclasses.fields(found)]
    facts = {name: getattr(found, name) for name in names if name not in ('folder', 'in_memory')}
    return facts, _asked(found)


def _plain_outcome(folder: pathlib.Path) -> Any:
    values = plain_json((folder / 'outcome.json').read_bytes())
    noted = values.pop('sha256')
    text = json.dumps(values, sort_keys=True)
    require(noted == hashlib.sha256(text.encode()).hexdigest(), 'the checksum')
    # Files of the time before there were others.
    values.setdefault('head', _HEADS[0])
    require(set(values) == _OUTCOME, values)
    require(values['head'] in _HEADS)
    require(values['start'] in ('pretrained', 'random'))
    require(values['dtype'] in ('float32', 'tf32x3', 'bfloat16'))
    seeds = [integer(seed) for seed in values['seeds']]
    require(seeds and len(set(seeds)) == len(seeds))
    # Whoever makes the checksum anew may write what they like.
    require(values['metrics'] and all(isinstance(name, str) for name in values['metrics']))
    require(all(isinstance(name, str) for name in values['label_names']))
    integer(values['train_examples'], 1)
    require(type(values['dev_examples']) is int and values['dev_examples'] >= 0)
    values['larger_class'] = number(values['larger_class'], 0, 1)
    for row in values['history']:
        require(row['split'] in ('train', 'dev') and row['seed'] in seeds)
        scores = ('f1', 'accuracy', 'score') if row['split'] == 'dev' else ('learning_rate',)
        for name in {'step', 'epoch', 'loss', *scores} & set(row):
            require(type(row[name]) in (int, float))
    # Not a second reading: the package's own numbers of what the file says.
    for name in ('seeds', 'metrics', 'label_names'):
        require(isinstance(values[name], list))
        values[name] = tuple(values[name])
    return values, _asked(Finetuned(**values, folder=folder))


_OUTCOME = {
    'start', 'seeds', 'metrics', 'label_names', 'train_examples', 'dev_examples', 'larger_class',
    'history', 'dtype', 'head',
}  # fmt: skip
_HEADS = ('sequence_classification', 'token_classification', 'question_answering')


def _read_finetuned(folder: pathlib.Path) -> Any:
    """The same call reads what is finished; if it begins again, a line of the log says why."""
    names = [path.name for path in folder.rglob('*')]
    with logged() as lines:
        found, trained = _finetune(folder)
    if trained:
        assert any(name in line for line in lines for name in names), 'the log does not say why'
    return found.seeds, found.history


OUTCOME = Format(make_finetuned, _read_outcome, _plain_outcome)
INPUTS = Format(make_finetuned, _read_finetuned)


def resealed(data: bytes) -> st.SearchStrategy[bytes]:
    """A record in which one value is another, and whose checksum is right again."""
    values = json.loads(data)
    values.pop('sha256', None)

    def seal(text):
        try:
            return json.dumps(files.sealed(json.loads(text))).encode()
        except (ValueError, TypeError, RecursionError):
            return encoded(text)

    return changed_value(values).map(seal)


def outcome(**changed: Any) -> dict[str, bytes]:
    """Return an outcome of other values, with its checksum."""
    found = {
        'start': 'pretrained', 'seeds': [0, 1], 'metrics': ['f1', 'accuracy'],
        'label_names': ['0', '1'], 'train_examples': 8, 'dev_examples': 8, 'larger_class': 0.5,
        'history': _history(), 'dtype': 'float32', 'head': _HEADS[0],
    }  # fmt: skip
    return {'outcome.json': json.dumps(files.sealed(found | changed)).encode()}


@broken(changes(OUTCOME, 'outcome.json', resealed, changed_json) | any_file(OUTCOME))
@example(outcome())
@example(outcome(seeds=[0, 2]))
@example(outcome(history=_history()[:2]))
@example(outcome(history=[]))
def test_outcome(changed):
    OUTCOME.check(changed)


@broken(changes(INPUTS, 'inputs.json', resealed, changed_json) | any_file(INPUTS), share=0.5)
def test_inputs(changed):
    INPUTS.check(changed)


_TABLES = {
    'heads.csv': 'layer,head,mean,published\n1,1,0.25,\n1,2,0.375,\n2,1,0.375,\n2,2,0.5,\n',
    'findings/ablation.csv': 'name,estimate,unit,sentence\n'
    'best,0.5,accuracy,"The best, of all, is ""1-2""."\n'
    'worst,0.25,accuracy,Über 5 % are worse.\n',
}


def make_run(folder: pathlib.Path) -> None:
    (folder / 'findings').mkdir()
    (folder / 'config.json').write_text('{"seed": 0}\n')
    for name, text in _TABLES.items():
        (folder / name).write_text(text, encoding='utf-8')
    sums = {name: files.sha256(folder / name) for name in _TABLES}
    noted = {'files': list(_TABLES), 'sha256_of': sums}
    files.write_json(folder / 'outputs.json', {'ablation': files.sealed(noted)})


def _cell(value: Any) -> str:
    """Spell a cell of a table so that a number is the same however it was written."""
    text = '' if value is None else str(value)
    try:
        return 'nan' if math.isnan(float(text or 'nan')) else repr(float(text))
    except ValueError:
        return 'nan' if text in ('NA', 'N/A', 'NULL', 'null', 'None') else text


def _read_run(folder: pathlib.Path) -> Any:
    return {
        name: [list(map(_cell, frame.columns)), *(list(map(_cell, row)) for row in frame.values)]
        for name, frame in bs.read_results(folder).items()
    }


def _plain_run(folder: pathlib.Path) -> Any:
    found = {}
    for name in ('heads', 'findings/ablation'):
        file = folder / f'{name}.csv'
        if not file.exists():
            continue
        header, *rows = split_csv(file.read_bytes().decode('utf-8-sig'))
        require(len(set(header)) == len(header) and all(map(visible, header)), header)
        require(all(len(row) == len(header) for row in rows), 'fields')
        found[name] = [list(map(_cell, header)), *(list(map(_cell, row)) for row in rows)]
    return found


RUN = Format(make_run, _read_run, _plain_run)


def other_rows(data: bytes) -> st.SearchStrategy[bytes]:
    return respelled(data.decode(), ('5', 'NA'), (',', ''), (',', ',,'), ('best', 'b"est'))


@broken(st.one_of(any_file(RUN), *(changes(RUN, name, other_rows) for name in _TABLES)))
def test_tables_of_a_run(changed):
    # Whoever has no record of the tables may have changed them.
    RUN.check(changed)
    RUN.check({'outputs.json': 'missing'} | changed)
