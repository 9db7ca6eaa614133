"""Characters become the right wordpieces in both readings; a file is read as it was written."""

import functools
import json
import re

import numpy as np
import pytest

from bert_secrets_jax.data.annotation import (
    Annotation,
    Link,
    Span,
    align,
    read_annotations,
    write_annotations,
)
from bert_secrets_jax.data.encoding import encode, mark, tokenize
from bert_secrets_jax.data.tasks import Example


def example(a, b=None, index=0):
    return Example(a, b, id=f'test/{index}')


def marks_of(
    tokenizer, text_a, text_b=None, *, max_length=32, features=(), relations=(), reading='paper'
):
    """Return the marks of one example."""
    annotation = Annotation(dict(features), dict(relations))
    encoded = tokenize(tokenizer, [example(text_a, text_b)], max_length=max_length)
    marks = mark(encoded, [annotation]).marks
    notebook = marks.pop('notebook')
    assert {*notebook, 'word'} == marks.keys()
    found = notebook if reading == 'notebook' else marks
    return {name: array[0] for name, array in found.items()}


def marked(tokenizer, spans, text_a, text_b=None, **options):
    """Return the positions that a feature marks."""
    marks = marks_of(tokenizer, text_a, text_b, features={'f': spans}, **options)
    return np.flatnonzero(marks['f']).tolist()


def linked(tokenizer, links, text_a, text_b=None, **options):
    """Return the pairs of a relation."""
    marks = marks_of(tokenizer, text_a, text_b, relations={'r': links}, **options)
    return marks['r'].tolist()


by_notebook = functools.partial(marked, reading='notebook')
linked_by_notebook = functools.partial(linked, reading='notebook')


# [CLS] the cat ##s . [SEP]
@pytest.mark.parametrize(
    'span, expected',
    [
        pytest.param(Span(0, 3), [1], id='whole word'),
        pytest.param(Span(4, 8), [2, 3], id='word in two pieces'),
        pytest.param(Span(5, 6), [2], id='within a piece'),
        pytest.param(Span(6, 8), [2, 3], id='half a piece and one more'),
        pytest.param(Span(3, 4), [], id='the space between'),
        pytest.param(Span(3, 5), [2], id='space and first letter'),
        pytest.param(Span(0, 9), [1, 2, 3, 4], id='all, but not the special tokens'),
    ],
)
def test_a_feature_marks_the_wordpieces_that_overlap_its_span(tokenizer, span, expected):
    assert marked(tokenizer, (span,), 'The cats.') == expected


def test_the_same_characters_of_the_other_text_are_not_marked(tokenizer):
    # [CLS] the cat [SEP] the cat [SEP]
    assert marked(tokenizer, (Span(4, 7),), 'the cat', 'the cat') == [2]
    assert marked(tokenizer, (Span(4, 7, 1),), 'the cat', 'the cat') == [5]


def test_no_spans_mark_nothing(tokenizer):
    for reading in ('paper', 'notebook'):
        marks = marks_of(tokenizer, 'the cat', features={'f': ()}, reading=reading)
        assert marks['f'].shape == (4,) and not marks['f'].any()


def test_pieces_cut_off_are_not_marked(tokenizer):
    # [CLS] the cat ran [SEP]
    spans = (Span(4, 7), Span(12, 15))
    assert marked(tokenizer, spans, 'the cat ran dog .', max_length=5) == [2]


def test_letters_that_the_tokenizer_changes_keep_their_place(tokenizer):
    # The accents are stripped: [CLS] the cat ran [SEP], and "cát" has four code points.
    assert marked(tokenizer, (Span(9, 12),), 'Thé ca\u0301t ran') == [3]


def test_notebook_finds_the_word_anywhere_in_the_pair(tokenizer):
    # [CLS] the cat saw the dog [SEP] the dog [SEP]
    spans = (Span(0, 3),)
    assert by_notebook(tokenizer, spans, 'the cat saw the dog', 'the dog') == [1, 4, 7]
    assert marked(tokenizer, spans, 'the cat saw the dog', 'the dog') == [1]


