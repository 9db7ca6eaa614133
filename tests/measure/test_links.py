"""Distances, ideal offset heads and random links: by hand, and their error rates on noise."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.data.encoding import bucket, mark, tokenize
from bert_secrets_jax.measure import statistics
from bert_secrets_jax.measure.catalogue import measure, relation
from bert_secrets_jax.measure.links import (
    Direction,
    LinkScores,
    Null,
    directions,
    link_scores,
    link_tests,
    null_summary,
    offset_baseline,
    offset_histogram,
    places,
    random_links,
    with_random_links,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained

FILLER = (0, 0, -1)
# Example 0 has two links, the first of them of two pairs; example 1 has one, example 2 none.
LINKS = np.array(
    [
        [(3, 1, 0), (3, 2, 0), (1, 2, 1)],
        [(4, 2, 0), FILLER, FILLER],
        [FILLER, FILLER, FILLER],
    ],
    np.int32,
)


def one_text(*lengths):
    """Which text wordpieces are in: inputs [CLS] text [SEP] of these numbers of tokens."""
    positions = np.arange(max(lengths))
    return np.where((positions > 0) & (positions < np.array(lengths)[:, None] - 1), 0, -1).astype(
        np.int8
    )


def spans(links):
    """Distinct source and target positions of each link of one example, [P, 3]."""
    for number in np.unique(links[links[:, 2] >= 0, 2]):
        pairs = links[links[:, 2] == number]
        yield np.unique(pairs[:, 0]), np.unique(pairs[:, 1])


def scores(statistic, maps, **marks):
    """Mean over examples, as `collect` has it, without a model."""
    marks = jax.tree.map(jnp.asarray, marks)
    values, weights = jax.vmap(statistic)(jnp.asarray(maps, jnp.float32), marks)
    return np.asarray(jnp.einsum('B...,B->...', values, weights) / weights.sum())


def test_offset_of_the_closest_pair_of_each_link():
    offsets, counts = offset_histogram(LINKS)
    # 3 -> 2 rather than 3 -> 1; 1 -> 2; 4 -> 2.
    assert offsets.tolist() == [-2, -1, 1]
    assert counts.tolist() == [1, 1, 1]


def test_offsets_on_both_sides_and_as_close_count_once():
    offsets, counts = offset_histogram(np.array([[(3, 5, 0), (3, 1, 0), (3, 8, 0)]]))
    assert (offsets.tolist(), counts.tolist()) == ([-2], [1])


def test_ideal_offset_heads_by_hand():
    scores = offset_baseline(LINKS, (-2, -1, 1, 2))
    # Example 0: one link of two has a pair at -2, one at -1, one at 1; example 1: its only one -2.
    assert scores == {-2: 0.75, -1: 0.25, 1: 0.25, 2: 0.0}
    assert next(iter(scores)) == -2


def test_ideal_offset_heads_with_absent_links_as_zero():
    assert offset_baseline(LINKS, (-2,), count_absent=True) == {-2: 0.5}


def test_links_that_nobody_has_have_no_baseline():
    assert np.isnan(offset_baseline(LINKS[2:], (-1,))[-1])
    assert [part.tolist() for part in offset_histogram(LINKS[2:])] == [[], []]


@pytest.mark.parametrize('offset', [-2, -1, 1])
def test_the_baseline_is_what_a_perfect_offset_head_scores(offset):
    rng = np.random.default_rng(0)
    links = rng.integers(1, 9, (20, 6, 3)).astype(np.int32)
    links[..., 2] = rng.integers(-1, 3, (20, 6))
    maps = np.broadcast_to(np.eye(10, k=offset), (20, 1, 1, 10, 10))
    measured = scores(statistics.attention_of_links('link'), maps, link=links)
    assert measured[0, 0] == pytest.approx(offset_baseline(links, (offset,))[offset], abs=1e-6)


@st.composite
def linked_inputs(draw):
    """Links of runs without overlap in inputs of one text or two, and the texts."""
    lengths = draw(st.lists(st.integers(4, 12), min_size=1, max_size=2))
    parts = [[-1]] + [[number] * length + [-1] for number, length in enumerate(lengths)]
    text = np.concatenate(parts).astype(np.int8)
    pairs = []
    for number in range(draw(st.integers(1, 2))):
        inside = np.flatnonzero(text == draw(st.integers(0, len(lengths) - 1)))
        cuts = draw(
            st.lists(st.integers(0, len(inside)), min_size=4, max_size=4, unique=True).map(sorted)
        )
        source, target = inside[cuts[0] : cuts[1]], inside[cuts[2] : cuts[3]]
        if draw(st.booleans()):
            source, target = target, source
        pairs += [(query, key, number) for query in source for key in target]
    padding = draw(st.integers(0, 3))
    pairs += [FILLER] * draw(st.integers(0, 2))
    return np.array([pairs]), np.pad(text, (0, padding), constant_values=-1)[None]


@hypothesis.given(linked_inputs(), st.integers(0, 99))
@hypothesis.settings(max_examples=100, deadline=None)
def test_random_spans_are_runs_of_the_same_lengths_in_the_same_text(inputs, seed):
    links, text = inputs
    drawn = random_links(links, text, draws=5, seed=seed)
    assert (drawn[..., 2] == links[:, None, :, 2]).all()
    for draw in drawn[0]:
        for before, after in zip(spans(links[0]), spans(draw), strict=True):
            for old, new in zip(before, after, strict=True):
                assert len(new) == len(old)
                assert (np.diff(new) == 1).all()
                assert (text[0, new] == text[0, old[0]]).all()


@hypothesis.given(linked_inputs(), st.integers(0, 99))
@hypothesis.settings(max_examples=100, deadline=None)
def test_random_spans_never_overlap(inputs, seed):
    for draw in random_links(*inputs, draws=5, seed=seed)[0]:
        assert all(not np.intersect1d(source, target).size for source, target in spans(draw))


@hypothesis.given(linked_inputs(), st.integers(0, 99))
@hypothesis.settings(max_examples=100, deadline=None)
def test_links_moved_as_a_whole_keep_their_offsets(inputs, seed):
    links, text = inputs
    drawn = random_links(links, text, draws=5, seed=seed, same_distance=True)
    offsets = links[..., 1] - links[..., 0]
    assert (drawn[..., 1] - drawn[..., 0] == offsets[:, None]).all()
    filled = links[0, :, 2] >= 0
    for end in (0, 1):
        old, new = links[0, filled, end], drawn[0][:, filled, end]
        assert (text[0, new] == text[0, old]).all()


def test_all_places_that_are_far_enough_apart_are_drawn_and_equally_often():
    # Five wordpieces, 1 to 5, and a target of two: six places leave one wordpiece or more between.
    links = np.array([[(1, 2, 0), (1, 3, 0)]])
    drawn = random_links(links, one_text(7), draws=6000, seed=0)[0]
    places, counts = np.unique(drawn[:, 0, :2], axis=0, return_counts=True)
    assert places.tolist() == [[1, 3], [1, 4], [2, 4], [4, 1], [5, 1], [5, 2]]
    np.testing.assert_allclose(counts / 6000, 1 / 6, atol=0.02)


def test_zipped_pairs_stay_zipped():
    links = np.array([[(1, 4, 0), (2, 5, 0)]])
    drawn = random_links(links, one_text(12), draws=50, seed=0)[0]
    assert (drawn[:, 1, :2] == drawn[:, 0, :2] + 1).all()


def test_a_short_input_has_its_widest_distance_and_says_so(caplog):
    caplog.set_level('INFO', logger='absl')
    links = np.array([[(1, 2, 0)], [(1, 2, 0)], [(1, 2, 0)]])
    drawn = random_links(links, one_text(4, 5, 9), draws=40, seed=0, min_distance=3)
    distance = np.abs(drawn[..., 0, 1] - drawn[..., 0, 0])
    assert np.unique(distance[0]).tolist() == [1] and np.unique(distance[1]).tolist() == [2]
    assert distance[2].min() == 3
    assert 'of 3, 2 have no place 3 positions apart and are closer, 0 have none' in caplog.text


def test_a_link_that_fits_nowhere_without_overlap_stays(caplog):
    caplog.set_level('INFO', logger='absl')
    links = np.array([[(1, 1, 0)]])
    assert (random_links(links, one_text(3), draws=4, seed=0) == links[:, None]).all()
    assert '1 have none but their own' in caplog.text


def test_the_seed_decides():
    draw = lambda seed: random_links(LINKS, one_text(9, 9, 9), draws=20, seed=seed)
    assert (draw(1) == draw(1)).all()
    assert (draw(1) != draw(2)).any()


@pytest.mark.parametrize(
    ('links', 'kwargs', 'message'),
    [
        (LINKS, {'draws': 0}, 'draws=0 and min_distance=2 must be at least 1'),
        (LINKS[:2], {}, r'\[2, 3, 3\] are not .* of the 3 examples'),
        (np.array([[(1, 6, 0)]] * 3), {}, 'example 1 is to a special token or padding'),
        (np.array([[(1, 9, 0)]] * 3), {}, 'example 0 is to a special token or padding'),
    ],
)
def test_bad_input_to_random_links_is_named(links, kwargs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        random_links(links, one_text(9, 7, 9), **({'draws': 1, 'seed': 0} | kwargs))


def test_null_summary_by_hand():
    score = np.array([[0.5, 0.1]])
    null = np.array([[[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.6, 0.1]]])
    test = null_summary(score, null)
    # No draw of four is as high as 0.5; all four are as high as 0.1.
    assert test.p.tolist() == [[0.2, 1.0]]
    assert test.percentile_99.tolist() == [[0.4, 0.6]]
    # The first head is farther above its draws than either is in any draw but the second's third.
    assert test.familywise.tolist() == [[0.4, 1.0]]
    expected = [[0.25 / np.sqrt(0.05 / 3), -0.15 / np.sqrt(0.17 / 3)]]
    np.testing.assert_allclose(test.z, expected, rtol=1e-12)


def test_percentile_leaves_one_percent_above():
    null = np.arange(1, 201)[None, None] / 200
    test = null_summary(np.array([[0.99]]), null)
    assert test.percentile_99[0, 0] == 199 / 200


def test_scores_equal_up_to_rounding_are_ties():
    test = null_summary(np.full((1, 1), 0.3, np.float32), np.full((1, 1, 9), 0.3 - 1e-7))
    assert test.p[0, 0] == 1 and np.isnan(test.z[0, 0])


@pytest.mark.parametrize(
    ('score', 'null', 'message'),
    [
        (np.zeros((2, 3)), np.zeros((2, 4, 9)), r'draws\] for scores \[2, 3\], got \[2, 4, 9\]'),
        (np.full((1, 1), np.nan), np.zeros((1, 1, 9)), 'not finite'),
    ],
)
def test_bad_scores_are_named(score, null, message, unchecked):
    with pytest.raises(ValueError, match=message):
        null_summary(score, null)


def assessed(maps, links, text, *, draws, **kwargs):
    drawn = random_links(links, text, draws=draws, seed=1, **kwargs)
    score = scores(statistics.attention_of_links('link'), maps, link=links)
    along = statistics.attention_of_random_links('link', kind='elsewhere')
    null = scores(along, maps, random={'elsewhere': {'link': drawn}})
    return score, null_summary(score, null)


def test_error_rate_on_maps_that_know_nothing_of_the_links():
    """400 heads of noise: about 5 % have p <= 0.05, and no head is above the corrected level."""
    rng = np.random.default_rng(0)
    text = one_text(*[12] * 6)
    links = random_links(np.array([[(2, 5, 0), (2, 6, 0)]] * 6), text, draws=1, seed=7)[:, 0]
    maps = rng.dirichlet(np.ones(12), (6, 20, 20, 12))
    _, test = assessed(maps, links, text, draws=199)
    assert 0.02 < (test.p <= 0.05).mean() < 0.08
    assert test.familywise.min() > 0.05
    assert abs(test.z.mean()) < 0.2


def test_correction_for_heads_holds_its_error_rate():
    """Heads of very different scores: in 5 % of corpora any is below 0.05."""
    rng = np.random.default_rng(2)
    level = 10.0 ** -np.arange(8)[None, :, None]
    errors = 0
    for _ in range(400):
        scores = level * (1 + 0.2 * rng.standard_normal((1, 8, 100)))
        errors += (null_summary(scores[..., 0], scores[..., 1:]).familywise <= 0.05).any()
    assert 8 <= errors <= 36


def test_an_offset_head_is_above_chance_in_free_places_only():
    text = one_text(*range(10, 18))
    links = np.array([[(5, 4, 0)]] * 8)
    maps = np.broadcast_to(np.eye(17, k=-1), (8, 1, 1, 17, 17))
    _, free = assessed(maps, links, text, draws=99)
    _, moved = assessed(maps, links, text, draws=99, same_distance=True)
    assert free.p[0, 0] == 0.01
    assert moved.p[0, 0] == 1


def test_a_head_that_knows_the_links_is_above_both_nulls():
    text = one_text(*range(10, 18))
    links = np.array([[(6, 3, 0)]] * 8)
    maps = np.full((8, 1, 1, 17, 17), 1 / 17)
    maps[..., 6, :], maps[..., 6, 3] = 0, 1
    for same_distance in (False, True):
        _, test = assessed(maps, links, text, draws=199, same_distance=same_distance)
        assert test.p[0, 0] == 0.005
        assert test.familywise[0, 0] == 0.005


def test_directions_have_their_own_titles():
    assert directions(['verb-subject', 'path']) == {
        'verb to subject': Direction('verb-subject', False),
        'subject to verb': Direction('verb-subject', True),
        'path to target': Direction('path', False),
        'target to path': Direction('path', True),
    }
    with pytest.raises(ValueError, match="'a-b' and 'b-a' both say 'b to a'"):
        directions(['a-b', 'b-a'])


RELATIONS = ['file', 'nothing-here']


@pytest.fixture(scope='module')
def encoded(tokenizer):
    """One relation with links, whatever its name, and one without any."""
    text = 'the cat saw a big red house and it ran .'
    span = lambda word: Span(text.index(word), text.index(word) + len(word))
    link = Link((span('it'),), (span('cat'),))
    annotations = [Annotation({}, {'file': (link,), 'nothing-here': ()})] * 3
    return mark(tokenize(tokenizer, [text] * 3, max_length=32), annotations)


def test_links_and_their_tests_in_one_pass(bert, params, tokenizer, encoded):
    pretrained = Pretrained(bert, params, tokenizer)
    with_random, random = with_random_links(encoded, RELATIONS, draws=99, seed=0)
    described = [relation(*direction) for direction in directions(RELATIONS).values()]
    batches = bucket(with_random, max_length=32)
    measured = measure(pretrained, batches, described, also=random)
    assert set(random) < set(measured) and Null('file to target', 'moved') in random
    scores = link_scores(encoded, RELATIONS, measured)
    # Of what could be stored, the tests are made without texts or a model.
    tables = {title: measured[title] for title in scores}
    found = link_tests(tables, scores)
    assert list(scores) == list(directions(RELATIONS))
    assert list(found) == ['file to target', 'target to file']
    forward, backward = found.values()
    # "it" is the ninth word, "cat" the second; [CLS] stands before them.
    assert forward.links[0].tolist() == [[9, 2, 0]] and backward.links[0].tolist() == [[2, 9, 0]]
    # Eleven wordpieces, of which the link spans eight: it fits at four places.
    assert forward.places == 4
    assert list(forward.nulls) == ['moved', 'elsewhere'] and forward.real.shape == (3, 4)
    assert forward.ideal == (-5, 0.0)
    assert forward.table.mean[forward.top] == forward.table.mean.max()
    for kind, same_distance in (('moved', True), ('elsewhere', False)):
        drawn = random_links(
            encoded.marks['file'], encoded.text, draws=99, seed=0, same_distance=same_distance
        )
        np.testing.assert_array_equal(with_random.marks['random'][kind]['file'], drawn)
        for title, reverse in (('file to target', False), ('target to file', True)):
            # Pair by pair, from the maps themselves.
            (whole,) = bucket(encoded, max_length=32)
            maps = np.asarray(bert.apply({'params': params}, **whole.inputs).attentions)
            query, key = (drawn[..., 0, end] for end in ((1, 0) if reverse else (0, 1)))
            values = np.stack([maps[row][:, :, query[row], key[row]] for row in range(3)])
            null = null_summary(tables[title].mean, values.mean(axis=0))
            np.testing.assert_allclose(found[title].nulls[kind].mean, null.mean, atol=1e-6)
            # A quarter of the moved links stay where they are.
            stay = 0.25 if same_distance else 0
            beyond = (tables[title].mean - null.mean) / (1 - stay)
            np.testing.assert_allclose(found[title].excess[kind].mean, beyond, atol=1e-6)
            assert found[title].excess[kind].count == 3


def test_links_that_cannot_move_have_no_excess():
    table = HeadTable(np.full((1, 2), 0.5), np.full((1, 2), 0.1), 4.0)
    links = np.array([[(1, 2, 0)]] * 4)
    scores = LinkScores(
        links=links,
        places=places(links, one_text(*[4] * 4)),
        random={'moved': np.full((1, 2, 9), 0.4), 'elsewhere': np.full((1, 2, 9), 0.4)},
        excess={'moved': np.full((2, 1, 2), 0.1), 'elsewhere': np.full((2, 1, 2), 0.1)},
    )
    (test,) = link_tests({'a to b': table}, {'a to b': scores}).values()
    assert test.places == 1
    assert np.isnan(test.excess['moved'].mean).all()
    assert (test.excess['elsewhere'].mean == 0.1).all()


def test_random_links_of_nothing_are_refused(encoded, unchecked):
    with pytest.raises(ValueError, match="no relation 'verb', but file, nothing-here: bs.mark"):
        with_random_links(encoded, ['verb'], draws=1, seed=0)
    with pytest.raises(ValueError, match="kinds are moved, elsewhere, not 'near'"):
        with_random_links(encoded, RELATIONS, kinds=['near'], draws=1, seed=0)
