"""Batches lose nothing, mark the right tokens and have few shapes."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Example


def pair(a, b=None, index=0):
    return Example(a, b, None, f'test/{index}')


def test_one_pair_by_hand(tokenizer):
    (batch,) = encode(tokenizer, [pair('The cats .', 'dog')], max_length=10)
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
    assert tokens == [
        '[CLS]',
        'the',
        'cat',
        '##s',
        '.',
        '[SEP]',
        'dog',
        '[SEP]',
        '[PAD]',
        '[PAD]',
    ]
    assert batch.token_type_ids[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert batch.attention_mask[0].tolist() == [1] * 8 + [0] * 2
    assert np.flatnonzero(batch.marks['cls'][0]).tolist() == [0]
    assert np.flatnonzero(batch.marks['sep'][0]).tolist() == [5, 7]
    assert np.flatnonzero(batch.marks['token'][0]).tolist() == list(range(8))
    assert batch.example.tolist() == [0] and batch.lengths.tolist() == [8] and batch.size == 1


def test_a_single_sentence_has_one_separator(tokenizer):
    (batch,) = encode(tokenizer, [pair('the cat')], max_length=8)
    assert batch.marks['sep'].sum() == 1 and batch.token_type_ids.sum() == 0


def test_a_separator_written_in_a_text_is_not_marked(tokenizer):
    (batch,) = encode(tokenizer, [pair('the [SEP] cat [CLS]')], max_length=12)
    assert batch.marks['sep'].sum() == 1 and batch.marks['cls'].sum() == 1


def test_truncation_takes_from_the_longer_text(tokenizer):
    (batch,) = encode(tokenizer, [pair('the ' * 20, 'a dog')], max_length=10)
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
    assert tokens == ['[CLS]', *['the'] * 5, '[SEP]', 'a', 'dog', '[SEP]']


@hypothesis.given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    tokens=st.integers(1, 500),
    multiple=st.sampled_from([1, 2, 8]),
    buckets=st.sampled_from([(), (8, 16), (4, 12, 24, 100)]),
)
@hypothesis.settings(max_examples=40, deadline=None)
def test_every_example_is_in_exactly_one_row(tokenizer, lengths, tokens, multiple, buckets):
    examples = [pair('cat ' * length, index=index) for index, length in enumerate(lengths)]
    batches = encode(
        tokenizer, examples, max_length=26, tokens_per_batch=tokens, buckets=buckets,
        batch_multiple=multiple,
    )  # fmt: skip
    seen = np.concatenate([batch.example for batch in batches])
    assert sorted(seen[seen >= 0].tolist()) == list(range(len(examples)))
    assert sum(batch.size for batch in batches) == len(examples)
    edges = {edge for edge in buckets if edge < 26} | {26}
    for batch in batches:
        rows, length = batch.input_ids.shape
        assert length in edges and rows % multiple == 0
        filler = batch.example < 0
        assert (batch.lengths[filler] == 0).all()
        expected = [min(lengths[index] + 2, 26) for index in batch.example[~filler]]
        assert batch.lengths[~filler].tolist() == expected
        assert all(edge >= length for edge in edges if edge >= max(expected))
    # One shape per padded length: this is what bounds the number of compilations.
    assert len({batch.input_ids.shape for batch in batches}) == len(
        {batch.input_ids.shape[1] for batch in batches}
    )


def test_no_examples_and_mixed_examples_are_errors(tokenizer):
    with pytest.raises(ValueError, match='no examples'):
        encode(tokenizer, [])
    with pytest.raises(ValueError, match='the first such is test/1'):
        encode(tokenizer, [pair('a', 'b'), pair('a', index=1)])
