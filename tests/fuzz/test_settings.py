"""Settings: any value for any of them is taken as it is meant, or refused by name."""

import ast
import math
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from bert_secrets_jax.configs import base, schema
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs.settings import assign
from bert_secrets_jax.ranges import Range
from tests.fuzz.broken import canonical, folder_of, require, within_limits

# Texts, as after `--set name=`.
_LITERALS = (
    '0', '1', '-1', '2147483648', '1' + '0' * 400, '9' * 5000, '0.5', '1e400', '-1e400', 'nan',
    'True', 'None', '', ' ', '\x00', '\ud800', '\u200b', '()', '[]', '{}', "('a',)", "'a'", '1,',
    "('paper', 'paper')", "('heads',)", '1 + 1', '__import__("os").system("touch EXECUTED")',
    '(' * 5000, '[' * 200 + ']' * 200, '-' * 5000 + '1', '1_000', '0x10', 'b"a"', '1j', '{1: 2}',
    'paper', 'float32', 'adamw', "('paper', 'notebook')", "('random',)", 'x' * 100_000, '../..',
    'matthews', 'f1,accuracy', 'f1,', "('',)", '((1,),)', '{"a"}', '...', 'file', 'L1-H1', 'skip',
    '0.1,0.2', '0.1,0.10', '1e-3,', '-0.1', '0.1 0.2', '\u0661,2',
)  # fmt: skip
_VALUES = (
    None, True, False, 2**64, 10**400, math.nan, math.inf, [['paper']], ['paper'], ['random'],
    ['heads', 'heads'], ['\x00'], {'a': 1}, [1],
)  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def taken(name: str, value: Any) -> Any:
    """Return the value of a setting as the package has it."""
    config = base.get_config()
    assign(config, name, value)
    schema.check(config)
    part: Any = config.to_dict()
    for key in name.split('.'):
        part = part[key]
    return list(part) if isinstance(part, tuple) else part


def meant(name: str, value: Any) -> Any:
    """Return the value, if it is of the type of the default and one of those that are allowed."""
    setting = SETTINGS[name]
    default, allowed = setting.default, setting.allowed
    if isinstance(value, str) and not isinstance(default, str | None):
        value = ast.literal_eval(value)
    value = list(value) if isinstance(value, tuple) else value
    if isinstance(default, bool):
        require(isinstance(value, bool))
    elif isinstance(default, int | float):
        require(type(value) in (int, type(default)))
        require(allowed.least <= value <= allowed.most and value != allowed.without)
        return type(default)(value)
    elif value is not None or default is not None:
        texts = value if isinstance(default, tuple) else [value]
        require(isinstance(texts, list) and all(isinstance(text, str) for text in texts))
        require(all('\0' not in text and text.encode() is not None for text in texts))
        if setting.joined:
            texts = [word.strip() for word in value.split(',')] if value else []
            require(texts or not setting.needed)
        if isinstance(allowed, Range):
            require(all(text.isascii() and not set(text) & {'_', '+'} for text in texts))
            texts = list(map(float, texts))
            allowed = [each for each in texts if allowed.least <= each <= allowed.most]
        if allowed is not None:
            require(set(texts) <= set(allowed))
        require(not setting.joined or len(set(texts)) == len(texts))
    return value


@settings(max_examples=2 * settings.default.max_examples)
@given(
    name=st.sampled_from(sorted(SETTINGS)),
    value=st.sampled_from(_LITERALS) | st.sampled_from(_VALUES) | _JSON,
)
@example('ablation.sets', None)
@example('data.labels', 'None')
@example('train.epochs', True)
@example('statistics', ())
def test_any_value(name, value):
    try:
        with folder_of({}), within_limits():
            found = taken(name, value)
    except ValueError as error:
        assert name in str(error) and '\n' not in str(error).replace(str(value), '')
        event('refused')
        return
    assert canonical(found) == canonical(meant(name, value))
    event('taken')


@pytest.mark.parametrize('name', ['TRAIN.EPOCHS', 'train.epochs.x', 'train', '', '.', 'x' * 1000])
def test_no_such_setting(name):
    with pytest.raises(ValueError, match=rf'^No such setting: {name!r}\.'):
        taken(name, '3')
