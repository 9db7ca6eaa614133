"""Files that the package writes and reads again: results, and outcomes of fine-tunings."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example
from hypothesis import strategies as st

import bert_secrets_jax as bs
from bert_secrets_jax import files
from bert_secrets_jax.finetune.outcome import Finetuned
from bert_secrets_jax.runs.run import Run
from bert_secrets_jax.runs.store import version_of
from tests.fuzz.broken import Format, integer, logged, number, plain_json, require, sample
from tests.fuzz.damage import (
    any_file,
    broken,
    changed_npz,
    changes,
    damaged,
    npy,
    with_bomb,
    zipped,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A part of a result."""

    words: tuple[str, ...]
    share: float


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
    return Run(folder).keep(f'numbers {seed}', Probe, {'seed': seed}, compute)


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


def other_kept() -> st.SearchStrategy[dict[str, bytes | str]]:
    """The file of seed 0 is damaged, another archive, that of seed 1, or any other file."""
    data = sample(make_kept)
    mine, _ = sorted(name for name in data if name.endswith('.npz'))
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
    require(tree['class'] == 'Probe' and tree['format'] == version_of(Probe))
    value, whole = tree['value'], result(0)
    require(value.keys() == vars(whole).keys())

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


_DEV, _TRAIN = dict.fromkeys(('f1', 'accuracy', 'score'), 0.5), {'learning_rate': 5e-5}
_HISTORY = [
    {'split': split, 'seed': seed, 'step': 2 * epoch, 'epoch': epoch, 'loss': 0.7} | more
    for epoch in (0, 1)
    for seed in (0, 1)
    for split, more in (('dev', _DEV), ('train', _TRAIN))
]
OUTCOME = {
    'start': 'pretrained', 'seeds': [0, 1], 'metrics': ['f1', 'accuracy'],
    'label_names': ['0', '1'], 'train_examples': 8, 'dev_examples': 8, 'larger_class': 0.5,
    'history': _HISTORY, 'dtype': 'float32', 'head': 'sequence_classification',
}  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('start', 'x'),
        *(('seeds', value) for value in ([0, 2], [], [0, 1.0], '01')),
        *(('metrics', value) for value in ([], [1], {}, ['matthews'])),
        ('label_names', [1]),
        ('train_examples', -1),
        *(('dev_examples', value) for value in (True, 8.0, 10**400)),
        *(('larger_class', value) for value in ('0.5', 2, None)),
        *(('history', value) for value in ([], [3], _HISTORY[:2], [{'split': 'dev', 'seed': 0}])),
        ('dtype', 'float8'),
        ('head', 'tagger'),
        ('more', 1),
    ],
)
def test_an_outcome_of_other_values_is_damaged_though_it_is_sealed(tmp_path, untyped, name, value):
    file = tmp_path / 'outcome.json'
    file.write_text(json.dumps(files.sealed(OUTCOME | {name: value})))
    with pytest.raises(ValueError, match=r'outcome\.json is damaged or of another version'):
        Finetuned.load(tmp_path)
    # What was written is read, and its models are looked for.
    file.write_text(json.dumps(files.sealed(OUTCOME)))
    with pytest.raises((ValueError, OSError), match='seed0'):
        Finetuned.load(tmp_path)