def test_notebook_never_finds_a_word_in_several_pieces(tokenizer):
    # [CLS] cat ##s cat [SEP]: the span is "cats".
    assert by_notebook(tokenizer, (Span(0, 4),), 'cats cat') == []


def test_notebook_never_finds_a_part_of_a_wordpiece(tokenizer):
    # spaCy's "do" of "don't", as "ca" of "cat".
    assert by_notebook(tokenizer, (Span(0, 2),), 'cat cat') == []


def test_notebook_never_finds_a_character_in_several_pieces():
    # As tokenizers of bytes make of one emoji.
    marks = align(
        [Annotation({'f': (Span(0, 1),)}, {})],
        input_ids=np.array([[7, 8, 7]]),
        offsets=np.array([[[0, 1], [0, 1], [2, 3]]]),
        text=np.zeros((1, 3)),
        unknown=None,
    )
    assert marks['f'].tolist() == [[True, True, False]]
    assert not marks['notebook']['f'].any()


def test_notebook_finds_no_unknown_words(tokenizer):
    # The first is [UNK], and no word is spelled like that.
    assert by_notebook(tokenizer, (Span(0, 5),), 'horse and cat') == []
    assert marked(tokenizer, (Span(0, 5),), 'horse and cat') == [1]


def test_a_separator_in_a_text_does_not_mark_those_of_the_template(tokenizer):
    # [CLS] the [SEP] cat [SEP]
    assert by_notebook(tokenizer, (Span(4, 9),), 'the [SEP] cat') == [2]


def test_a_link_pairs_all_pieces_of_source_and_target(tokenizer):
    # [CLS] the cat ##s chased un ##like ##ly dog ##s [SEP]
    links = (Link((Span(4, 8),), (Span(16, 24),)),)
    assert linked(tokenizer, links, 'the cats chased unlikely dogs') == [
        [2, 5, 0], [2, 6, 0], [2, 7, 0], [3, 5, 0], [3, 6, 0], [3, 7, 0],
    ]  # fmt: skip


def test_notebook_pairs_first_with_first_and_second_with_second(tokenizer):
    links = (Link((Span(4, 8),), (Span(16, 24),)),)
    pairs = linked_by_notebook(tokenizer, links, 'the cats chased unlikely dogs')
    assert pairs == [[2, 5, 0], [3, 6, 0]]


def test_notebook_takes_the_first_place_of_each_wordpiece(tokenizer):
    # [CLS] dog ##s saw cat ##s . [SEP]: the "##s" of "cats" is looked up, and found in "dogs".
    links = (Link((Span(9, 13),), (Span(5, 8), Span(13, 14))),)
    assert linked_by_notebook(tokenizer, links, 'dogs saw cats.') == [[4, 3, 0], [2, 6, 0]]


def test_notebook_looks_for_the_second_text_in_the_first(tokenizer):
    # [CLS] the cat [SEP] cat ran [SEP]
    links = (Link((Span(0, 3, 1),), (Span(4, 7, 1),)),)
    assert linked_by_notebook(tokenizer, links, 'the cat', 'cat ran') == [[2, 5, 0]]
    assert linked(tokenizer, links, 'the cat', 'cat ran') == [[4, 5, 0]]


def test_notebook_looks_nothing_up_among_the_special_tokens(tokenizer):
    # [CLS] the [CLS] cat [SEP]
    links = (Link((Span(4, 9),), (Span(10, 13),)),)
    assert linked_by_notebook(tokenizer, links, 'the [CLS] cat') == [[2, 3, 0]]


def test_an_end_of_several_spans_is_one_link(tokenizer):
    # [CLS] the cat saw it [SEP]
    links = (Link((Span(0, 3), Span(8, 11)), (Span(12, 14),)), Link((Span(4, 7),), (Span(0, 3),)))
    assert linked(tokenizer, links, 'the cat saw it') == [[1, 4, 0], [3, 4, 0], [2, 1, 1]]


def test_a_link_across_the_texts(tokenizer):
    # [CLS] the cat [SEP] it ran [SEP]
    links = (Link((Span(0, 2, 1),), (Span(4, 7),)),)
    assert linked(tokenizer, links, 'the cat', 'it ran') == [[4, 2, 0]]


