"""Words with tags: what is read, what is refused, and which wordpiece is a word's first."""

import json

import numpy as np
import pytest

from bert_secrets_jax.data import tagged
from bert_secrets_jax.data.encoding import tokenize

CONLLU = """\
# sent_id = 1
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\tIN\t_\t2\tcase\t_\tNER=O
2\tle\tle\tDET\tDT\tNumber=Sing\t0\troot\t_\tNER=B-LOC
2.1\tsees\tsee\tVERB\tVB\t_\t_\t_\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""


@pytest.fixture
def conllu(tmp_path):
    path = tmp_path / 'tiny.conllu'
    path.write_text(CONLLU)
    return path


@pytest.mark.parametrize(
    ('column', 'tags'),
    [
        ('upos', [('ADP', 'DET'), ('INTJ',)]),
        ('xpos', [('IN', 'DT'), ('UH',)]),
        ('deprel', [('case', 'root'), ('root',)]),
        ('feats.Number', [('O', 'Sing'), ('O',)]),
        ('misc.NER', [('O', 'B-LOC'), ('O',)]),
    ],
)
def test_reads_each_column(conllu, column, tags):
    found = tagged.read_conllu(conllu, column=column)
    assert [text.words for text in found] == [('de', 'le'), ('Yes',)]
    assert [text.tags for text in found] == tags
    assert [text.id for text in found] == ['tiny/0', 'tiny/1']
    assert found[1].text == 'Yes' and 'sentence at line 7' in found[1].place


@pytest.mark.parametrize(
    ('old', 'new', 'column', 'fault'),
    [
        ('', '', 'feats', r"column='feats' must be 'upos', .*feats\.Number"),
        ('INTJ', '_', 'upos', r"at line 7: 'Yes' has no upos.*bad_rows='skip'"),
        ('NER=B-LOC', 'NER', 'misc.NER', r"\(sent_id 1\): 'le' has misc\.NER without a value"),
        ('NER=B-LOC', 'NER=', 'misc.NER', r"\(sent_id 1\): 'le' has misc\.NER without a value"),
        ('INTJ', '\u00a0INTJ', 'upos', r"the tag '\\xa0INTJ' has a space at its ends"),
    ],
)
def test_words_that_are_bad_are_named(conllu, old, new, column, fault):
    conllu.write_text(CONLLU.replace(old, new))
    with pytest.raises(ValueError, match=fault):
        tagged.read_conllu(conllu, column=column)
    if column != 'feats':
        assert len(tagged.read_conllu(conllu, column=column, bad_rows='skip')) == 1


def write(path, rows):
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return path


def test_json_lines(tmp_path):
    rows = [{'tokens': ['A', 'cat'], 'tags': ['DET', 'NOUN']}]
    assert tagged.read_tagged(write(tmp_path / 'a.jsonl', rows)) == [
        tagged.Tagged(('A', 'cat'), ('DET', 'NOUN'), 'a/0')
    ]
    rows = [{'words': ['A', 'cat'], 'ner_tags': [0, 1]}]
    (found,) = tagged.read_tagged(
        write(tmp_path / 'b.jsonl', rows), words='words', tags='ner_tags', names=('O', 'B-PET')
    )
    assert found.tags == ('O', 'B-PET')
    path = write(tmp_path / 'e.jsonl', [{'tokens': ['A', 'B'], 'tags': ['B-X', 0]}])
    assert tagged.read_tagged(path, names=('O', 'B-X'))[0].tags == ('B-X', 'O')
    for tag, fault in (
        ('B-X', "tag='B-X' must be 'O' or 'I-X' .Did you mean I-X"),
        (2, 'the tag 2 is no number from 0 to 1'),
    ):
        write(path, [{'tokens': ['A'], 'tags': [tag]}])
        with pytest.raises(ValueError, match=fault):
            tagged.read_tagged(path, names=('O', 'I-X'))


@pytest.mark.parametrize('max_length', [8, 32])
def test_first_wordpieces(tokenizer, max_length):
    """As transformers aligns words that it is given as words; what is cut off has none."""
    texts = [
        tagged.Tagged(('the', 'unbelievable', 'cat'), ('D', 'A', 'N')),
        tagged.Tagged(('dogs', '!', "don't"), ('N', 'P', 'V')),
        tagged.Tagged(('cat',) * 20, ('N',) * 20),
    ]
    how = {'truncation': True, 'max_length': max_length}
    encoded = tokenize(tokenizer, [text.example for text in texts], max_length=max_length)
    found = tagged.first_pieces(encoded, texts)
    for row, text in enumerate(texts):
        theirs = tokenizer(list(text.words), is_split_into_words=True, **how).word_ids()
        first = [
            -1 if word is None or word in theirs[:place] else word
            for place, word in enumerate(theirs)
        ]
        np.testing.assert_array_equal(found[row, : len(first)], first)
        assert (found[row, len(first) :] == -1).all()
