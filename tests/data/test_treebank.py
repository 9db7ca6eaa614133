"""Dependency trees: texts as they were written, words in their places, faults by name."""

import re
from importlib import resources

import numpy as np
import pytest

from bert_secrets_jax.data.treebank import encode_parses, read_treebank, treebank_sample

# A contraction that is divided into its words, one that is not, and a word that is not written.
SENTENCES = """\
# sent_id = 1
1	"	"	PUNCT	_	_	4	punct	_	SpaceAfter=No
2-3	Don't	_	_	_	_	_	_	_	_
2	Do	do	AUX	_	_	4	aux	_	_
3	n't	not	PART	_	_	4	advmod	_	_
4	run	run	VERB	_	_	0	root	_	SpaceAfter=No
5	"	"	PUNCT	_	_	4	punct	_	SpaceAfter=No
6	.	.	PUNCT	_	_	4	punct	_	_

1-2	du	_	_	_	_	_	_	_	_
1	de	de	ADP	_	_	3	case	_	_
2	le	le	DET	_	_	3	det	_	_
3	cats	cat	NOUN	_	_	0	root	_	_
3.1	ran	run	VERB	_	_	_	_	_	_

"""


@pytest.fixture
def treebank(tmp_path):
    def write(text=SENTENCES):
        path = tmp_path / 'some.conllu'
        path.write_text(text, encoding='utf-8')
        return path

    return write


def test_sentences_are_read_as_they_were_written(treebank, tokenizer, caplog):
    first, second = read_treebank(treebank())
    assert first.example.text_a == '"Don\'t run".'
    written = [first.example.text_a[span.start : span.end] for span in first.words]
    assert written == ['"', 'Do', "n't", 'run', '"', '.'] == list(first.forms)
    assert first.heads == (3, 3, 3, -1, 3, 3) and first.relations[1:3] == ('aux', 'advmod')
    assert first.classes[2] == 'PART'
    # "du" is neither "dele" nor divided: both of its words are all of it.
    assert second.example.text_a == 'du cats' and second.forms == ('de', 'le', 'cats')
    assert [(span.start, span.end) for span in second.words] == [(0, 2), (0, 2), (3, 7)]
    caplog.set_level('INFO')
    encode_parses(tokenizer, read_treebank(treebank())[1:])
    assert "'words': 3, 'words without a wordpiece': 1," in caplog.text
    (parse,) = read_treebank(treebank(words(0, 1, 2).replace('VERB', '_')))
    assert parse.heads == (-1, 0, 1) and parse.classes == ('X', 'X', 'X')
    eight = '\n'.join(line.rpartition('\t_\t_')[0] for line in words(0, 1).splitlines())
    (parse,) = read_treebank(treebank(eight + '\n'))
    assert parse.example.text_a == 'ran ran'
    named = '# global.columns = ID FORM HEAD DEPREL UPOS\n'
    rows = '1\tran\t0\troot\tVERB\n2\tit\t1\tobj\tPRON\n'
    plus = read_treebank(treebank(f'{named}{rows}\n# text = again\n{rows}\n'))
    assert [parse.classes for parse in plus] == [('VERB', 'PRON')] * 2


def test_the_annotation_has_a_link_from_each_word_to_its_head(treebank):
    first, second = (parse.annotation for parse in read_treebank(treebank()))
    # Neither punctuation nor the root.
    assert first.relations.keys() == {'aux', 'advmod'}
    (link,) = first.relations['aux']
    assert (link.source, link.target) == ((first.classes['AUX'][0],), (first.classes['VERB'][0],))
    assert second.relations.keys() == {'case', 'det'}


def test_wordpieces_have_the_numbers_of_their_words(treebank, tokenizer):
    encoded = encode_parses(tokenizer, read_treebank(treebank()))
    batch = encoded.batch(np.array([1, 0, -1]), 12)
    # [CLS] [UNK] cat ##s [SEP], and [CLS] " [UNK] ' [UNK] ran " . [SEP], and nothing.
    assert batch.marks['word'].tolist() == [
        [-1, 0, 2, 2, -1, -1, -1, -1, -1, -1, -1, -1],
        [-1, 0, 1, 2, 2, 3, 4, 5, -1, -1, -1, -1],
        [-1] * 12,
    ]
    assert batch.marks['word'].dtype == np.int32


def words(*heads):
    return ''.join(
        f'{number}\tran\trun\tVERB\t_\t_\t{head}\t{"dep" if head else "root"}\t_\t_\n'
        for number, head in enumerate(heads, 1)
    )


@pytest.mark.parametrize(
    ('lines', 'message'),
    [
        (words('_'), "sentence at line 1: 'ran' has no head"),
        (f'\n# sent_id = w1\n{words("_")}', r"at line 2 \(sent_id w1\): 'ran' has no"),
        (words(0, 0), '2 words have the head 0'),
        (words(0).replace('root', 'nsubj'), "'ran' has the head 0 and is 'nsubj'"),
        (words(0).replace('ran', ''), 'a line has no form'),
        (words(0, 1).replace('\n', '\r') + '\n', 'carriage returns alone'),
        (words(0, 1) + '1-2' + 9 * '\t_' + '\n', 'contraction, or not before word 1'),
        (words(7), "'ran' has the head 7 of 1 words"),
        (words(0).replace('1', '2'), r'numbered \[2\], not from 1 to 1'),
        (words(0).replace('\t', ' '), 'no CoNLL-U'),
        ('# only = a comment\n', 'it has no words'),
        ('', 'has nothing to read'),
        *((words(*heads), "the heads go round in a circle from 'ran'")
          for heads in ((2, 1), (2, 1, 0), (0, 3, 4, 2))),
    ],
)  # fmt: skip
def test_a_sentence_without_a_tree_is_named_and_can_be_left_out(treebank, lines, message):
    with pytest.raises(ValueError, match=message):
        read_treebank(treebank(f'{lines}\n'))
    assert len(read_treebank(treebank(f'{lines}\n{SENTENCES}'), bad_rows='skip')) == 2


def test_the_embedded_treebank_has_two_splits():
    """Each sentence has one root, none is in both, and each is written as its file notes it."""
    splits = {split: treebank_sample(split) for split in ('train', 'dev')}
    assert {split: len(parses) for split, parses in splits.items()} == {'train': 100, 'dev': 80}
    texts = set()
    for split, parses in splits.items():
        path = resources.files('bert_secrets_jax.data') / 'trees' / f'{split}.conllu'
        noted = re.findall('^# text = (.*)$', path.read_text('utf-8'), re.MULTILINE)
        assert [parse.example.text_a for parse in parses] == noted
        assert all(parse.heads.count(-1) == 1 for parse in parses)
        texts |= set(noted)
    assert len(texts) == 180
