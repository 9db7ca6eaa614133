"""Settings: each number has a range, and what is out of it is refused before anything is done."""

import math
import re

import pytest
from flax.traverse_util import flatten_dict

from bert_secrets_jax.configs import base, paper, quickstart, ranges
from bert_secrets_jax.configs.schema import SETTINGS as SCHEMA
from bert_secrets_jax.configs.schema import Words
from bert_secrets_jax.programs.settings import assign
from bert_secrets_jax.ranges import Range

SETTINGS = flatten_dict(base.get_config().to_dict(), sep='.')
NUMBERS = {n: each.allowed for n, each in SCHEMA.items() if isinstance(each.allowed, Range)}
WORDS = [name for name, each in SCHEMA.items() if type(each.allowed) is Words]


def test_every_number_has_a_range():
    numbers = {
        name
        for name, value in SETTINGS.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    assert numbers == set(NUMBERS)
    assert WORDS and set(WORDS) <= set(SETTINGS)


@pytest.mark.parametrize('make', [base.get_config, paper.get_config, quickstart.get_config])
def test_what_ships_is_in_range(make):
    ranges.check(make())
    ranges.check(make('smoke' if make is not paper.get_config else 'mrpc:smoke'))


@pytest.mark.parametrize('name', NUMBERS)
def test_numbers_out_of_range_are_named(name):
    allowed = NUMBERS[name]
    wrong = [allowed.least - 1, allowed.most + 1]
    if not allowed.whole:
        wrong += [math.nan, math.inf, *([] if allowed.without is None else [allowed.without])]
    for value in wrong:
        config = base.get_config()
        assign(config, name, value)
        with pytest.raises(ValueError, match=rf'^{re.escape(name)}=.* must be a'):
            ranges.check(config)


@pytest.mark.parametrize('name', WORDS)
def test_words_that_are_unknown_are_named(name):
    config = base.get_config()
    assign(config, name, 'nonsense' if isinstance(SETTINGS[name], str) else ('nonsense',))
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} is '.*, not 'nonsense'"):
        ranges.check(config)


def test_all_that_is_wrong_is_named_at_once():
    config = base.get_config()
    config.train.epochs, config.train.clip, config.data.labels = -1, -0.5, (1, 2)
    with pytest.raises(ValueError) as refusal:
        ranges.check(config)
    for name in ('train.epochs=-1', 'train.clip=-0.5', 'data.labels=(1, 2)'):
        assert name in str(refusal.value)


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('train.micro_batch', 5, r'train\.micro_batch=5 must divide train\.batch_size=32'),
        ('importance.permutations', 18, 'permutations=18 must be even and at least 20'),
        ('importance.permutations', 21, r'^importance\.permutations=21 must be even'),
    ],
)
def test_numbers_that_do_not_fit_are_named(name, value, message):
    """That is told before models are fine-tuned."""
    config = base.get_config()
    assign(config, name, value)
    with pytest.raises(ValueError, match=message):
        ranges.check(config)
