"""Law 4: the same for batches of any size and order and on any number of devices."""

import dataclasses
import functools
import gc
import types

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.measure import statistics, stream
from bert_secrets_jax.measure.catalogue import collect
from tests.conftest import random_params
from tests.model import numpy_bert
from tests.probes.conftest import LETTERS

STATISTICS = {
    'cls': statistics.to_cls,
    'sep': statistics.to_sep,
    'special': statistics.to_special,
    'previous': statistics.to_previous,
    'next': statistics.to_next,
    'self': statistics.to_self,
    'entropy': statistics.entropy,
}


def written_out(maps, separators):
    """The formulas of `STATISTICS` for the maps [L, N, T, T] of a text, without padding."""
    received, along = maps.mean(axis=2), functools.partial(np.trace, maps, axis1=2, axis2=3)
    columns = received[:, :, separators]
    return {
        'cls': received[:, :, 0],
        'sep': columns.max(axis=2),
        'special': received[:, :, 0] + columns.sum(axis=2),
        'previous': along(-1) / maps.shape[-1],
        'next': along(1) / maps.shape[-1],
        'self': along(0) / maps.shape[-1],
        'entropy': -(maps * np.log(maps)).sum(axis=3).mean(axis=2),
    }


def first_of_four(attentions, marks):
    """A statistic that applies to some examples only: those of at least eight tokens."""
    applies = (marks['token'].sum() >= 8).astype(jnp.float32)
    # NaN where it does not apply, as a careless statistic might have it.
    return attentions[:, :, 0, 0] / applies, applies


@pytest.fixture(scope='module')
def examples():
    rng = np.random.default_rng(0)
    text = lambda: ' '.join(rng.choice(LETTERS, rng.integers(1, 9)))
    return [Example(text(), text(), id=f'random/{index}') for index in range(23)]


def encode_all(tokenizer, examples, **kwargs):
    # Several lengths of few examples each.
    kwargs = {'tokens_per_batch': 128, 'fewest': 1} | kwargs
    return encode(tokenizer, examples, max_length=24, **kwargs)


def assert_same(a, b, atol=2e-6):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].count == b[name].count
        np.testing.assert_allclose(a[name].mean, b[name].mean, atol=atol)
        np.testing.assert_allclose(a[name].variance, b[name].variance, atol=atol)


def test_equals_numpy_over_single_examples(config, pretrained, params, tokenizer, examples):
    """Every example alone and unpadded, through the NumPy model, with formulas written out."""
    measured = {name: [] for name in (*STATISTICS, 'some')}
    for example in examples:
        (batch,) = encode_all(tokenizer, [example])
        length = int(batch.lengths[0])
        inputs = [array[0, :length] for array in batch.inputs.values()]
        _, maps, _ = numpy_bert.forward(config, params, *inputs)
        for name, value in written_out(maps, inputs[0] == tokenizer.sep_token_id).items():
            measured[name].append(value)
        if length >= 8:
            measured['some'].append(maps[:, :, 0, 0])
    tables = collect(
        pretrained, encode_all(tokenizer, examples), STATISTICS | {'some': first_of_four},
        keep_values=True,
    )  # fmt: skip
    assert 0 < len(measured['some']) < len(examples)
    for name, values in measured.items():
        table, values = tables[name], np.stack(values)
        assert table.count == len(values) and table.values.shape == (23, 3, 4)
        # In the order of the examples, but for those to which it does not apply.
        applies = ~np.isnan(table.values).any(axis=(1, 2))
        np.testing.assert_allclose(table.values[applies], values, atol=2e-6)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        np.testing.assert_allclose(table.mean, values.mean(axis=0), atol=2e-6)
        np.testing.assert_allclose(table.variance, values.var(axis=0, ddof=1), atol=2e-6)
        np.testing.assert_allclose(table.standard_error, error, atol=2e-6)


@pytest.mark.slow
@hypothesis.given(
    tokens=st.sampled_from([24, 60, 128, 600]),
    buckets=st.sampled_from([(), (12,), (8, 16)]),
    order=st.randoms(use_true_random=False),
)
@hypothesis.settings(max_examples=8)
def test_batches_of_any_size_and_order(pretrained, tokenizer, examples, tokens, buckets, order):
    batches = encode_all(tokenizer, examples, tokens_per_batch=tokens, buckets=buckets)
    order.shuffle(batches)
    expected = collect(pretrained, encode_all(tokenizer, examples), STATISTICS)
    assert_same(collect(pretrained, batches, STATISTICS), expected)


def test_eight_devices(pretrained, tokenizer, examples, mesh):
    batches = encode_all(tokenizer, examples, batch_multiple=8)
    assert all(len(batch.example) % 8 == 0 for batch in batches)
    shared = collect(pretrained, batches, STATISTICS, mesh=mesh, keep_values=True)
    alone = collect(pretrained, encode_all(tokenizer, examples), STATISTICS, keep_values=True)
    assert_same(shared, alone)
    np.testing.assert_allclose(shared['sep'].values, alone['sep'].values, atol=2e-6)
    with pytest.raises(ValueError, match='does not split over 8 devices'):
        collect(pretrained, encode_all(tokenizer, examples[:3]), STATISTICS, mesh=mesh)


