"""Characters become the right wordpieces in both readings; a file is read as it was written."""

import itertools

import numpy as np
import pytest

from bert_secrets_jax.data.annotation import (
    Annotation,
    Link,
    Span,
    read_annotations,
    write_annotations,
)
from bert_secrets_jax.data.encoding import encode, mark, tokenize
from bert_secrets_jax.data.tasks import Example


def example(a, b=None, index=0):
    return Example(a, b, id=f'test/{index}')


def marks_of(tokenizer, texts, annotation, *, max_length=32):
    """Return the marks of one example in the paper's reading and in the notebook's."""
    encoded = tokenize(tokenizer, [example(*texts)], max_length=max_length)
    marks = mark(encoded, [annotation]).marks
    notebook = marks.pop('notebook')
    assert {*notebook, 'word'} == marks.keys()
    return [{name: array[0] for name, array in each.items()} for each in (marks, notebook)]


# The places that a feature marks in the paper's reading, and in the notebook's. The pieces of the
# first texts are [CLS] the cat ##s . [SEP].
@pytest.mark.parametrize(
    ('texts', 'spans', 'paper', 'notebook'),
    [
        pytest.param(['The cats.'], [(0, 3)], [1], [1], id='whole word'),
        # The notebook never finds a word in several pieces.
        pytest.param(['The cats.'], [(4, 8)], [2, 3], [], id='word in two pieces'),
        pytest.param(['The cats.'], [(5, 6)], [2], [], id='within a piece'),
        pytest.param(['The cats.'], [(3, 5)], [2], [], id='space and first letter'),
        pytest.param(['The cats.'], [(0, 9)], [1, 2, 3, 4], [], id='no special tokens'),
        pytest.param(['the cat'], [], [], [], id='no spans'),
        # [CLS] the cat [SEP] the cat [SEP]
        pytest.param(['the cat'] * 2, [(4, 7)], [2], [2, 5], id='first text'),
        pytest.param(['the cat'] * 2, [(4, 7, 1)], [5], [2, 5], id='second text'),
        # The accents are stripped: [CLS] the cat ran [SEP], and "cát" has four code points.
        pytest.param(['Thé ca\u0301t ran'], [(9, 12)], [3], [3], id='letters that are changed'),
        pytest.param(['the cat saw the', 'the'], [(0, 3)], [1], [1, 4, 6], id='anywhere in a pair'),
        pytest.param(['cats cat'], [(0, 4)], [1, 2], [], id='not one of its pieces'),
        # The first is [UNK], and no word is spelled like that.
        pytest.param(['horse and cat'], [(0, 5)], [1], [], id='an unknown word'),
        # [CLS] the [SEP] cat [SEP]
        pytest.param(['the [SEP] cat'], [(4, 9)], [2], [2], id='a separator in a text'),
    ],
)
def test_a_feature_marks_the_wordpieces_of_its_spans(tokenizer, texts, spans, paper, notebook):
    annotation = Annotation({'f': tuple(Span(*span) for span in spans)}, {})
    found = marks_of(tokenizer, texts, annotation)
    assert [np.flatnonzero(marks['f']).tolist() for marks in found] == [paper, notebook]


