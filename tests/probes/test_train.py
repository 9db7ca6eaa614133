"""Training: what is learnt in worlds whose maps are known, and what must change nothing."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_secrets_jax.finetune import loop
from bert_secrets_jax.measure.words import word_maps
from bert_secrets_jax.probes import evaluation, train
from bert_secrets_jax.probes.evaluation import RIGHT_BRANCHING, attach, scores
from bert_secrets_jax.probes.forms import (
    ATTENTION,
    ATTENTION_WORDS,
    FORMS,
    Sentence,
    Sizes,
    candidate_vectors,
)
from bert_secrets_jax.probes.train import train_probes
from tests.conftest import forward
from tests.probes.conftest import LETTERS, parse_of, random_parses

FEW = {'max_length': 32, 'seeds': 2}


def world(monkeypatch):
    """Make random maps; head L1-H2 points at governors, and at [SEP] for ROOT."""

    def maps_of(pretrained, parts, *, cache_mb=0):
        config = pretrained.config
        heads = config.num_hidden_layers * config.num_attention_heads

        def of_part(index):
            part = parts[index]
            rows, length = part.batch.input_ids.shape
            rng = np.random.default_rng(index)
            maps = rng.dirichlet(np.ones(length), (rows, heads, length))
            gold = part.words.heads
            target = np.where(gold == 0, length - 1, gold - 1)
            one = np.eye(length)[np.maximum(target, 0)] * (gold >= 0)[..., None]
            maps[:, 1, : length - 2] += 0.9 * (one - maps[:, 1, : length - 2])
            return jnp.asarray(maps, jnp.float32)

        return of_part

    monkeypatch.setattr(train, 'maps_of', maps_of)
    monkeypatch.setattr(evaluation, 'maps_of', maps_of)


def uas(attachment, name):
    return scores(attachment.right[name], attachment.words)


def test_a_head_that_points_at_governors_is_found(monkeypatch, model, vectors):
    world(monkeypatch)
    settings = {'vectors': vectors, 'max_length': 32}
    probes = train_probes(
        model, random_parses(0, 150), learning_rate=0.05, seeds=2, epochs=2, **settings
    )
    found = attach(model, probes, random_parses(1, 60), **settings)
    assert uas(found, 'attention')[0].min() > 0.97
    assert uas(found, 'attention and words')[0].min() > 0.9
    # The baseline reads no maps.
    assert uas(found, 'distances and words')[0].max() < 0.5
    # It is the head itself, in its direction, that has the weight.
    weights = probes.params['attention']['maps']
    assert (np.abs(weights).reshape(2, -1).argmax(axis=1) == 1).all()
    assert (weights[:, 0, 1] > 1).all()
    # Both halves are about the same sentences: batches are of one length, and long ones are harder.
    for curve in probes.curves.values():
        before, after = np.array_split(curve, 2, axis=1)
        assert (after.mean(axis=1) < before.mean(axis=1)).all()


def one_by_one(pretrained, parses, form, *, vectors, seed, learning_rate, order):
    """Train as the published code does, a sentence at a time and without padding."""
    rng = np.random.default_rng(order)
    parses = [parses[index] for index in rng.permutation(len(parses))]
    sizes = Sizes(pretrained.config.num_heads, vectors.width)
    params = form.init(jax.random.key(seed), sizes)
    optimizer = optax.adam(learning_rate)
    moments, losses = optimizer.init(params), []

    @jax.jit
    def gradient_of(params, one, heads):
        def loss_of(params):
            return optax.softmax_cross_entropy_with_integer_labels(
                form.scores(params, one), heads
            ).sum()

        return jax.value_and_grad(loss_of)(params)

    for parse in parses:
        heads = jnp.asarray([head + 1 for head in parse.heads])
        loss, gradient = gradient_of(params, alone(pretrained, parse, vectors), heads)
        updates, moments = optimizer.update(gradient, moments)
        params = optax.apply_updates(params, updates)
        losses.append(loss)
    return params, losses


def alone(pretrained, parse, vectors) -> Sentence:
    """Return what a probe reads of a sentence whose words are wordpieces."""
    encoded = pretrained.tokenizer(parse.example.text_a, return_tensors='np')
    inputs = {name: np.asarray(each, np.int32) for name, each in encoded.items()}
    maps = forward(pretrained.bert, pretrained.params, inputs).attentions
    length = maps.shape[-1]
    maps = maps.reshape(-1, length, length)
    # [CLS] comes first, and stands behind the words here.
    maps = word_maps(maps, np.array([length - 2, *range(length - 2), length - 1]), count=length)
    of_words = jnp.asarray(vectors.table[vectors.rows(parse.forms)])
    count = jnp.int32(length - 2)
    return Sentence(maps, of_words, *candidate_vectors(of_words, count), count)


def test_all_together_give_what_single_sentences_do(model, vectors):
    """Sentences of one length in the same order give the published training of each probe."""
    rng = np.random.default_rng(3)
    parses = [parse_of(rng.choice(LETTERS, 5).tolist(), [1, -1, 1, 2, 3]) for _ in range(12)]
    probes = train_probes(
        model, parses, vectors=vectors, seeds=(4, 8), learning_rate=0.01, max_length=32,
        tokens_per_batch=1024,
    )  # fmt: skip
    assert probes.steps == 12
    how = {'vectors': vectors, 'learning_rate': 0.01, 'order': 0}
    for (row, seed), form in itertools.product(enumerate((4, 8)), FORMS):
        params, losses = one_by_one(model, parses, form, seed=seed, **how)
        np.testing.assert_allclose(probes.curves[form.name][row], [np.sum(losses) / 60], rtol=1e-4)
        for ours, theirs in zip(
            jax.tree.leaves(probes.params[form.name]), jax.tree.leaves(params), strict=True
        ):
            # Adam's first steps are as long whatever the gradient, so that rounding shows.
            np.testing.assert_allclose(ours[row], theirs, atol=2e-3)
            assert np.median(np.abs(ours[row] - theirs)) < 1e-5
    alone = train_probes(model, parses, forms=(ATTENTION,), seeds=(8,), max_length=32)
    assert list(alone.params) == list(alone.curves) == ['attention']


def stop_at(monkeypatch, batch):
    """Kill trainings when they ask for the maps of their batch of this number."""
    original, asked = train.maps_of, []

    def maps_of(*args, **settings):
        source = original(*args, **settings)

        def counted(index):
            asked.append(index)
            if len(asked) > batch:
                raise KeyboardInterrupt
            return source(index)

        return counted

    monkeypatch.setattr(train, 'maps_of', maps_of)


def test_a_killed_training_goes_on_with_the_same_bits(
    monkeypatch, model, vectors, tmp_path, caplog
):
    settings = {'vectors': vectors, 'epochs': 2, 'tokens_per_batch': 64, **FEW}
    parses = random_parses(0, 12)
    whole = train_probes(model, parses, **settings)
    monkeypatch.setattr(loop, 'is_due', lambda *_: True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 3)
        train_probes(model, parses, **settings, folder=tmp_path)
    with caplog.at_level('INFO'):
        resumed = train_probes(model, parses, **settings, folder=tmp_path)
    assert 'Probes: 3 of ' in caplog.text
    # Finished work is read, and nothing is computed; nothing is read for another training.
    with monkeypatch.context() as patch:
        stop_at(patch, 0)
        again = train_probes(model, parses, **settings, folder=tmp_path)
        for change in ({'learning_rate': 0.1}, {'seeds': (0, 2)}, {'order': 1}):
            with pytest.raises(KeyboardInterrupt):
                train_probes(model, parses, **settings | change, folder=tmp_path)
    for probes in (resumed, again):
        assert probes.steps == whole.steps
        jax.tree.map(np.testing.assert_array_equal, dict(probes.params), dict(whole.params))
        jax.tree.map(np.testing.assert_array_equal, dict(probes.curves), dict(whole.curves))
    # Another order of the sentences gives others.
    other = train_probes(model, parses, **settings, order=1)
    assert np.abs(other.params['attention']['maps'] - whole.params['attention']['maps']).max() > 0


def test_several_sentences_of_an_update(model):
    """The gradient is that of all of them; a filler row is none of them, and no update."""
    parses = [parse_of(['cat', 'saw', 'dog'], [1, -1, 1])] * 5
    probes = train_probes(model, parses, batch_size=2, **FEW)
    assert probes.steps == 3
    filled = train_probes(model, parses, batch_size=8, **FEW)
    assert filled.steps == 1
    # The first step of Adam has the length of the learning rate.
    initial = np.stack(
        [ATTENTION.init(jax.random.key(seed), probes.sizes)['maps'] for seed in (0, 1)]
    )
    moved = np.abs(filled.params['attention']['maps'] - initial)
    np.testing.assert_allclose(moved, 2e-3, rtol=1e-2)


def test_kept_maps_are_maps(model, caplog):
    """Maps of several epochs are kept, or computed anew where they do not fit, to the rounding."""
    parses = random_parses(0, 16)
    kept = train_probes(model, parses, epochs=3, **FEW)
    with caplog.at_level('INFO'):
        anew = train_probes(model, parses, epochs=3, cache_mb=0.001, **FEW)
    assert 'they are computed in each epoch' in caplog.text
    assert kept.steps == anew.steps == 48
    np.testing.assert_allclose(
        kept.params['attention']['maps'], anew.params['attention']['maps'], atol=1e-3
    )
    assert kept.seen[-1] == 48


def test_words_without_wordpieces(model):
    """A word that is cut off is no candidate, and neither it nor its dependents are asked for."""
    parse = parse_of(['cat'] * 6, [5, 2, -1, 2, 2, 2], ['NOUN'] * 3 + ['PUNCT'] + ['NOUN'] * 2)
    (part,) = train.prepare(model, [parse], max_length=8, tokens_per_batch=64)
    assert part.words.count.tolist() == [6]
    cut = train.prepare(model, [parse], max_length=7, tokens_per_batch=64)
    (part,) = cut
    assert part.words.count.tolist() == [5]
    assert part.words.heads.tolist() == [[-1, 3, 0, 3, 3]]
    assert part.counted.tolist() == [[False, True, True, False, True]]
    assert part.words.pieces.tolist() == [[5, 0, 1, 2, 3, 4, 6]]
    counts = train.asked(cut, [parse])
    assert dataclasses.astuple(counts) == (6, 1, 1, 1) and counts.counted == 3


def test_right_branching(model):
    parses = [parse_of(['cat', 'saw', 'dog', '.'], [1, 2, -1, 2], [*['NOUN'] * 3, 'PUNCT'])]
    probes = train_probes(model, parses, **FEW)
    found = attach(model, probes, parses, max_length=32)
    assert found.words.tolist() == [3] and found.right[RIGHT_BRANCHING].tolist() == [[2]]


MINE = dataclasses.replace(ATTENTION, scores=lambda params, words: -params['maps'])
MARKS = [parse_of(['.', '.'], [-1, 0], ['PUNCT', 'PUNCT'])]


@pytest.mark.parametrize(
    ('settings', 'what'),
    [
        ({'epochs': 0}, 'epochs=0 must be a whole number from 1'),
        ({'seeds': 2.0}, 'seeds=2.0 must be a number of seeds'),
        ({'forms': ()}, 'There are no probes'),
        ({'forms': (ATTENTION, ATTENTION)}, 'a name of its own'),
        ({'forms': (ATTENTION_WORDS,)}, '"attention and words" reads word vectors'),
        ({'forms': [MINE], 'folder': '.'}, 'published probes only.* train attention without one'),
        ({'parses': []}, 'no sentences'),
        ({'parses': ['the cat ran']}, 'read_treebank'),
    ],
)
def test_what_does_not_fit_is_named(model, untyped, settings, what):
    given = {'parses': random_parses(0, 4)} | FEW | settings
    with pytest.raises((ValueError, TypeError), match=what):
        train_probes(model, given.pop('parses'), **given)


def test_a_loss_that_is_not_finite_is_named(model):
    params = jax.tree.map(lambda leaf: leaf * np.nan, model.params)
    with pytest.raises(loop.NonFiniteLossError, match='"attention" with seed 0 is nan at learning'):
        train_probes(dataclasses.replace(model, params=params), random_parses(0, 4), **FEW)


def test_nothing_to_attach(model, vectors):
    probes = train_probes(model, MARKS, **FEW)
    with pytest.raises(ValueError, match='No word of these sentences counts'):
        attach(model, probes, MARKS, max_length=32)
    with pytest.raises(ValueError, match='12 maps and vectors of 0 numbers, and are'):
        attach(model, probes, random_parses(0, 3), vectors=vectors, max_length=32)


def test_standard_errors_are_those_of_sentences():
    """Words of a sentence are right or wrong together: the residual of a sentence counts."""
    rng = np.random.default_rng(0)
    words = rng.integers(1, 20, 80).astype(np.float32)
    right = rng.binomial(words.astype(int), rng.random((2, 80))).astype(np.float32)
    found, errors = scores(right, words)
    np.testing.assert_allclose(found, right.sum(axis=1) / words.sum())
    residual = right - found[:, None] * words
    expected = np.sqrt((residual**2).sum(axis=1) * 80 / 79) / words.sum()
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
