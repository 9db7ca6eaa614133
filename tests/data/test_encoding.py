"""Batches lose nothing, mark the right tokens and have few shapes."""

import copy

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tokenizers

from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.data.encoding import encode, tokenize
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


def test_offsets_and_texts_of_a_pair_by_hand(tokenizer):
    # [CLS] the cat ##s [SEP] dog [SEP]
    encoded = tokenize(tokenizer, [pair('The cats', ' dog'), pair('a', 'a', index=1)])
    assert encoded.text.tolist() == [[-1, 0, 0, 0, -1, 1, -1], [-1, 0, -1, 1, -1, -1, -1]]
    assert encoded.offsets[0].tolist() == [[0, 0], [0, 3], [4, 7], [7, 8], [0, 0], [1, 4], [0, 0]]
    assert encoded.offsets.dtype == np.int32 and encoded.text.dtype == np.int8


def test_texts_do_not_come_from_token_types(tokenizer):
    # MPNet and RoBERTa have no second segment; the template of this one has none either.
    other = copy.deepcopy(tokenizer)
    other.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single='[CLS] $A [SEP]',
        pair='[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0',
        special_tokens=[('[CLS]', 2), ('[SEP]', 3)],
    )
    encoded = tokenize(other, [pair('the cat', 'dog')])
    assert encoded.token_type_ids.sum() == 0
    assert encoded.text.tolist() == [[-1, 0, 0, -1, 1, -1]]


def test_marks_follow_their_examples_into_batches(tokenizer):
    lengths = [3, 20, 1, 12, 5]
    examples = [pair('cat ' * n + 'ran', index=index) for index, n in enumerate(lengths)]
    # "ran" is linked to each "cat": as many pairs as cats.
    cats = [tuple(Span(4 * i, 4 * i + 3) for i in range(n)) for n in lengths]
    annotations = [
        Annotation(
            {'last': (Span(4 * n, 4 * n + 3),)},
            {'ran-cat': (Link((Span(4 * n, 4 * n + 3),), of_example),)},
        )
        for n, of_example in zip(lengths, cats, strict=True)
    ]
    batches = encode(
        tokenizer, examples, annotations=annotations, buckets=(8, 16), max_length=24,
        tokens_per_batch=48, batch_multiple=2,
    )  # fmt: skip
    seen = []
    for batch in batches:
        rows, length = batch.input_ids.shape
        assert batch.marks['last'].shape == (rows, length)
        most = max(n for n in lengths if n + 3 <= length)
        assert batch.marks['ran-cat'].shape == (rows, most, 3)
        for row, index in enumerate(batch.example):
            marked = np.flatnonzero(batch.marks['last'][row]).tolist()
            links = [link for link in batch.marks['ran-cat'][row].tolist() if link[2] >= 0]
            if index < 0:
                assert marked == [] and links == []
                continue
            seen.append(index)
            n = lengths[index]
            assert marked == [n + 1]
            assert links == [[n + 1, cat + 1, 0] for cat in range(n)]
    assert sorted(seen) == list(range(5)) and any((batch.example < 0).any() for batch in batches)


def test_without_annotations_there_are_the_usual_marks_only(tokenizer):
    (batch,) = encode(tokenizer, [pair('the cat')], max_length=8)
    assert batch.marks.keys() == {'token', 'cls', 'sep'}


def test_links_are_as_many_as_the_longest_example_of_a_bucket_has(tokenizer):
    texts = ['the cat ran .', ' '.join(['the cat saw a dog'] * 5)]
    examples = [Example(text, None, None, f'own/{row}') for row, text in enumerate(texts)]
    span = lambda start: Span(start, start + 3)
    few, many = Link((span(0),), (span(4),)), Link((span(0), span(4)), (span(18), span(22)))
    annotations = [Annotation({}, {'r': (link,)}) for link in (few, many)]
    short, long = encode(
        tokenizer, examples, annotations=annotations, max_length=32, buckets=(8, 32)
    )
    assert short.marks['r'].shape == (1, 1, 3) and long.marks['r'].shape[1] >= 4
    assert short.marks['r'][0].tolist() == [[1, 2, 0]]
