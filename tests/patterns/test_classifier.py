"""The classifier of patterns: images, training, judging, and what ships."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import bert_secrets_jax as bs
from bert_secrets_jax.measure.catalogue import measure
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import (
    Classifier,
    judge_maps,
    load_classifier,
    pattern_statistics,
    save_classifier,
)
from bert_secrets_jax.patterns.features import NUMBER
from tests.conftest import random_params, rarely, relative
from tools.patterns.maps import MapSample, features_of, predict


def _marks(length, padded, first=None):
    places = np.arange(padded)
    separators = {length - 1} | ({first - 1} if first else set())
    return {
        'token': jnp.asarray(places < length),
        'sep': jnp.asarray(np.isin(places, list(separators))),
    }


@pytest.mark.parametrize(
    ('model_type', 'pairs'),
    rarely([('bert', True), ('bert', False), ('roberta', True)], often=[('bert', False)]),
)
def test_all_heads_in_one_pass(config, tokenizer_of, model_type, pairs, mesh):
    """On eight devices, filled up, the network says of each map what it says of it alone."""
    classifier = _random_classifier()
    bert = bs.Bert(relative(config, model_type))
    params, tokenizer = random_params(bert), tokenizer_of(model_type)
    texts = [('the cat saw a dog', 'it ran'), ('a big bird', 'the house'), ('he', 'she and he ran')]
    examples = [
        bs.Example(first, second if pairs else None, None, f'own/{index}')
        for index, (first, second) in enumerate(texts)
    ]
    batches = bs.encode(tokenizer, examples, buckets=(16,), max_length=24, batch_multiple=8)

    def logits(attentions, marks):
        return judge_maps(classifier, attentions, marks)[..., :-1], jnp.ones(())

    statistics = {'logits': logits, 'pattern': bs.patterns.pattern(classifier)}
    pretrained = bs.Pretrained(bert, params, tokenizer)
    # Described, in any choice and order: one network for all.
    described = pattern_statistics(classifier)
    found = measure(
        pretrained, batches, described[::-2], also=statistics, mesh=mesh, keep_values=True
    )
    for example, maps in zip(examples, bs.attention_maps(pretrained, examples), strict=True):
        heads = list(np.ndindex(maps.attentions.shape[:2]))
        first = list(maps.tokens).index(tokenizer.sep_token) + 1
        alone = MapSample(
            [maps.attentions[place] for place in heads],
            np.full(len(heads), first), *[np.zeros(len(heads), int)] * 5,
        )  # fmt: skip
        here = found['logits'].values[examples.index(example)]
        np.testing.assert_allclose(here, predict(classifier, alone).reshape(here.shape), atol=1e-4)
    np.testing.assert_array_equal(
        found['pattern'].values, np.eye(len(CLASSES))[found['logits'].values.argmax(axis=-1)]
    )
    np.testing.assert_allclose(found['pattern'].mean.sum(axis=-1), 1, atol=1e-6)
    assert list(found)[:3] == ['pattern: unlike', 'pattern: block', 'pattern: diagonal']
    for name in list(found)[1:3]:
        place = CLASSES.index(name.removeprefix('pattern: '))
        np.testing.assert_array_equal(found[name].mean, found['pattern'].mean[..., place])
        assert described[place].classifier is classifier and described[place].limits == (0, 1)


@pytest.fixture(scope='module')
def classified():
    """What the random classifier says of maps, in one compiled program."""
    classifier = _random_classifier()
    return jax.jit(lambda maps, marks: judge_maps(classifier, maps, marks)[..., :-1])


def test_change_of_class(classified):
    rng = np.random.default_rng(4)
    before, after = (
        jnp.asarray(rng.dirichlet(np.ones(12) / 8, (2, 3, 12)), jnp.float32) for _ in range(2)
    )
    after = after.at[0].set(before[0])
    marks = _marks(12, 12, first=5)
    value, weight = jax.jit(bs.patterns.pattern_change(_random_classifier()))(before, after, marks)
    of = lambda maps: classified(maps, marks).argmax(axis=-1)
    np.testing.assert_array_equal(value[..., :-1].argmax(axis=-1), of(after))
    np.testing.assert_array_equal(value[..., -1], of(before) != of(after))
    assert (value[0, :, -1] == 0).all()
    assert weight == 1


def test_a_single_text_is_one_text(classified):
    """Without a separator too, as in tokenizers that have none."""
    maps = jnp.asarray(np.random.default_rng(5).dirichlet(np.ones(12), (2, 3, 12)), jnp.float32)
    found = classified(maps, _marks(12, 12))
    bare = _marks(12, 12) | {'sep': jnp.zeros(12, bool)}
    np.testing.assert_array_equal(found, classified(maps, bare))
    assert not np.array_equal(found, classified(maps, _marks(12, 12, first=4)))


def _random_classifier(seed: int = 7) -> Classifier:
    rng = np.random.default_rng(seed)
    number = NUMBER
    return Classifier(
        center=rng.normal(size=number).astype(np.float32),
        scale=rng.uniform(0.5, 2, number).astype(np.float32),
        known=rng.normal(size=(30, number)).astype(np.float32),
        weights=rng.normal(size=(30, len(CLASSES))).astype(np.float32),
        width=0.003,
    )


def test_a_classifier_is_read_back(tmp_path):
    path = tmp_path / 'classifier.safetensors'
    for far in (0.5, float('inf')):
        wrote = dataclasses.replace(
            _random_classifier(), temperature=0.3, far=far, confusions=np.eye(5, dtype=int)[None]
        )
        save_classifier(path, wrote)
        read = load_classifier(path)
        for field in dataclasses.fields(Classifier):
            np.testing.assert_array_equal(getattr(read, field.name), getattr(wrote, field.name))
    *data, last = path.read_bytes()
    path.write_bytes(bytes([*data, last ^ 1]))
    with pytest.raises(ValueError, match=r'classifier\.safetensors'):
        load_classifier(path)


def test_other_files_are_no_classifiers(tmp_path):
    path = tmp_path / 'other.safetensors'
    path.write_bytes(b'nothing of the kind')
    with pytest.raises(ValueError, match='is no safetensors file'):
        load_classifier(path)
    numbers = {'width': '0.1', 'temperature': '1', 'far': 'null'}
    about = {'classes': json.dumps(CLASSES), **numbers, 'confusions': '[]'}
    for metadata in ({}, about | {'classes': '['}, about | {'classes': '["a"]'}, {'classes': '[]'},
                     about | {'side': '32'}):  # fmt: skip
        safetensors.numpy.save_file({'kernel': np.zeros(3)}, path, metadata)
        with pytest.raises(ValueError, match='is no classifier of vertical'):
            load_classifier(path)
    made = _random_classifier()
    arrays = {name: getattr(made, name) for name in ('center', 'scale', 'known', 'weights')}
    less = {name: array for name, array in arrays.items() if name != 'scale'}
    for damaged in (
        less, less | {'scale': made.scale[:-1]}, arrays | {'a': np.zeros(3)},
        arrays | {'weights': made.weights.astype(np.float64)},
        arrays | {'known': made.known[:-1]}, arrays | {'known': made.known * np.nan},
    ):  # fmt: skip
        safetensors.numpy.save_file(damaged, path, about)
        with pytest.raises(ValueError, match='has not the weights of this version'):
            load_classifier(path)
    wrong_tables = [{'confusions': table} for table in ('[[1]', '[[1, 2]]', '[[[1, 2]]]')]
    for wrong in ({'width': '0'}, {'temperature': '"a"'}, {'width': 'null'}, {'far': 'true'},
                  *wrong_tables):  # fmt: skip
        safetensors.numpy.save_file(arrays, path, about | wrong)
        with pytest.raises(ValueError, match='is damaged'):
            load_classifier(path)
    safetensors.numpy.save_file(arrays, path, about)
    assert load_classifier(path).far == np.inf


def test_an_even_map_has_no_pattern():
    """Its features are sums that cancel: rounding must not become a column or a diagonal."""
    lengths = np.array([1, 2, 3, 9, 20])
    even = [np.full((length, length), 1 / length, np.float32) for length in lengths]
    seen = features_of(MapSample(even, np.minimum(lengths, 2), *[np.zeros(5, int)] * 5))
    assert np.isfinite(seen).all()
    # A deviation below a millionth counts as one, on each of three scales.
    number = (NUMBER - 61) // 3
    for scale in range(3):
        np.testing.assert_allclose(np.exp(seen[2:, scale * number + 1]), 1e-6, rtol=0.5)
