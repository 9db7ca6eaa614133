"""Distances, ideal offset heads, and links compared with places in one pass."""

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
    RandomLinks,
    directions,
    link_scores,
    link_tests,
    offset_baseline,
    offset_histogram,
    with_random_links,
)
from bert_secrets_jax.measure.places import draw_places
from tests.conftest import forward as forward_of

FILLER = (0, 0, -1)
# Example 0 has two links, the first of them of two pairs; example 1 has one, example 2 none.
LINKS = np.array(
    [[(3, 1, 0), (3, 2, 0), (1, 2, 1)], [(4, 2, 0), FILLER, FILLER], [FILLER, FILLER, FILLER]],
    np.int32,
)


@pytest.mark.parametrize(
    ('links', 'offsets', 'counts'),
    [
        # 3 -> 2 rather than 3 -> 1; 1 -> 2; 4 -> 2.
        (LINKS, [-2, -1, 1], [1, 1, 1]),
        # Offsets on both sides that are as close count once.
        (np.array([[(3, 5, 0), (3, 1, 0), (3, 8, 0)]]), [-2], [1]),
        (LINKS[2:], [], []),
    ],
)
def test_offset_of_the_closest_pair_of_each_link(links, offsets, counts):
    assert [part.tolist() for part in offset_histogram(links)] == [offsets, counts]


@pytest.mark.parametrize('offset', [-2, -1, 1])
def test_the_baseline_is_what_a_perfect_offset_head_scores(offset):
    rng = np.random.default_rng(0)
    links = rng.integers(1, 9, (20, 6, 3)).astype(np.int32)
    links[..., 2] = rng.integers(-1, 3, (20, 6))
    maps = np.broadcast_to(np.eye(10, k=offset), (20, 1, 1, 10, 10))
    statistic = statistics.attention_of_links('link')
    values, weights = jax.vmap(statistic)(jnp.asarray(maps, jnp.float32), {'link': links})
    measured = np.average(values[:, 0, 0], weights=weights)
    assert measured == pytest.approx(offset_baseline(links, (offset,))[offset], abs=1e-6)
    # One of three examples has no links, and none of one alone.
    assert offset_baseline(LINKS, (-2,))[-2] == 0.75
    assert np.isnan(offset_baseline(LINKS[2:], (-1,))[-1])


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
    annotations = [Annotation({}, {'file': (link,), 'nothing-here': ()})] * 4
    return mark(tokenize(tokenizer, [text] * 4, max_length=32), annotations)


def test_links_and_their_tests_in_one_pass(pretrained, encoded):
    with_random, random = with_random_links(encoded, RELATIONS, draws=99, seed=0)
    described = [relation(*direction) for direction in directions(RELATIONS).values()]
    batches = bucket(with_random, max_length=32, tokens_per_batch=48)
    assert len(batches) > 1
    measured = measure(pretrained, batches, described, also=random)
    assert set(random) == {RandomLinks(False), RandomLinks(True)} < set(measured)
    scores = link_scores(encoded, RELATIONS, measured)
    # The tests are made from numbers that could be stored, without texts or a model.
    tables = {title: measured[title] for title in scores}
    found = link_tests(tables, scores)
    assert list(scores) == list(directions(RELATIONS))
    assert list(found) == ['file to target', 'target to file']
    forward, backward = found.values()
    # "it" is the ninth word, "cat" the second; [CLS] stands before them.
    assert forward.links[0].tolist() == [[9, 2, 0]] and backward.links[0].tolist() == [[2, 9, 0]]
    # Without word classes there is nothing of the fourth kind.
    assert list(forward.nulls) == ['elsewhere', 'moved', 'positions']
    assert forward.real.shape == (3, 4)
    assert forward.ideal == (-5, 0.0)
    assert forward.table.mean[forward.top] == forward.table.mean.max()
    # Eleven wordpieces, of which the link spans eight: it fits at three places but its own.
    assert forward.nulls['moved'].possible == 3
    # At the same positions of the other texts, all of which are the same, there are links.
    assert forward.nulls['positions'].links == 0
    assert np.isnan(forward.nulls['positions'].excess.mean).all() and not forward.real.any()
    (whole,) = bucket(encoded, max_length=32)
    maps = np.asarray(forward_of(pretrained.bert, pretrained.params, whole.inputs).attentions)
    for kind in ('moved', 'elsewhere'):
        places = draw_places(encoded.marks['file'], encoded, kind=kind, draws=99, seed=0)
        for title, reverse in (('file to target', False), ('target to file', True)):
            # Place by place, from the maps themselves.
            values = []
            for example in range(4):
                pairs = places.pairs[example]
                count = places.first[example + 1] - places.first[example]
                ends = pairs[:count, :2][:, ::-1] if reverse else pairs[:count, :2]
                values.append(maps[example][:, :, ends[:, 0], ends[:, 1]])
            values = np.concatenate(values, axis=-1)
            null, own = found[title].nulls[kind], values[..., places.own]
            np.testing.assert_allclose(null.score, own.mean(axis=-1), atol=1e-6)
            np.testing.assert_allclose(null.score, tables[title].mean, atol=1e-6)
            drawn = values[..., places.drawn]  # [L, N, X, K]
            np.testing.assert_allclose(null.mean, drawn.mean(axis=(-2, -1)), atol=1e-6)
            beyond = own - drawn.mean(axis=-1)
            np.testing.assert_allclose(null.excess.mean, beyond.mean(axis=-1), atol=1e-6)
            np.testing.assert_allclose(null.excess.variance, beyond.var(axis=-1, ddof=1), atol=1e-6)
            ninety_ninth = np.sort(drawn.mean(axis=-2), axis=-1)[..., 98]
            np.testing.assert_allclose(null.percentile_99, ninety_ninth, atol=1e-6)
            assert null.excess.count == 4 and null.links == 4


def test_links_without_other_places_are_told_once_for_all_relations(tokenizer, caplog):
    caplog.set_level('INFO', logger='absl')
    link = Link((Span(0, 3),), (Span(4, 7),))
    annotations = [Annotation({}, {'a-b': (link,), 'c-d': (link,)})] * 2
    encoded = mark(tokenize(tokenizer, ['the cat'] * 2, max_length=8), annotations)
    with_random_links(encoded, ['a-b', 'c-d'], kinds=iter(['moved']), draws=4, seed=0)
    told = [record.getMessage() for record in caplog.records if 'Random links' in record.message]
    assert told == ['Random links (moved): 4 of 4 links have no other place, and are not compared.']


def test_random_links_of_nothing_are_refused(encoded, untyped):
    with pytest.raises(ValueError, match="no relation 'verb', but file, nothing-here: bs.mark"):
        with_random_links(encoded, ['verb'], draws=1, seed=0)
    with pytest.raises(ValueError, match="kind='near' must be 'elsewhere', 'moved', "):
        with_random_links(encoded, RELATIONS, kinds=['near'], draws=1, seed=0)
    with pytest.raises(ValueError, match='no word classes: bs.annotate finds them'):
        with_random_links(encoded, RELATIONS, kinds=['classes'], draws=1, seed=0)
