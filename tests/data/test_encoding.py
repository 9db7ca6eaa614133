"""Batches lose nothing, mark the right tokens and have few shapes."""

import collections
import copy
import inspect
import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax.data import encoding
from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.data.encoding import _stops, encode, mark, padded_lengths, tokenize
from bert_secrets_jax.data.tasks import Example
from tests.conftest import make_byte_tokenizer


def pair(a, b=None, index=0):
    return Example(a, b, id=f'test/{index}')


def test_one_pair_by_hand(tokenizer):
    (batch,) = encode(tokenizer, [pair('The cats .', 'dog')], max_length=10, buckets=())
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
    assert tokens == '[CLS] the cat ##s . [SEP] dog [SEP] [PAD] [PAD]'.split()
    assert batch.token_type_ids[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert batch.attention_mask[0].tolist() == [1] * 8 + [0] * 2
    assert np.flatnonzero(batch.marks['cls'][0]).tolist() == [0]
    assert np.flatnonzero(batch.marks['sep'][0]).tolist() == [5, 7]
    assert np.flatnonzero(batch.marks['token'][0]).tolist() == list(range(8))
    assert batch.example.tolist() == [0] and batch.lengths.tolist() == [8] and batch.size == 1
    # Truncation takes from the longer text.
    (batch,) = encode(tokenizer, [pair('the ' * 20, 'a dog')], max_length=10)
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
    assert tokens == ['[CLS]', *['the'] * 5, '[SEP]', 'a', 'dog', '[SEP]']


@hypothesis.given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    tokens=st.integers(1, 500),
    multiple=st.sampled_from([1, 2, 8]),
    buckets=st.sampled_from([(), (8, 16), (4, 12, 24, 100)]),
    fewest=st.sampled_from([1, 5]),
)
@hypothesis.settings(max_examples=40)
def test_every_example_is_in_exactly_one_row(tokenizer, lengths, tokens, multiple, buckets, fewest):
    examples = [pair('cat ' * length, index=index) for index, length in enumerate(lengths)]
    batches = encode(
        tokenizer, examples, max_length=26, tokens_per_batch=tokens, buckets=buckets,
        batch_multiple=multiple, fewest=fewest,
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
        if fewest == 1:
            assert all(edge >= length for edge in edges if edge >= max(expected))
    # Fewer are only of the longest that occurs.
    padded = collections.Counter()
    for batch in batches:
        padded[batch.input_ids.shape[1]] += batch.size
    assert all(count >= fewest for length, count in padded.items() if length < max(padded))
    # One shape per padded length: this is what bounds the number of compilations.
    assert len({batch.input_ids.shape for batch in batches}) == len(padded)


@hypothesis.given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=200),
    copies=st.sampled_from([1, 50]),
    max_length=st.sampled_from([50, 51, 512]),
    passes=st.sampled_from([1.0, 16.0]),
)
@hypothesis.settings(max_examples=60)
def test_chosen_lengths_cost_least(lengths, copies, max_length, passes):
    """Beside all other choices: tokens, and for each length 8,192 a pass or one in 64."""
    lengths = np.repeat(lengths, copies)
    candidates = np.unique(np.minimum(-(-lengths // 4) * 4, max_length))
    price = max(8192 / passes, np.minimum(-(-lengths // 4) * 4, max_length).sum() / 64)

    def cost(edges):
        edges = np.array(sorted(edges))
        return edges[np.searchsorted(edges, lengths)].sum() + price * len(edges)

    *shorter, longest = candidates
    best = min(
        cost([*chosen, longest])
        for count in range(len(shorter) + 1)
        for chosen in itertools.combinations(shorter, count)
    )
    edges = padded_lengths(None, max_length, lengths, passes=passes)
    assert edges[-1] == max_length
    assert cost(set(edges[np.searchsorted(edges, lengths)])) == pytest.approx(best)


def test_no_public_function_cuts_by_default():
    """Segments are made as long as that, and recipes of training say what they cut."""
    lengths = {}
    for home in (bs, bs.analyses):
        for name in home.__all__:
            value = getattr(home, name)
            parameters = inspect.signature(value).parameters if callable(value) else {}
            if 'max_length' in parameters:
                lengths[name] = parameters['max_length'].default
    others = {'read_segments', 'FinetuneConfig', 'GateConfig'}
    assert {'Compute', 'TextSettings', 'encode', 'attention_maps', 'mask_words'} <= set(lengths)
    assert {name for name, length in lengths.items() if isinstance(length, int)} <= others


def test_what_is_cut_is_said_and_what_is_too_long_is_refused(checkpoint, monkeypatch):
    told = []
    monkeypatch.setattr(logging, 'warning', lambda text, *values: told.append(text % values))
    model = bs.from_pretrained(checkpoint)
    most = model.config.max_length
    texts = ['the cat', 'the ' * (most - 2), 'the ' * most]

    def read(texts, **how):
        found = [encode(model.tokenizer, texts, **how)]
        found.append(list(bs.stream_batches(model.tokenizer, texts, **how)))
        return [max(batch.input_ids.shape[1] for batch in batches) for batches in found]

    for how in ({}, {'max_length': None}, {'max_length': most + 9}):
        with pytest.raises(ValueError, match=f'text/2 has more than the {most} .*={most} to cut'):
            read(texts, **how)
    assert read(texts[:2]) == [most, most] and not told
    assert read(texts, max_length=8) == [8, 8]
    assert told == ['2 of 3 examples were cut to 8 tokens.'] * 2
    compute = bs.Compute(max_length=8)
    scores = bs.token_scores(model, texts, methods=('random',), compute=compute)
    assert scores.cut.tolist() == [False, True, True]
    maps = bs.attention_maps(model, texts, max_length=8)
    assert [each.of_words().cut for each in maps] == [False, True, True]
    # A tokenizer alone knows no model, whose positions then say it.
    alone = copy.copy(model.tokenizer)
    del alone.reads
    with pytest.raises(ValueError, match=f'the model has {most} positions'):
        bs.sweep(model, encode(alone, texts), bs.masks.none(model.config))


def test_what_is_refused(tokenizer, byte_tokenizer, untyped):
    other = copy.deepcopy(byte_tokenizer)
    other.sep_token = None
    for error, fault, call, *given in (
        (ValueError, 'no examples', encode, tokenizer, []),
        (ValueError, 'such is test/1', encode, tokenizer, [pair('a', 'b'), pair('a', index=1)]),
        (ValueError, 'The tokenizer has no sep_token', encode, other, [pair('the cat')]),
        (ValueError, r"/1 has '\\ud83d', half .* text.enc", encode, tokenizer, ['the', 'a \ud83d']),
        (TypeError, 'this is a single str: give a list', tokenize, tokenizer, 'the cat'),
    ):
        with pytest.raises(error, match=fault):
            call(*given)
    for of, texts, least, parts in (
        (tokenizer, [pair('the', 'a')], 5, r'\[CLS\] A \[SEP\] B \[SEP\]'),
        (byte_tokenizer, [pair('the', 'a')], 6, ''),
        (tokenizer, ['the'], 3, r'\[CLS\] A \[SEP\]:'),
    ):
        assert encode(of, texts, max_length=least)
        with pytest.raises(ValueError, match=f'max_length={least - 1} has no room for {parts}'):
            encode(of, texts, max_length=least - 1)


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
        tokenizer, examples, annotations=annotations, buckets=(8, 16), max_length=24, fewest=1,
        tokens_per_batch=48, batch_multiple=2,
    )  # fmt: skip
    whole, seen = mark(tokenize(tokenizer, examples, max_length=24), annotations).marks, []

    def facts(marks, row):
        for each in (marks, marks['notebook']):
            links = each['ran-cat'][row]
            yield np.flatnonzero(each['last'][row]).tolist(), links[links[:, 2] >= 0].tolist()

    for batch in batches:
        # As many links as the example with the most of them has.
        most = max(n for n in lengths if n + 3 <= batch.input_ids.shape[1])
        assert batch.marks['ran-cat'].shape[1] == most
        for row, index in enumerate(batch.example):
            expected = [([], [])] * 2 if index < 0 else list(facts(whole, index))
            assert list(facts(batch.marks, row)) == expected
        seen += batch.example.tolist()
    assert set(seen) == {-1, *range(5)}


@pytest.fixture(scope='module')
def plain_byte_tokenizer(tmp_path_factory):
    """The same without RoBERTa's class, which cuts the space off the offsets by itself."""
    directory = tmp_path_factory.mktemp('plain_byte_tokenizer')
    return make_byte_tokenizer(directory, 'PreTrainedTokenizerFast')


@pytest.fixture(params=['byte_tokenizer', 'plain_byte_tokenizer'])
def bytewise(request):
    return request.getfixturevalue(request.param)


def test_a_pair_of_roberta_by_hand(bytewise):
    """Two separators between the texts, and one that somebody wrote, which is none."""
    (batch,) = encode(bytewise, [pair('the dog </s>', 'a cat')], max_length=12)
    assert bytewise.convert_ids_to_tokens(batch.input_ids[0].tolist()) == [
        '<s>', 'the', 'Ġdog', 'Ġ', '</s>', '</s>', '</s>', 'a', 'Ġcat', '</s>', '<pad>', '<pad>'
    ]  # fmt: skip
    assert np.flatnonzero(batch.marks['cls'][0]).tolist() == [0]
    assert np.flatnonzero(batch.marks['sep'][0]).tolist() == [5, 6, 9]
    assert batch.marks['token'][0].sum() == batch.lengths[0] == 10
    assert batch.token_type_ids.sum() == 0
    assert (batch.input_ids[0, 10:] == bytewise.pad_token_id).all() and bytewise.pad_token_id == 1


def test_texts_and_offsets_of_roberta_by_hand(bytewise):
    """Offsets are of the words, not of the spaces before them; a character may have two pieces."""
    encoded = tokenize(bytewise, [pair('the  dog née', ' the cat')])
    tokens = bytewise.convert_ids_to_tokens(encoded.input_ids[0].tolist())
    texts = ('the  dog née', ' the cat')
    spelled = [
        (token, texts[text][start:end])
        for token, text, (start, end) in zip(
            tokens, encoded.text[0], encoded.offsets[0], strict=True
        )
        if text >= 0
    ]
    assert spelled == [
        ('the', 'the'), ('Ġ', ''), ('Ġdog', 'dog'), ('Ġn', 'n'), ('Ã', 'é'), ('©', 'é'), ('e', 'e'),
        ('Ġthe', 'the'), ('Ġcat', 'cat'),
    ]  # fmt: skip
    assert encoded.text[0].tolist() == [-1, *[0] * 7, -1, -1, 1, 1, -1]
    assert (encoded.offsets[0][encoded.text[0] < 0] == 0).all()


def test_bytes_that_a_wordpiece_spells(tokenizer, byte_tokenizer):
    """Of all that is kept, without spaces and the share of [UNK]."""
    for of, text, expected in (
        (tokenizer, 'the cat saw', 9 / 3), (tokenizer, 'the cat ' * 9, 18 / 6),
        (tokenizer, 'the cat 猫', 9 / 3 * 2 / 3), (tokenizer, ('the cat', 'a dog'), 6 / 2),
        (byte_tokenizer, '猫', 3 / 3),
    ):  # fmt: skip
        examples = encoding.as_examples([text])
        encoded = tokenize(of, examples, max_length=8)
        assert encoding.bytes_of_pieces(encoded, examples) == expected


@pytest.mark.parametrize(
    'text', ['the cat ' * 20_000, ' ' * 300_000 + 'the cat saw', 'a' * 300_000, 'cat\n' * 20_000]
)
def test_very_long_texts_have_the_tokens_that_they_have_as_a_whole(tokenizer, monkeypatch, text):
    found = tokenize(tokenizer, [(text, 'a dog'), ('the', text)], max_length=16)
    monkeypatch.setattr(encoding, '_CHARACTERS_PER_TOKEN', 10**9)
    whole = tokenize(tokenizer, [(text, 'a dog'), ('the', text)], max_length=16)
    np.testing.assert_array_equal(found.input_ids, whole.input_ids)
    np.testing.assert_array_equal(found.offsets, whole.offsets)


@pytest.mark.parametrize('kind', ['tokenizer', 'byte_tokenizer'])
def test_they_are_all_that_decode_as_such(request, kind):
    of = request.getfixturevalue(kind)
    decoded = {number: of.decode([number]).strip() for number in range(len(of))}
    expected = {number for number, text in decoded.items() if text in ('.', ',')}
    assert set(_stops(of)) == expected and expected