def test_a_link_that_truncation_cuts_is_left_out_and_logged(tokenizer, caplog):
    # [CLS] the cat ran [SEP]: of the first link no target is left.
    links = (Link((Span(4, 7),), (Span(12, 15),)), Link((Span(8, 11),), (Span(4, 7),)))
    caplog.set_level('INFO')
    pairs = linked(tokenizer, links, 'the cat ran dog .', max_length=5)
    assert pairs == [[3, 2, 0]]
    assert '1 of 2 links are left out' in caplog.text


def test_a_link_keeps_the_pieces_that_are_left(tokenizer):
    # [CLS] the cat ran [SEP]: "dogs" is cut off the source.
    links = (Link((Span(4, 7), Span(12, 16)), (Span(0, 3),)),)
    assert linked(tokenizer, links, 'the cat ran dogs', max_length=5) == [[2, 1, 0]]


def test_links_are_filled_up_to_the_most_of_the_corpus(tokenizer):
    link = Link((Span(0, 3),), (Span(4, 7),))
    annotations = [Annotation({}, {'r': links}) for links in ((link,), (), (link, link))]
    examples = [example('the cat', index=index) for index in range(3)]
    pairs = mark(tokenize(tokenizer, examples), annotations).marks['r']
    nothing = [0, 0, -1]
    assert pairs.tolist() == [
        [[1, 2, 0], nothing],
        [nothing, nothing],
        [[1, 2, 0], [1, 2, 1]],
    ]


def test_a_relation_without_links_has_one_empty_pair(tokenizer):
    assert linked(tokenizer, (), 'the cat') == [[0, 0, -1]]


def test_annotations_of_other_examples_are_an_error(tokenizer):
    with pytest.raises(ValueError, match='1 annotations for 2 examples'):
        encode(tokenizer, [example('a'), example('a')], annotations=[Annotation({}, {})])
    with pytest.raises(ValueError, match=r'test/0: span \[2, 9\] is not within text_a, .* 7'):
        encode(tokenizer, [example('the cat')], annotations=[Annotation({'f': (Span(2, 9),)}, {})])


def test_unequal_names_are_an_error(tokenizer):
    encoded = tokenize(tokenizer, [example('a'), example('a')])
    with pytest.raises(ValueError, match=r"Annotation 1 has the features \[\], .* \['noun'\]"):
        mark(encoded, [Annotation({'noun': ()}, {}), Annotation({}, {})])


@pytest.mark.parametrize('name', ['token', 'cls', 'sep', 'word', 'notebook', 'random'])
def test_names_with_a_meaning_are_taken(name):
    with pytest.raises(ValueError, match=f'{name}.* cannot name'):
        Annotation({name: ()}, {})


def test_any_other_name_is_free(tokenizer):
    assert marks_of(tokenizer, 'the cat', features={'noun@mine': (Span(0, 3),)})['noun@mine'][1]


def test_a_file_is_read_as_it_was_written(tmp_path):
    examples = [
        Example('Zoë saw\u2028"it".', 'He ran.', id='links/0'),
        Example('no pair', id='links/1'),
    ]
    annotations = [
        Annotation(
            {'noun': (Span(0, 3),), 'verb': (Span(4, 7), Span(3, 6, 1))},
            {'r': (Link((Span(0, 3), Span(9, 11)), (Span(0, 2, 1),)),)},
        ),
        Annotation({'noun': (), 'verb': ()}, {'r': ()}),
    ]
    path = tmp_path / 'links.jsonl'
    write_annotations(path, examples, annotations)
    assert read_annotations(path) == (examples, annotations)


def test_the_format_in_the_documentation_is_read(tmp_path):
    path = tmp_path / 'own.jsonl'
    path.write_text(
        '{"text_a": "The cat saw itself.",\n'.replace('\n', ' ')
        + '"features": {"noun": [[4, 7]]}, "note": {"by": "me"},'
        + '"relations": {"coreference": [{"source": [[12, 18]], "target": [[4, 7]]}]}}\n\n'
        + '{"text_a": "A", "text_b": "B", "features": {"end": [[0, 1, 1]]}}'
    )
    examples, annotations = read_annotations(path)
    assert [(e.text_a, e.text_b, e.id) for e in examples] == [
        ('The cat saw itself.', None, 'own/0'),
        ('A', 'B', 'own/1'),
    ]
    assert annotations == [
        Annotation(
            {'noun': (Span(4, 7),), 'end': ()},
            {'coreference': (Link((Span(12, 18),), (Span(4, 7),)),)},
        ),
        Annotation({'noun': (), 'end': (Span(0, 1, 1),)}, {'coreference': ()}),
    ]