# The pieces of sources and targets, all of which are pairs in the paper's reading, and the pairs of
# the notebook's: the first with the first, the second with the second.
@pytest.mark.parametrize(
    ('texts', 'links', 'ends', 'notebook'),
    [
        # [CLS] the cat ##s chased un ##like ##ly dog ##s [SEP]
        (
            ['the cats chased unlikely dogs'],
            [([(4, 8)], [(16, 24)])],
            [([2, 3], [5, 6, 7])],
            [[2, 5, 0], [3, 6, 0]],
        ),
        # [CLS] dog ##s saw cat ##s . [SEP]: the "##s" of "cats" is looked up, and found in "dogs".
        (
            ['dogs saw cats.'],
            [([(9, 13)], [(5, 8), (13, 14)])],
            [([4, 5], [3, 6])],
            [[4, 3, 0], [2, 6, 0]],
        ),
        # [CLS] the cat [SEP] cat ran [SEP]: words of the second text in the first.
        (['the cat', 'cat ran'], [([(0, 3, 1)], [(4, 7, 1)])], [([4], [5])], [[2, 5, 0]]),
        # [CLS] the [CLS] cat [SEP]: nothing among the special tokens.
        (['the [CLS] cat'], [([(4, 9)], [(10, 13)])], [([2], [3])], [[2, 3, 0]]),
        # [CLS] the cat saw it [SEP]: several spans are one link.
        (
            ['the cat saw it'],
            [([(0, 3), (8, 11)], [(12, 14)]), ([(4, 7)], [(0, 3)])],
            [([1, 3], [4]), ([2], [1])],
            [[1, 4, 0], [2, 1, 1]],
        ),
        # [CLS] the cat ##s [SEP]: the first link is within one wordpiece; none goes to itself.
        (['the cats'], [([(4, 5)], [(5, 7)]), ([(4, 8)], [(6, 7)])], [([2, 3], [2])], [[2, 2, 0]]),
        (['the cat'], [], [], [[0, 0, -1]]),
    ],
)
def test_a_link_pairs_pieces_of_source_and_target(tokenizer, texts, links, ends, notebook):
    spans = [[tuple(Span(*span) for span in end) for end in link] for link in links]
    annotation = Annotation({}, {'r': tuple(Link(*link) for link in spans)})
    paper = [
        [query, key, number]
        for number, link in enumerate(ends)
        for query, key in itertools.product(*link)
        if query != key
    ]
    found = marks_of(tokenizer, texts, annotation)
    assert [marks['r'].tolist() for marks in found] == [paper or notebook, notebook]


def test_links_that_are_cut_or_within_a_wordpiece_are_left_out_and_logged(tokenizer, caplog):
    # [CLS] the cat ran [SEP]: the first link keeps no target, the third a part of its source, and
    # the last has both ends in "cat".
    links = (
        Link((Span(4, 7),), (Span(12, 15),)),
        Link((Span(8, 11),), (Span(4, 7),)),
        Link((Span(4, 7), Span(12, 15)), (Span(0, 3),)),
        Link((Span(4, 6),), (Span(6, 7),)),
    )
    caplog.set_level('INFO')
    annotation = Annotation({}, {'r': links})
    marks, _ = marks_of(tokenizer, ['the cat ran dog .'], annotation, max_length=5)
    assert marks['r'].tolist() == [[3, 2, 0], [2, 1, 1]]
    assert '1 of 4 links are left out: an end has no' in caplog.text
    assert '1 of 4 links are left out: both ends are in one wordpiece.' in caplog.text


def test_annotations_that_do_not_fit_are_an_error(tokenizer, tmp_path):
    one, two, none = [example('the cat')], [example('a'), example('a')], Annotation({}, {})
    wide, noun = Annotation({'f': (Span(2, 9),)}, {}), Annotation({'noun': ()}, {})
    for texts, annotations, fault in (
        (two, [none], 'There are 1 annotations and 2 examples: give one'),
        (two, [noun, none], r"Annotation 1 has the features \[\], .* \['noun'\]"),
        (one, [wide], r'test/0: span \[2, 9\] is not within text_a, .* 7'),
    ):
        with pytest.raises(ValueError, match=fault):
            encode(tokenizer, texts, annotations=annotations)
    with pytest.raises(ValueError, match=r'test/0: span \[2, 9\] is not within text_a'):
        write_annotations(tmp_path / 'a.jsonl', one, [wide])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('name', 'token cls sep word period_comma notebook random'.split())
def test_names_with_a_meaning_are_taken(name):
    with pytest.raises(ValueError, match=f'{name}.* cannot name'):
        Annotation({name: ()}, {})


def test_a_file_is_read_as_it_was_written(tmp_path):
    one, other = Example('Zoë saw\u2028"it".', 'He ran.', id='links/0'), Example('no', id='links/1')
    annotations = [
        Annotation(
            {'noun': (Span(0, 3),), 'verb': (Span(4, 7), Span(3, 6, 1))},
            {'r': (Link((Span(0, 3), Span(9, 11)), (Span(0, 2, 1),)),)},
        ),
        Annotation({'noun': (), 'verb': ()}, {'r': ()}),
    ]
    path = tmp_path / 'links.jsonl'
    write_annotations(path, [one, other], annotations)
    assert read_annotations(path) == ([one, other], annotations)
