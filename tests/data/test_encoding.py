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
from bert_secrets_jax.data.encoding import _stops, encode, listed, padded_lengths, tokenize
from bert_secrets_jax.data.masking import Masking, mask_words
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
    assert len({batch.input_ids.shape for batch in batches}) == len(
        {batch.input_ids.shape[1] for batch in batches}
    )


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
    read = {
        'encode': lambda texts, **how: encode(model.tokenizer, texts, **how),
        'stream': lambda texts, **how: list(bs.stream_batches(model.tokenizer, texts, **how)),
        'maps': lambda texts, **how: bs.attention_maps(model, texts, **how),
        'scores': lambda texts, **how: bs.token_scores(
            model, texts, methods=('random',), compute=bs.Compute(**how)
        ),
    }
    for each in read.values():
        for how in ({}, {'max_length': None}, {'max_length': most + 9}):
            with pytest.raises(
                ValueError, match=f'text/2 has more than the {most} .*={most} to cut'
            ):
                each(texts, **how)
    assert [len(maps.tokens) for maps in read['maps'](texts[:2])] == [4, most]
    assert max(batch.input_ids.shape[1] for batch in read['encode'](texts[:2])) == most
    assert max(batch.input_ids.shape[1] for batch in read['stream'](texts[:2])) == most
    assert not told
    for each in read.values():
        found = each(texts, max_length=8)
        assert told.pop() == '2 of 3 examples were cut to 8 tokens.' and not told
        if isinstance(found, bs.TokenScores):
            assert found.cut.tolist() == [False, True, True]
        elif isinstance(found[0], bs.TokenMaps):
            assert [each.of_words().cut for each in found] == [False, True, True]
    # A tokenizer alone knows no model, whose positions then say it.
    alone = copy.copy(model.tokenizer)
    del alone.reads
    with pytest.raises(ValueError, match=f'the model has {most} positions'):
        bs.sweep(model, encode(alone, texts), bs.masks.none(model.config))


def test_what_is_refused(tokenizer, byte_tokenizer, untyped):
    with pytest.raises(ValueError, match='no examples'):
        encode(tokenizer, [])
    with pytest.raises(ValueError, match='the first such is test/1'):
        encode(tokenizer, [pair('a', 'b'), pair('a', index=1)])
    other = copy.deepcopy(byte_tokenizer)
    other.sep_token = None
    with pytest.raises(ValueError, match='The tokenizer has no sep_token'):
        encode(other, [pair('the cat')])
    for of, least in ((tokenizer, 5), (byte_tokenizer, 6)):
        assert encode(of, [pair('the', 'a')], max_length=least)
        with pytest.raises(ValueError, match=rf'max_length={least - 1} has no room'):
            encode(of, [pair('the', 'a')], max_length=least - 1)
        assert encode(of, ['the'], max_length=3)
        with pytest.raises(ValueError, match=r'max_length=2 has no room for \[CLS\] A \[SEP\]:'):
            encode(of, ['the'], max_length=2)
    for texts in (['the', 'a \ud83d'], [pair('the'), pair('a \ud83d', index=1)]):
        with pytest.raises(
            ValueError, match=r"/1 has '\\ud83d', half of a surrogate pair: text.enc"
        ):
            encode(tokenizer, texts)
    mended = '\ud83d\ude00 \ud83d'.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
    assert mended == '\U0001f600 \ufffd'
    for wrong in (encode, tokenize):
        with pytest.raises(TypeError, match='this is a single str: give a list'):
            wrong(tokenizer, 'the cat')
    for wrong in (tokenize(tokenizer, ['the cat']), 'the cat'):
        with pytest.raises(TypeError, match='is no list of batches: bs.encode'):
            listed(wrong)
    (batch,) = encode(tokenizer, ['the cat'])
    with pytest.raises(TypeError, match='Batches are several'):
        listed(batch)


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
            # The notebook zips "ran" with the first "cat" alone.
            zipped = batch.marks['notebook']['ran-cat'][row].tolist()
            assert zipped == [[n + 1, 1, 0]] and batch.marks['notebook']['last'][row, n + 1]
    assert sorted(seen) == list(range(5)) and any((batch.example < 0).any() for batch in batches)


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


def test_annotations_of_roberta(bytewise):
    """Words meet their wordpieces, and only them; a word looked up is found wherever it is."""
    text = 'the dog saw née , a dog'
    place = lambda word, text=text: Span(text.index(word), text.index(word) + len(word))
    annotation = Annotation(
        {'noun': (place('dog'),), 'name': (place('née'),)},
        {'verb-noun': (Link((place('saw'),), (place('dog'),)),)},
    )
    (batch,) = encode(bytewise, [pair(text)], annotations=[annotation], max_length=16)
    tokens = bytewise.convert_ids_to_tokens(batch.input_ids[0].tolist())
    marked = lambda mark: [tokens[place] for place in np.flatnonzero(mark[0])]
    marks, notebook = batch.marks, batch.marks['notebook']
    assert marked(marks['noun']) == ['Ġdog'] and marked(marks['name']) == ['Ġn', 'Ã', '©', 'e']
    assert marked(notebook['noun']) == ['Ġdog', 'Ġdog'] and marked(notebook['name']) == []
    ((query, key, number),) = batch.marks['verb-noun'][0].tolist()
    assert (tokens[query], tokens[key], number) == ('Ġsaw', 'Ġdog', 0)


def test_spaces_of_sentencepiece(sentencepiece_of):
    """XLM-R's kind of tokenizer, whose offsets have the space too."""
    tokenizer = sentencepiece_of('▁ ▁the ▁cat s ▁dog')
    encoded = tokenize(tokenizer, [pair('the  cats', 'dog the')])
    assert encoded.offsets[0].tolist() == [
        [0, 0], [0, 3], [4, 4], [5, 8], [8, 9], [0, 0], [0, 0], [0, 3], [4, 7], [0, 0]
    ]  # fmt: skip
    assert encoded.text[0].tolist() == [-1, 0, 0, 0, 0, -1, -1, 1, 1, -1]
    (batch,) = encode(tokenizer, [pair('the  cats', 'dog the')])
    assert np.flatnonzero(batch.marks['sep'][0]).tolist() == [5, 6, 9]


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


def test_a_hidden_full_stop_is_none(tokenizer):
    masked = mask_words(tokenizer, ['. . . . . .'], masking=Masking(share=0.5))
    (batch,) = masked.batches
    assert batch.marks['period_comma'].sum() == 3
    hidden = batch.input_ids == tokenizer.mask_token_id
    assert not (batch.marks['period_comma'] & hidden).any()


def test_a_tokenizer_may_have_neither(tmp_path):
    (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nM\nK\n')
    from transformers import BertTokenizerFast

    of = BertTokenizerFast(str(tmp_path / 'vocab.txt'), do_lower_case=False)
    (batch,) = encode(of, ['M K . M K M K M'], max_length=16)
    assert not batch.marks['period_comma'].any() and _stops(of) == []
