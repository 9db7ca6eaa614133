"""Roles of heads: on planted tables, on texts with rare words, and the tests within layers."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.roles import (
    RAREST,
    TWO_RAREST,
    Roles,
    compare_within_layers,
    from_results,
    labelled,
    rank_within_layers,
    with_rarest,
)
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.measure import statistics
from bert_secrets_jax.measure.catalogue import CONFIDENCE, GREATEST_AT_NEXT, GREATEST_AT_PREVIOUS
from bert_secrets_jax.measure.tables import HeadTable
from tests.analyses.conftest import flat_table as table


def roles_of(gains=(), **means):
    shape = (2, 3)
    tables = {
        name: table(means.get(key, np.zeros(shape)))
        for name, key in (
            (GREATEST_AT_PREVIOUS, 'previous'), (GREATEST_AT_NEXT, 'next'), (RAREST, 'rarest'),
            (TWO_RAREST, 'two'), (CONFIDENCE, 'confidence'),
        )
    }  # fmt: skip
    gains = np.zeros((2, 0, *shape)) if not len(gains) else np.asarray(gains)
    relations = tuple(f'relation {number}' for number in range(gains.shape[1]))
    return labelled(Roles(tables, (0.1, 0.2), relations, gains, {}))


def test_published_thresholds():
    gains = np.zeros((2, 2, 2, 3))
    gains[:, 1, 0, 2] = [0.12, 0.2]
    # In one part alone.
    gains[:, 0, 1, 0] = [0.05, 0.4]
    found = roles_of(
        gains,
        previous=[[0.95, 0.5, 0], [0.2, 0, 0]],
        next=[[0, 0.4, 0], [0, 0.9, 0]],
        rarest=[[0.6, 0, 0], [0, 0, 0.49]],
    )
    names = {role: np.argwhere(each).tolist() for role, each in found.of_heads.items()}
    assert names == {
        'positional': [[0, 0], [1, 1]], 'syntactic': [[0, 2]], 'rare token': [[0, 0]],
    }  # fmt: skip
    heads = found.frames()['heads']
    assert heads['roles'].tolist() == [
        'positional, rare token', '–', 'syntactic', '–', 'positional', '–',
    ]  # fmt: skip
    assert heads['relation'][2] == 'relation 1'
    assert heads['points_above_offset'][2] == pytest.approx(12)
    assert '3 of 6 heads' in str(found)


def test_what_chance_does_is_no_role():
    """Most words of few texts are the rarest: a head points to them, wherever it points."""
    rarest = [[0.9, 0.7, 0.5], [0.6, 0.3, 0.8]]
    few = roles_of(rarest=rarest)
    assert few.of_heads['rare token'].sum() == 5
    few = dataclasses.replace(few, chance=(0.75, 0.9))
    assert np.argwhere(few.of_heads['rare token']).tolist() == [[0, 0], [1, 2]]
    assert '75% of the ordinary tokens are the rarest' in str(few.notes())
    for spread, count in ((0.2, 10.0), (0.0, 1.0)):
        uncertain = HeadTable(np.array(rarest), np.full((2, 3), spread), count)
        found = dataclasses.replace(few, tables={**few.tables, RAREST: uncertain})
        assert not found.of_heads['rare token'].any()


def test_rare_words_of_texts(tokenizer):
    texts = ['the cat ran .', 'the dog ran .', 'the cat saw the teacher .', 'the dog saw a cat .']
    encoded = tokenize(tokenizer, bs.data.tasks.as_examples(texts), max_length=16)
    marked, chance = with_rarest(encoded)
    words = [tokenizer.convert_ids_to_tokens(row) for row in encoded.input_ids.tolist()]

    def names(mark):
        return [
            [word for word, is_marked in zip(row, marks, strict=True) if is_marked]
            for row, marks in zip(words, mark, strict=True)
        ]

    assert names(marked.marks[RAREST])[2:] == [['teacher'], ['a']]
    assert names(marked.marks[TWO_RAREST])[2] == ['saw', 'teacher']
    # Two words are equally rare.
    assert names(marked.marks[RAREST])[0] == ['ran']
    # Shares of all tokens but [CLS] and [SEP].
    shares = [
        sum(row) / (count - 2)
        for row, count in zip(marked.marks[RAREST].tolist(), encoded.lengths, strict=True)
    ]
    assert chance[0] == pytest.approx(np.mean(shares))
    assert set(encoded.marks) < set(marked.marks)


def test_where_the_greatest_attention_is():
    maps = np.zeros((1, 2, 6, 6), np.float32)
    # The first head looks back, the second at token 3.
    maps[0, 0, np.arange(1, 5), np.arange(0, 4)] = 0.8
    maps[0, 0, 0, 4] = maps[0, 0, 4, 4] = 0.1
    maps[0, 1, :5, 3] = 0.6
    maps[0, 1, :5, 4] = 0.4
    marks = {
        'token': np.arange(6) < 5, 'cls': np.arange(6) == 0, 'sep': np.arange(6) == 4,
        'rarest': np.arange(6) == 3, 'none': np.zeros(6, bool),
    }  # fmt: skip
    marks = {name: jnp.asarray(mark) for name, mark in marks.items()}
    maps = jnp.asarray(maps)
    back, weight = statistics.greatest_at_previous(maps, marks)
    np.testing.assert_allclose(back[0], [1, 0], atol=1e-6)
    assert weight == 1
    ahead, _ = statistics.greatest_at_next(maps, marks)
    np.testing.assert_allclose(ahead[0], [0, 1 / 3], atol=1e-6)
    rare, _ = statistics.greatest_at('rarest')(maps, marks)
    np.testing.assert_allclose(rare[0], [0, 1], atol=1e-6)
    assert statistics.greatest_at('none')(maps, marks)[1] == 0
    # [SEP] neither attends nor is attended to: the first token has nothing else.
    sure, _ = statistics.confidence(maps, marks)
    np.testing.assert_allclose(sure[0], [(0 + 3 * 0.8) / 4, 0.6], atol=1e-6)


def test_how_long_heads_with_a_role_stay():
    found = roles_of(previous=[[0.95, 0, 0], [0, 0, 0]])
    stays = np.array([[1, 0.5, 0.5], [0.5, 0, 0]])
    found = dataclasses.replace(found, stays={'gates': stays, 'gradient': 1 - stays})
    found = labelled(found)
    frame = found.frames()['stays']
    assert frame['order'].tolist() == ['gates', 'gradient']
    np.testing.assert_allclose(frame['share_longer'], [0.5, -0.5])
    assert frame['rank_with_heterogeneous'].isna().all()
    # Of three heads, one is the longest in a third of the permutations.
    np.testing.assert_allclose(frame['p_value'], 1 / 3, atol=0.02)
    assert found.findings()[1].sentence == (
        'Heads with a role stay longer than others of their layer in 0 of 2 orders of pruning.'
    )
    # Where no head has a role, or all have, nothing is said of them.
    nothing = dataclasses.replace(found, tables=roles_of().tables)
    assert len(labelled(nothing).findings()) == 1


def test_statistics_read_the_texts(model, texts, settings):
    found = bs.analyses.roles(model, texts, settings=settings)
    assert found.tables[RAREST].count == len(texts) and found.relations == ()
    assert 'No treebank was measured' in found.notes()[-1]


def test_results_of_another_model_are_refused(results):
    other = {name: table(np.zeros((2, 4))) for name in results['roles'].tables}
    with pytest.raises(ValueError, match=r'= \[2, 4\], got \[3, 4\]: give results of the same'):
        from_results(other, (0.1, 0.2), [results['pruning']], pruned_finetuned=True, seed=0)


def test_error_rate_and_power_within_layers():
    rng = np.random.default_rng(0)

    def rejected(lead, runs, test):
        found = []
        for run in range(runs):
            # Layers differ, and have more or fewer of the chosen heads.
            layers = rng.normal(size=(5, 1)) * 3
            chosen = rng.random((5, 8)) < rng.random((5, 1))
            values = layers + rng.normal(size=(5, 8)) + lead * chosen
            other = layers + chosen + rng.normal(size=(5, 8))
            other = chosen if test is compare_within_layers else other
            found.append(test(values, other, seed=run)[1] <= 0.05)
        return np.mean(found)

    for test in (compare_within_layers, rank_within_layers):
        assert rejected(0, 120, test) <= 0.11
    assert rejected(1.5, 25, compare_within_layers) >= 0.9
    assert np.isnan(
        compare_within_layers(np.ones((2, 3)), np.array([[1, 1, 1], [0, 0, 0]], bool), seed=0)
    ).all()


def test_the_comparison_is_that_of_means_within_layers():
    values = np.array([[1.0, 2.0, 3.0, 10.0], [5.0, 5.0, 6.0, 6.0]])
    chosen = np.array([[0, 0, 0, 1], [0, 0, 1, 1]], bool)
    difference, p_value = compare_within_layers(values, chosen, seed=0)
    # Weighted by what each layer has to compare: 3/4 and 1.
    assert difference == pytest.approx((0.75 * (10 - 2) + 1.0 * (6 - 5)) / 1.75)
    assert 0 < p_value < 1
