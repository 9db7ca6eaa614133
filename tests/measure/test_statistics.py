"""Each statistic on maps of few tokens, written out, and where it does not apply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.measure import statistics


def arrays(marks):
    return {
        name: arrays(mark) if isinstance(mark, dict) else jnp.asarray(mark)
        for name, mark in marks.items()
    }


def by_loop(maps, links, *, reverse):
    """The score of one example's links, [L, N], pair by pair."""
    greatest = {}
    for query, key, number in links:
        if number >= 0:
            pair = maps[:, :, key, query] if reverse else maps[:, :, query, key]
            greatest[number] = np.maximum(greatest.get(number, 0), pair)
    return np.mean(list(greatest.values()), axis=0) if greatest else np.zeros(maps.shape[:2])


@pytest.mark.parametrize('reverse', [False, True])
def test_links_equal_a_loop_over_pairs(reverse):
    rng = np.random.default_rng(0)
    maps = rng.dirichlet(np.ones(9), (6, 3, 4, 9)).astype(np.float32)
    links = rng.integers(0, 9, (6, 11, 3))
    # Links of an example in any order, with any numbers, and one example without.
    links[..., 2] = rng.integers(-1, 30, (6, 11)) // 6
    links[2, :, 2] = -1
    statistic = statistics.attention_of_links('link', reverse=reverse)
    value, weight = jax.jit(jax.vmap(statistic))(maps, {'link': links})
    expected = [by_loop(*example, reverse=reverse) for example in zip(maps, links, strict=True)]
    np.testing.assert_allclose(value, expected, atol=1e-7)
    assert weight.tolist() == [1, 1, 0, 1, 1, 1]


@pytest.mark.parametrize(
    'factory', [statistics.attention_to, statistics.cls_to, statistics.attention_of_links]
)
def test_one_statistic_for_one_name_and_reading(factory, untyped):
    """jit compiles anew for another function, even if it does the same."""
    assert factory('noun') is factory('noun')
    assert factory('noun') is not factory('verb')
    assert factory('noun', reading='notebook') is not factory('noun')


# Two separators, and a padded position whose own row is whatever the model makes of it:
# [CLS] x [SEP] y . [SEP] [PAD]
PAIR = {
    'token': [True, True, True, True, True, True, False],
    'cls': [True, False, False, False, False, False, False],
    'sep': [False, False, True, False, False, True, False],
    'period_comma': [False, True, False, False, True, False, False],
    'noun': [False, True, False, True, False, False, False],
    'nowhere': [False] * 7,
    # From x to y, and from y to x and "." (two pairs).
    'link': [(1, 3, 0), (3, 1, 3), (3, 4, 3), (0, 0, -1)],
    'absent': [(0, 0, -1)],
    'notebook': {
        # By spelling, the notebook's reading finds one noun, no verb, and zips the second link.
        'noun': [False, True, False, False, False, False, False],
        'verb': [False] * 7,
        'link': [(1, 3, 0), (3, 1, 3)],
    },
}
NOTEBOOK = {'reading': 'notebook'}
REAL = slice(6)


def pair_maps():
    rng = np.random.default_rng(2)
    maps = rng.dirichlet(np.full(6, 0.4), (2, 3, 7)).astype(np.float32)
    # The attention of [PAD] counts nowhere.
    return np.pad(maps, [(0, 0)] * 3 + [(0, 1)])


def plain_entropy(rows):
    return -(rows * np.log(rows)).sum(axis=-1)


def smooth(rows):
    return 0.9999 * rows.astype(np.float64) + 0.0001 / 6


@pytest.mark.parametrize(
    ('statistic', 'expected'),
    [
        # Of several tokens, the greatest column. Others are in `test_collect.written_out`.
        (
            statistics.attention_to('period_comma'),
            lambda a: a[:, :, REAL, [1, 4]].mean(axis=2).max(axis=-1),
        ),
        (statistics.attention_to('noun', **NOTEBOOK), lambda a: a[:, :, REAL, 1].mean(axis=-1)),
        (statistics.attention_to('verb', **NOTEBOOK, among='token'), lambda a: np.zeros((2, 3))),
        (statistics.cls_to('sep'), lambda a: a[:, :, 0, [2, 5]].max(axis=-1)),
        (statistics.cls_to('noun', **NOTEBOOK), lambda a: a[:, :, 0, 1]),
        (
            statistics.attention_of_links('link', **NOTEBOOK),
            lambda a: (a[:, :, 1, 3] + a[:, :, 3, 1]) / 2,
        ),
        (statistics.attention_of_links('absent', among='token'), lambda a: np.zeros((2, 3))),
        # What Clark et al. (2019) count.
        (statistics.to_all_sep, lambda a: a[:, :, REAL, [2, 5]].sum(axis=-1).mean(axis=-1)),
        (statistics.to_period_or_comma, lambda a: a[:, :, REAL, [1, 4]].sum(axis=-1).mean(axis=-1)),
        (statistics.sep_to_sep, lambda a: a[:, :, [2, 5]][..., [2, 5]].sum(axis=(2, 3)) / 2),
        (
            statistics.others_to_sep,
            lambda a: a[:, :, [0, 1, 3, 4]][..., [2, 5]].sum(axis=(2, 3)) / 4,
        ),
        (statistics.entropy_of_cls, lambda a: plain_entropy(a[:, :, 0, REAL])),
        (
            statistics.smoothed_entropy,
            lambda a: plain_entropy(smooth(a[:, :, REAL, REAL])).mean(axis=-1),
        ),
        (statistics.smoothed_entropy_of_cls, lambda a: plain_entropy(smooth(a[:, :, 0, REAL]))),
        (statistics.uniform_entropy, lambda a: np.full((2, 3), np.log(6))),
    ],
    ids=lambda value: getattr(value, '__name__', ''),
)
def test_formulas_written_out(statistic, expected):
    maps = pair_maps()
    value, weight = statistic(jnp.asarray(maps), arrays(PAIR))
    np.testing.assert_allclose(value, expected(maps), atol=2e-6)
    assert weight == 1


def test_smoothing_leaves_no_head_at_zero_and_sums_of_nothing_do_not_apply():
    """Attention to one token leaves nothing but what is spread evenly."""
    maps, marks = jnp.asarray(np.eye(7, dtype=np.float32)[None, None]), arrays(PAIR)
    assert statistics.entropy(maps, marks)[0] == 0
    row = np.array([0.9999 + 0.0001 / 6, *[0.0001 / 6] * 5])
    expected = -(row * np.log(row)).sum()
    for statistic in (statistics.smoothed_entropy, statistics.smoothed_entropy_of_cls):
        assert float(statistic(maps, marks)[0][0, 0]) == pytest.approx(expected, rel=1e-3)
    maps, marks = jnp.asarray(pair_maps()), arrays(PAIR)
    without = marks | {'period_comma': marks['nowhere'], 'sep': marks['nowhere']}
    for statistic in (
        statistics.to_period_or_comma, statistics.to_all_sep, statistics.sep_to_sep,
        statistics.others_to_sep, statistics.cls_to('sep'),
        statistics.cls_to('verb', **NOTEBOOK), statistics.attention_to('noun', among='nowhere'),
        statistics.attention_to('verb', **NOTEBOOK), statistics.attention_of_links('absent'),
    ):  # fmt: skip
        value, weight = statistic(maps, without)
        assert weight == 0 and np.isfinite(value).all()
