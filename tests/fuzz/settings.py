"""Settings: any value for any of them."""

import ast
import json
import math
import pathlib
import random
import re
from collections.abc import Mapping
from typing import Any

from tests.fuzz.target import Target, Unchecked, require

_FILE = 'setting.json'
# Settings that are one of these names, or several of them.
_NAMES: Mapping[str, tuple[str, ...]] = {
    'model.dtype': ('float32', 'tf32x3', 'bfloat16'),
    'data.source': ('glue', 'corpus', 'file', 'tags', 'questions', 'segments'),
    'data.bad_rows': ('error', 'skip'),
    'frames.reading': ('paper', 'notebook'),
    'train.starts': ('pretrained', 'random'),
    'train.optimizer': ('adamw', 'bert_adam'),
    'change.readings': ('paper', 'notebook'),
    'ablation.checkpoint': ('finetuned', 'model'),
    'ablation.sets': ('heads', 'layers', 'one_head_left'),
    'ablation.baseline': ('uniform', 'zero', 'mean', 'resample'),
}
# Settings that are several of these names with commas between them.
_LISTED: Mapping[str, tuple[str, ...]] = {
    'data.metrics': (
        'accuracy', 'f1', 'f1_macro', 'f1_micro', 'matthews', 'pearson', 'spearman',
        'span_f1', 'word_accuracy', 'exact_match', 'answer_f1',
    ),
}  # fmt: skip
# Settings that are several numbers with commas between them, and the greatest of them.
_NUMBERS_LISTED = {'gates.coefficients': 1e6, 'prune.batch_sizes': 100_000}
# Those of them that are whole numbers from 1, or ''.
_COUNTS_LISTED = ('prune.batch_sizes',)
# The least values of numbers that cannot be 0.
_LEAST = {
    'encoding.max_length': 1, 'encoding.tokens_per_batch': 1, 'links.draws': 1,
    'train.num_seeds': 1, 'train.batch_size': 1, 'train.micro_batch': 1, 'train.log_every': 1,
    'train.checkpoint_every': 1, 'train.learning_rate': 5e-324, 'train.clip': 5e-324,
    'patterns.count': 1, 'patterns.side': 32, 'patterns.epochs': 1, 'patterns.folds': 2,
    'train.epochs': 1, 'masked_lm.share': 0.01, 'probe.num_seeds': 1, 'outliers.draws': 19,
    'gates.num_seeds': 1, 'gates.epochs': 1, 'gates.learning_rate': 5e-324,
    'gates.model_learning_rate': 5e-324, 'replacements.passes': 1, 'subnetworks.share': 0.01,
}  # fmt: skip
_MOST = {
    'train.warmup': 1, 'masked_lm.share': 0.99, 'subnetworks.share': 0.99, 'prune.tolerance': 1,
}  # fmt: skip
# Texts, as after `--set name=`.
_LITERALS = (
    '0', '1', '-1', '2', '3', '100', '2147483647', '2147483648', str(2**64), '1' + '0' * 400,
    '9' * 5000, '0.0', '0.5', '1.0', '-0.5', '1e-5', '1e308', '1e400', '-1e400', 'nan', 'inf',
    '-inf', 'True', 'False', 'None', '', ' ', '\x00', '\ud800', '\u200b', '()', '[]', '{}',
    "('a',)",
    "'a'", '(1, 2)', "('paper', 'paper')", "('heads',)", '1,', '1 + 1',
    '__import__("os").system("x")',
    '(' * 5000, '[' * 200 + ']' * 200, '-' * 5000 + '1', '1_000', '0x10', 'b"a"', '1j', '{1: 2}',
    'paper', 'float32', 'adamw', "('paper', 'notebook')", "('random',)", 'float16', 'x' * 100_000,
    '../..', '/dev/zero', 'matthews', 'f1,accuracy', 'f1,',
    "('',)", '((1,),)', '{"a"}', '...', 'file', 'L1-H1', 'skip',
    '0.1,0.2', '0.1,0.10', '1e-3,', '-0.1', '0.1 0.2',
)  # fmt: skip
# Values, as a program may give them.
_VALUES = (
    None, True, False, 0, 1, -1, 2**31, 2**64, 10**400, 0.0, 0.5, -0.5, 1.0, 1e308, math.nan,
    math.inf, -math.inf, '', ' ', 'a', '1', [], ['a'], [1], [['paper']], {}, {'a': 1}, ['paper'],
    ['heads', 'heads'], ['random'], ['\x00'], 2.5, 3, 16, 64,
)  # fmt: skip


