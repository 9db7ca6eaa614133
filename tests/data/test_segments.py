"""Segments of running text: where they begin and end, what fits, what is left out and refused."""

import itertools
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_secrets_jax as bs
from bert_secrets_jax.data.segments import _PACKAGED, read_segments

SENTENCES = ['The cat ran .', 'A dog saw the house .', 'He liked it !', 'She ran ?']


def texts_of(segments):
    return [(segment.text_a, segment.text_b) for segment in segments]


def read(tmp_path, text, tokenizer, **options):
    path = tmp_path / 'own.txt'
    path.write_text(text, encoding='utf-8')
    return read_segments(path, tokenizer, **({'max_length': 16, 'count': 0} | options))


A, B, C, D = SENTENCES
WORDS = ['the', 'cat', 'saw', 'a', 'big', 'dog'] * 4


@pytest.mark.parametrize(
    ('text', 'max_length', 'pairs'),
    [
        # 4 + 6 + 4 + 3 wordpieces and 3 special tokens; the second end, after 10 of 17, is nearest
        # to the middle.
        (' '.join(SENTENCES), 20, [(f'{A} {B}', f'{C} {D}')]),
        (' '.join(SENTENCES), 19, [(A, f'{B} {C}')]),
        # A long sentence is cut between words.
        (
            ' '.join(WORDS),
            13,
            [(' '.join(WORDS[at : at + 5]), ' '.join(WORDS[at + 5 : at + 10])) for at in (0, 10)],
        ),
        # A sentence ends where the next one begins.
        ('It is H. gammarus (or not.) It ran.', 32, [('It is H. gammarus (or not.)', 'It ran.')]),
        ('猫。狗跑。', 16, [('猫。', '狗跑。')]),
        # Marks of WikiText.
        (
            'a red @-@ tipped 1 @,@ 000 @.@ 7 . It ran .',
            32,
            [('a red-tipped 1,000.7 .', 'It ran .')],
        ),
        # Whatever does not fit is left out.
        (f'{A} {"x/" * 20} {C} {D}', 16, [(A.removesuffix(' ran .'), 'ran .'), (C, D)]),
    ],
)
def test_sentences_become_pairs(tmp_path, tokenizer, text, max_length, pairs):
    assert texts_of(read(tmp_path, text, tokenizer, max_length=max_length)) == pairs


def test_documents_end_at_blank_lines_and_headings(tmp_path, tokenizer):
    blank = ' \t'
    text = f"""
 = Title =

{A}
{C}
 = = Part = =
{D} {C}
{blank}
Alone it ran .
"""
    segments = read(tmp_path, text, tokenizer)
    assert texts_of(segments) == [(A, C), (D, C)]
    assert [segment.where.rpartition('line ')[2] for segment in segments] == ['4', '7']
    assert [segment.id for segment in segments] == ['own/0', 'own/1']


def test_what_is_left_out_is_told(tmp_path, tokenizer, caplog):
    with caplog.at_level(logging.INFO, logger='absl'):
        read(tmp_path, f'{A} {C}\n\nIt ran .', tokenizer)
    assert '1 segments' in caplog.text and '3 of 11 words' in caplog.text


def test_a_draw_is_of_all_segments(tmp_path, tokenizer):
    text = '\n\n'.join(f'{a} {b}' for a, b in itertools.permutations(SENTENCES, 2))
    every = read(tmp_path, text, tokenizer)
    one, again, other = (read(tmp_path, text, tokenizer, count=5, seed=seed) for seed in (1, 1, 2))
    assert len(every) == 12 and len(one) == 5
    assert one == [segment for segment in every if segment in one]
    assert one == again != other


WORD = st.sampled_from(['cat', 'unlikely', 'saw', 'Zoë', 'it', '猫', '“', '-', '3.5', 'teachers'])
SENTENCE = st.tuples(
    st.lists(WORD, min_size=1, max_size=30).map(' '.join), st.sampled_from([' .', '.', '?”', ''])
).map(''.join)
TEXT = st.lists(st.lists(SENTENCE, min_size=1, max_size=6).map(' '.join), min_size=1, max_size=4)


@pytest.mark.parametrize('kind', ['tokenizer', 'byte_tokenizer'])
def test_segments_are_the_text_and_are_never_cut(tmp_path_factory, request, kind):
    of = request.getfixturevalue(kind)
    path = tmp_path_factory.mktemp('segments') / 'own.txt'

    @settings(max_examples=40)
    @given(paragraphs=TEXT, max_length=st.integers(8, 40))
    def holds(paragraphs, max_length):
        path.write_text('\n\n'.join(paragraphs), encoding='utf-8')
        try:
            segments = read_segments(path, of, max_length=max_length, count=0)
        except ValueError as error:
            assert 'no segment of two parts' in str(error)
            return
        whole, start = '\n\n'.join(paragraphs), 0
        for segment in segments:
            assert segment.text_a.strip() and segment.text_b.strip()
            both = [f'{segment.text_a}{gap}{segment.text_b}' for gap in (' ', '')]
            # Consecutive running text of one document, after that of the segment before.
            place, length = min(
                (whole.find(each, start), len(each)) for each in both if each in whole[start:]
            )
            start = place + length
            assert len(of(segment.text_a, segment.text_b)['input_ids']) <= max_length

    holds()


@pytest.mark.parametrize(
    ('text', 'options', 'fault'),
    [
        *((text, {}, r'own\.txt has no segment of two parts')
          for text in ('the cat ran .', '', ' = Title = \n')),
        (A, {'max_length': 4}, 'max_length=4 has no room'),
        (f'{A} {B}', {'count': -1}, 'count=-1 must be a whole number'),
    ],
)  # fmt: skip
def test_other_faults(tmp_path, tokenizer, text, options, fault):
    with pytest.raises(ValueError, match=fault):
        read(tmp_path, text, tokenizer, **options)


def test_other_files(tmp_path, tokenizer, untyped):
    path = tmp_path / 'own.txt'
    with pytest.raises(FileNotFoundError):
        read_segments(path, tokenizer)
    path.write_bytes(b'the cat .\n\xff')
    with pytest.raises(ValueError, match=r'own\.txt: not UTF-8 at line 2'):
        read_segments(path, tokenizer)
    with pytest.raises(TypeError, match='list is no tokenizer'):
        read_segments(path, [])


def test_prose_comes_with_the_package():
    """Most of it fits into segments, and each is of one piece."""
    tokenizer = bs.from_pretrained('all-MiniLM-L6-v2').tokenizer
    pieces = _PACKAGED.read_text(encoding='utf-8').split('\n\n')
    segments = read_segments(None, tokenizer, count=0)
    assert len(pieces) == 16 and len(segments) > 32
    kept = sum(len(text.split()) for each in segments for text in each.texts)
    assert kept > 0.9 * len(' '.join(pieces).split())
    for segment in segments:
        assert sum(segment.text_a in ' '.join(piece.split()) for piece in pieces) == 1
        assert len(tokenizer(*segment.texts)['input_ids']) <= 128