def record(**changes):
    return {'text_a': 'the cat'} | changes


@pytest.mark.parametrize(
    'line, fault',
    [
        ('{"text_a": ', 'malformed JSON at column 12'),
        ([], 'the line is not a JSON object'),
        ({'text_b': 'a'}, "no 'text_a'"),
        (record(text_a=3), "'text_a' is not a text"),
        (record(text_b=' '), "'text_b' is not a text"),
        (record(label=1), "unknown key 'label'; known: text_a, "),
        (record(features=[]), "'features' is not a JSON object"),
        (record(features={'f': 3}), "feature 'f': 3 is not a list"),
        (record(features={'f': [0, 3]}), "feature 'f': 0 is not [start, end]"),
        (record(features={'f': [[0, True]]}), "feature 'f': [0, true] is not [start, end]"),
        (record(features={'f': [[0, 1, 0, 0]]}), "feature 'f': [0, 1, 0, 0] is not [start"),
        (record(features={'f': [[0, 8]]}), 'span [0, 8] is not within text_a, which has 7'),
        (record(features={'f': [[-1, 3]]}), 'span [-1, 3] is empty: it needs 0 <= start'),
        (record(features={'f': [[3, 3]]}), 'span [3, 3] is empty'),
        (record(features={'f': [[0, 1, 1]]}), 'span [0, 1, 1], but there is no text_b'),
        (record(features={'f': [[0, 1, 2]]}), 'span in text 2: text_a is 0'),
        (record(features={'cls': []}), "'cls' cannot name a feature"),
        (record(features={'r': []}, relations={'r': []}), "'r' names a feature and a relation"),
        (record(relations={'r': {}}), '{} is not a list'),
        (record(relations={'r': [[0, 3]]}), "relation 'r': a link is not a JSON object"),
        (record(relations={'r': [{'from': []}]}), "unknown key 'from'; known: source, target"),
        (record(relations={'r': [{'source': [[0, 3]]}]}), 'a link needs at least one span'),
        (
            record(relations={'r': [{'source': [[0, 3]], 'target': [4, 7]}]}),
            "relation 'r', target: 4 is not [start, end]",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, fault):
    path = tmp_path / 'bad.jsonl'
    bad = line if isinstance(line, str) else json.dumps(line)
    path.write_text(json.dumps(record()) + '\n' + bad + '\n')
    with pytest.raises(
        ValueError, match=re.escape('bad.jsonl: line 2: ') + '.*' + re.escape(fault)
    ):
        read_annotations(path)


def test_all_bad_lines_are_counted(tmp_path):
    path = tmp_path / 'bad.jsonl'
    path.write_text('{}\n' * 7)
    with pytest.raises(ValueError, match="line 1: no 'text_a'; line 2: .*; .* and 2 more"):
        read_annotations(path)


def test_a_byte_order_mark_is_not_text(tmp_path):
    path = tmp_path / 'windows.jsonl'
    path.write_bytes(b'\xef\xbb\xbf{"text_a": "the cat"}\r\n')
    ((read,), _) = read_annotations(path)
    assert read.text_a == 'the cat'


def test_files_without_text(tmp_path):
    path = tmp_path / 'bad.jsonl'
    path.write_bytes(b'{}\n"\xff"\n')
    with pytest.raises(ValueError, match='not UTF-8 at line 2'):
        read_annotations(path)
    path.write_bytes(b'\n')
    with pytest.raises(ValueError, match='has no lines'):
        read_annotations(path)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r'test/0: span \[0, 9\] is not within text_a'):
        write_annotations(
            tmp_path / 'a.jsonl', [example('the cat')], [Annotation({'f': (Span(0, 9),)}, {})]
        )
    assert not list(tmp_path.iterdir())