def test_a_head_mask_changes_the_maps_behind_it(pretrained, tokenizer, examples):
    batches = encode_all(tokenizer, examples)
    mask = np.ones((3, 4), np.float32)
    mask[1] = 0
    plain = collect(pretrained, batches, STATISTICS)['cls'].mean
    masked = collect(pretrained, batches, STATISTICS, head_mask=mask)['cls'].mean
    with pytest.raises(ValueError, match='A mask of heads has 5:'):
        collect(pretrained, batches, STATISTICS, head_mask=5 * mask)
    np.testing.assert_allclose(masked[:2], plain[:2], atol=2e-6)
    assert np.abs(masked[2] - plain[2]).max() > 1e-3


def test_statistics_that_do_not_fit(pretrained, tokenizer, examples):
    never = lambda attentions, marks: (attentions[:, :, 0, 0], jnp.float32(0))
    table = collect(pretrained, encode_all(tokenizer, examples), {'never': never})['never']
    assert table.count == 0 and np.isnan(table.mean).all() and np.isnan(table.variance).all()
    batches = encode_all(tokenizer, examples[:2])
    wrong = lambda attentions, marks: (attentions.mean(), jnp.float32(1))
    with pytest.raises(ValueError, match=r"'wrong' must return.*\[3, 4\].*got \[\] and \[\]"):
        collect(pretrained, batches, {'wrong': wrong})
    batches = encode_all(tokenizer, examples[:2]) + encode_all(tokenizer, examples[2:4])
    assert collect(pretrained, batches, STATISTICS)['cls'].count == 4
    with pytest.raises(ValueError, match='examples has 0 twice: give the batches of one call'):
        collect(pretrained, batches, STATISTICS, keep_values=True)


def test_a_reduction_sees_every_example_once(pretrained, tokenizer, examples):
    """Batches of several lengths with filler rows."""
    batches = encode_all(tokenizer, examples, tokens_per_batch=120, buckets=(8, 16))
    assert any((batch.example < 0).any() for batch in batches)
    seen = []
    reducer = types.SimpleNamespace(add=lambda *given: seen.append(given), result=lambda: 'all')
    reduction = stream.Reduction(statistics.to_sep, lambda: reducer)
    assert stream.stream((pretrained,), batches, {'mine': reduction}) == {'mine': 'all'}
    numbers, values = map(np.concatenate, zip(*seen, strict=True))
    assert sorted(numbers) == list(range(23))
    table = collect(pretrained, batches, ['[SEP]'], keep_values=True)['[SEP]']
    np.testing.assert_allclose(values, table.values[numbers], atol=2e-6)


def test_memory_does_not_grow_with_the_corpus(pretrained, tokenizer, examples):
    """A streamed run of many batches leaves no more arrays alive than a short one."""
    (batch,) = encode_all(tokenizer, examples[:2], buckets=())
    alive = []

    def from_corpus(count):
        for _ in range(count):
            alive.append(len(jax.live_arrays()))
            # New arrays on the device every time, as from a generator over a large corpus.
            yield dataclasses.replace(batch, input_ids=jnp.array(batch.input_ids))

    collect(pretrained, from_corpus(3), STATISTICS)
    gc.collect()
    alive.clear()
    collect(pretrained, from_corpus(60), STATISTICS)
    assert max(alive[10:]) <= max(alive[:10])


@pytest.mark.parametrize(
    ('wrong', 'error', 'message'),
    [
        ({'batches': []}, ValueError, 'no batches'),
        ({'statistics': '[SEP]'}, TypeError, 'this is a single one: give names'),
        ({'statistics': statistics.to_sep}, TypeError, 'this is a single one: give names'),
        ({'statistics': [statistics.to_sep]}, TypeError, 'A function has no name'),
        ({'statistics': {'sep': 3}}, TypeError, "'sep' is a int and no function: give names"),
        ({'statistics': ['[SP]']}, ValueError, r"no statistic '\[SP\]'. Did you mean .*\[SEP\]"),
        ({'statistics': ['[SEP]', '[SEP]']}, ValueError, r"has '\[SEP\]' twice: measure"),
        ({'statistics': ['cosine']}, ValueError, "'cosine' compares two models: bs.compare"),
        ({'statistics': []}, ValueError, 'There are no statistics'),
        ({'statistics': ['noun']}, ValueError, "no marks 'noun', but .*, sep, token, word: what"),
        ({'statistics': {'a': statistics.attention_to('spe')}}, ValueError, 'Did you mean sep'),
        ({'statistics': ['noun (notebook)']}, ValueError, "no marks 'notebook', but"),
        ({'baseline': 'mean'}, ValueError, "baseline='mean' replaces outputs, not maps"),
    ],
)
def test_mistakes_name_their_mend(pretrained, tokenizer, untyped, wrong, error, message):
    (batch,) = encode(tokenizer, ['the cat'])
    right = {'pretrained': pretrained, 'batches': [batch], 'statistics': ['[SEP]']}
    with pytest.raises(error, match=message) as raised:
        collect(**right | wrong)
    assert '\n' not in str(raised.value)


def test_heads_without_counterparts_are_told_in_words(model, tokenizer):
    shallow = bs.Bert(dataclasses.replace(model.config, num_hidden_layers=2))
    other = bs.Pretrained(shallow, random_params(shallow), tokenizer)
    words = 'first model has 3 layers of 4 heads, the second 2 layers of 4 heads'
    with pytest.raises(ValueError, match=words):
        bs.compare(model, other, bs.encode(tokenizer, ['a cat']), ['cosine'])
    with pytest.raises(ValueError, match=words):
        bs.analyses.attention_change(model, other, ['a cat'])
