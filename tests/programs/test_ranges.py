"""Settings: each number has a range, and what is out of it is refused before anything is done."""

import pytest

from bert_secrets_jax.configs import base, schema
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs.settings import assign
from bert_secrets_jax.ranges import Range


def test_every_number_has_a_range():
    """How any value of any setting is refused is tested in tests/fuzz/test_settings.py."""
    for name, each in SETTINGS.items():
        is_number = isinstance(each.default, int | float) and not isinstance(each.default, bool)
        assert is_number == (isinstance(each.allowed, Range) and not each.joined), name


@pytest.mark.parametrize('make', [base.get_config, base.paper, base.quickstart])
def test_what_ships_is_in_range(make):
    schema.check(make())
    schema.check(make('smoke' if make is not base.paper else 'mrpc:smoke'))


def test_all_that_is_wrong_is_named_at_once():
    config = base.get_config()
    config.train.epochs, config.train.clip, config.data.labels = -1, -0.5, (1, 2)
    config.data.source = 'glew'
    with pytest.raises(ValueError) as refusal:
        schema.check(config)
    for said in (
        'train.epochs=-1 must be a whole number from 1 to ', 'train.clip=-0.5',
        'data.labels=(1, 2)', "data.source='glew' must be 'glue', ", '(Did you mean glue?)',
    ):  # fmt: skip
        assert said in str(refusal.value)


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
        schema.check(config)
