"""Each statistic on maps of four tokens, worked out by hand, and where it does not apply."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.measure import statistics

# One layer, one head, three real tokens and one padded position (its column is 0 by law 2; its
# row is whatever the model makes of it and must not count). [CLS] a [SEP] [PAD]
MAP = np.array(
    [
        [0.1, 0.2, 0.7, 0.0],
        [0.5, 0.0, 0.5, 0.0],
        [0.3, 0.3, 0.4, 0.0],
        [0.9, 0.1, 0.0, 0.0],
    ],
    np.float32,
)
MARKS = {
    'token': np.array([True, True, True, False]),
    'cls': np.array([True, False, False, False]),
    'sep': np.array([False, False, True, False]),
    'noun': np.array([True, True, False, False]),
    'verb': np.array([False, False, False, False]),
}


def measure(statistic):
    maps = jnp.asarray(np.stack([MAP, MAP[::-1, ::-1]])[None])
    value, weight = statistic(maps, {name: jnp.asarray(mark) for name, mark in MARKS.items()})
    assert value.shape == (1, 2)
    return float(value[0, 0]), float(weight)


@pytest.mark.parametrize(
    ('statistic', 'expected'),
    [
        (statistics.to_cls, (0.1 + 0.5 + 0.3) / 3),
        (statistics.to_sep, (0.7 + 0.5 + 0.4) / 3),
        # Two tokens of the type: the greater column mean, 0.9/3 and not 0.5/3.
        (statistics.attention_to('noun'), 0.9 / 3),
        (statistics.to_self, (0.1 + 0.0 + 0.4) / 3),
        (statistics.to_previous, (0.5 + 0.3) / 3),
        (statistics.to_next, (0.2 + 0.5) / 3),
        (
            statistics.entropy,
            -(
                0.1 * np.log(0.1) + 0.2 * np.log(0.2) + 0.7 * np.log(0.7)
                + 2 * 0.5 * np.log(0.5)
                + 2 * 0.3 * np.log(0.3) + 0.4 * np.log(0.4)
            ) / 3,
        ),
    ],
    ids=lambda value: getattr(value, '__name__', ''),
)  # fmt: skip
def test_by_hand(statistic, expected):
    value, weight = measure(statistic)
    assert value == pytest.approx(expected, abs=1e-7)
    assert weight == 1


def test_an_example_without_the_feature_has_no_weight():
    value, weight = measure(statistics.attention_to('verb'))
    assert weight == 0 and np.isfinite(value)


def test_two_separators_count_with_the_greater_column():
    marks = {name: jnp.asarray(mark) for name, mark in MARKS.items()}
    marks['sep'] = jnp.asarray([False, True, True, False])
    value, _ = statistics.to_sep(jnp.asarray(MAP[None, None]), marks)
    assert float(value[0, 0]) == pytest.approx(1.6 / 3, abs=1e-7)


def test_uniform_attention_has_the_known_values():
    length = 5
    maps = jnp.full((2, 3, length, length), 1 / length)
    marks = {'token': jnp.ones(length, bool), 'cls': jnp.arange(length) == 0}
    expected = {
        statistics.to_cls: 1 / 5,
        statistics.to_self: 1 / 5,
        statistics.to_previous: 4 / 25,
        statistics.to_next: 4 / 25,
        statistics.entropy: np.log(5),
    }
    for statistic, value in expected.items():
        np.testing.assert_allclose(statistic(maps, marks)[0], value, rtol=1e-6)