def _defaults() -> dict[str, Any]:
    from bert_secrets_jax.configs import base

    flat: dict[str, Any] = {}

    def walk(tree, prefix):
        for key, value in tree.items():
            if isinstance(value, dict):
                walk(value, f'{prefix}{key}.')
            else:
                flat[prefix + key] = value

    walk(base.get_config().to_dict(), '')
    return flat


def _make(folder: pathlib.Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    setting = {'name': 'train.epochs', 'value': 3 + number}
    (folder / _FILE).write_text(json.dumps(setting))


def _change(rng: random.Random, folder: pathlib.Path) -> str:
    name = rng.choice(sorted(_defaults()))
    value = rng.choice(_LITERALS if rng.randrange(3) else _VALUES)
    if not rng.randrange(30):
        name = rng.choice((name.upper(), name + '.x', name.partition('.')[0], '', '.', 'x' * 1000))
    (folder / _FILE).write_text(json.dumps({'name': name, 'value': value}))
    return f'{name[:30]}: {str(value)[:30]!r}'


def _read(folder: pathlib.Path) -> Any:
    from bert_secrets_jax.configs import base
    from bert_secrets_jax.programs import settings

    setting = json.loads((folder / _FILE).read_text())
    config = base.get_config()
    settings.assign(config, setting['name'], setting['value'])
    try:
        from bert_secrets_jax.configs import ranges
    except ImportError:
        raise Unchecked('there is no bert_secrets_jax.configs.ranges') from None
    ranges.check(config)
    part: Any = config.to_dict()
    for key in setting['name'].split('.'):
        part = part[key]
    return setting['name'], _plain(part)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _oracle(folder: pathlib.Path) -> Any:
    """Return the value, if it is of the type of the default and not absurd."""
    setting = json.loads((folder / _FILE).read_text())
    name, value = setting['name'], setting['value']
    default = _defaults()[name]
    if isinstance(value, str) and not isinstance(default, str | None):
        value = ast.literal_eval(value)
    if isinstance(default, str) or default is None:
        require(isinstance(value, str) or (default is None and value is None), value)
        require(value is None or '\x00' not in value)
        if value is not None:
            value.encode()
    elif isinstance(default, bool):
        require(isinstance(value, bool), value)
    elif isinstance(default, tuple):
        require(isinstance(value, list | tuple), value)
        require(all(isinstance(each, str) and '\x00' not in each for each in value), value)
    else:
        kinds = (int, float) if isinstance(default, float) else (int,)
        require(type(value) in kinds and math.isfinite(value), value)
        require(_LEAST.get(name, 0) <= value <= _MOST.get(name, 2**63 - 1), value)
        value = type(default)(value)
    if name in _NAMES:
        chosen = [value] if isinstance(value, str) else value
        require(set(chosen) <= set(_NAMES[name]) and chosen, value)
    if name in _LISTED and value:
        words = [word.strip() for word in value.split(',')]
        require(set(words) <= set(_LISTED[name]) and len(set(words)) == len(words), value)
    if name in _NUMBERS_LISTED and not (value == '' and name in _COUNTS_LISTED):
        words = [word.strip() for word in value.split(',')]
        # Written out, without signs, underscores and the digits of other scripts.
        require(all(re.fullmatch(r'\d+(\.\d*)?(e-?\d\d?)?', each, re.ASCII) for each in words))
        found = [float(each) for each in words]
        require(max(found) <= _NUMBERS_LISTED[name] and len(set(found)) == len(found), value)
        if name in _COUNTS_LISTED:
            require(all(re.fullmatch(r'\d+', each, re.ASCII) for each in words) and min(found) >= 1)
    return name, _plain(value)


def _names(folder: pathlib.Path) -> list[str]:
    name = json.loads((folder / _FILE).read_text())['name']
    return [name] if name else ['setting']


SETTINGS = Target('settings', _make, _change, _read, _oracle, names=_names, weight=10)
