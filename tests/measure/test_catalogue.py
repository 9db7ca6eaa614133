"""The catalogue: what stands in it, one's own statistics, functions of several, changes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.data.encoding import bucket, mark, tokenize
from bert_secrets_jax.measure import catalogue, statistics
from bert_secrets_jax.measure.catalogue import (
    CATALOGUE,
    Described,
    collect,
    compare,
    named,
    relation,
)
from bert_secrets_jax.measure.stream import stream


def first_column(attentions, marks):
    return attentions[:, :, :, 0].mean(axis=-1), marks['cls'].any().astype('float32')


def of_both(before, after, marks):
    return (after - before).mean(axis=(-2, -1)), marks['cls'].any().astype('float32')


MINE = Described('mine', 'attention to mine', first_column, unit='share of attention')
NO_FUNCTION = 3


def takes_too_much(attentions, marks, more, still_more):
    raise NotImplementedError


@pytest.mark.parametrize('described', CATALOGUE.values(), ids=lambda each: each.name)
def test_every_entry_says_what_it_is(described):
    """Their names, which published results have, are those of `docs/glossary.py`."""
    least, greatest = described.limits
    assert described.title and described.unit and described.source and least < greatest
    assert described.reading == ('notebook' if 'notebook' in described.title else 'paper')
    assert described.annotated == bool(described.features or described.relations)
    assert CATALOGUE['entropy (nats)'].limits == (0, math.inf)
    assert hash(described) == hash(dataclasses.replace(described))


def test_ones_own():
    mine = named('tests.measure.test_catalogue:first_column')
    assert (mine.name, mine.title) == ('tests.measure.test_catalogue:first_column', 'first column')
    assert (mine.unit, mine.limits) == ('value', (-math.inf, math.inf))
    assert mine.function is first_column and not mine.pairwise
    assert named('tests.measure.test_catalogue:of_both').pairwise
    assert named('tests.measure.test_catalogue:MINE') is MINE
    assert not CATALOGUE['[SEP]'].annotated and not CATALOGUE['from [CLS] to [SEP]'].annotated
    assert CATALOGUE['negation (notebook)'].features == ('negation_word', 'negation_substring')
    assert CATALOGUE['subject to verb (notebook)'].relations == ('verb-nsubj',)
    # Nobody knows what a function reads.
    assert named('tests.measure.test_catalogue:first_column').annotated


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('entropy', r"no statistic 'entropy'. Did you mean entropy \(nats\)\? list\(bs"),
        ('xyzzy', r"no statistic 'xyzzy'. list\(bs.catalogue.CATALOGUE\) has all names"),
        ('no.such.module:it', "there is no module 'no.such.module'.*PYTHONPATH"),
        (':it', "There is no statistic ':it'"),
        (
            'tests.measure.test_catalogue:first_colum',
            "test_catalogue has no 'first_colum'. Did you mean first_column",
        ),
        ('tests.measure.test_catalogue:NO_FUNCTION', 'is a int and no function of maps and marks'),
        ('tests.measure.test_catalogue:Described', 'is a type and no function'),
        ('tests.measure.test_catalogue:takes_too_much', 'takes 4 arguments: it should take'),
        ('bert_secrets_jax.measure.statistics:attention_to', 'takes 1 arguments'),
    ],
)
def test_names_of_nothing(name, message):
    with pytest.raises(ValueError, match=message):
        named(name)


def test_a_module_that_lacks_another_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / 'lacking_one.py').write_text('import not_there_at_all\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match='not_there_at_all'):
        named('lacking_one:it')


def test_relations_of_ones_own():
    forward, back = relation('cause-effect'), relation('cause-effect', reverse=True)
    assert (forward.name, back.name) == ('cause to effect', 'effect to cause')
    assert relation('path').title == 'attention from path to target'
    theirs = relation('cause-effect', reading='notebook')
    assert theirs.name == 'cause to effect (notebook)' and theirs.reading == 'notebook'
    assert relation('verb-subject') == CATALOGUE['verb to subject']


@pytest.fixture(scope='module')
def annotated(tokenizer):
    """Nine texts: nouns in all, verbs in some, links in some."""
    texts = ['the cat ran', 'a dog saw the bird', 'he', 'big cat , small house', 'she ran'] * 2
    nouns, verbs = ('cat', 'dog', 'bird', 'house'), ('ran', 'saw')
    annotations = []
    for text in texts:
        span = lambda word, text=text: Span(text.index(word), text.index(word) + len(word))
        found = {
            'noun': tuple(span(word) for word in nouns if word in text),
            'verb': tuple(span(word) for word in verbs if word in text),
        }
        links = tuple(Link((verb,), found['noun'][:1]) for verb in found['verb'] if found['noun'])
        annotations.append(Annotation(found, {'verb-noun': links}))
    return mark(tokenize(tokenizer, texts, max_length=16), annotations)


def entropy_and_confidence(attentions, marks):
    both = statistics.entropy(attentions, marks), statistics.confidence(attentions, marks)
    return jnp.stack([value for value, _ in both], axis=-1), both[0][1]


def test_a_function_of_several_statistics_is_computed_once(pretrained, annotated, monkeypatch):
    seen = []

    def spy(models, batches, functions, **options):
        seen.append(functions)
        return stream(models, batches, functions, **options)

    monkeypatch.setattr(catalogue, 'stream', spy)
    described = [
        Described(name, name, entropy_and_confidence, part=part)
        for part, name in enumerate(['mine', 'also mine'])
    ]
    batches = bucket(annotated, max_length=16)
    compare(pretrained, pretrained, batches, described)
    alone = {'entropy': statistics.entropy, 'confidence': statistics.confidence}
    alone = collect(pretrained, batches, alone, keep_values=True)
    for found in (
        collect(pretrained, batches, [*described, named('noun')], keep_values=True),
        collect(pretrained, batches, {each.name: each for each in described}, keep_values=True),
    ):
        for name, expected in zip(('mine', 'also mine'), alone.values(), strict=True):
            assert found[name].count == expected.count
            np.testing.assert_allclose(found[name].values, expected.values, atol=1e-7)
            np.testing.assert_allclose(found[name].mean, expected.mean, atol=1e-7)
    # The second model and the change; two by name; the one with nouns; two by name.
    assert [len(functions) for functions in seen] == [2, 2, 2, 2]


def test_what_changes(pretrained, annotated):
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 1.5 if path[-1].key == 'kernel' else leaf, pretrained.params
    )
    after = dataclasses.replace(pretrained, params=params)
    batches = bucket(annotated, max_length=16)
    found = compare(pretrained, after, batches, ['noun', 'cosine', 'verb'], keep_values=True)
    assert list(found) == ['noun', 'change of noun', 'cosine', 'verb', 'change of verb']
    first, second = (
        collect(model, batches, ['noun', 'verb'], keep_values=True) for model in (pretrained, after)
    )
    mine = compare(pretrained, after, batches, {'mine': statistics.cosine})
    np.testing.assert_array_equal(mine['mine'].mean, found['cosine'].mean)
    for name in ('noun', 'verb'):
        np.testing.assert_allclose(found[name].values, second[name].values, atol=1e-6)
        change = second[name].values - first[name].values
        np.testing.assert_allclose(found[f'change of {name}'].values, change, atol=1e-6)
        assert np.nanmax(np.abs(change)) > 1e-3
    described = catalogue.changed(named('entropy (nats)'))
    assert described.title == 'change of entropy of attention' and not described.least_first
    assert described.limits == (-math.inf, math.inf) and described.pairwise
    assert catalogue.changed(named('noun')).limits == (-1, 1)
    with pytest.raises(ValueError, match="'cosine' compares two models already"):
        catalogue.changed(named('cosine'))
