"""Words of any language by Universal Dependencies: from treebanks and from spaCy's pipelines."""

import types

import pytest
import spacy

from bert_secrets_jax.data.annotation import read_annotations, write_annotations
from bert_secrets_jax.data.encoding import WORD, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.treebank import count_pieces, encode_parses, read_treebank
from tests.data.test_linguistics import linked, words

# Written for these tests: form, part of speech, head, relation and feature of each word.
ENGLISH = """She PRON 4 nsubj PronType=Prs/did AUX 4 aux _/not PART 4 advmod Polarity=Neg/
give VERB 0 root _/him PRON 4 iobj PronType=Prs/her PRON 7 nmod:poss Poss=Yes/bone NOUN 4 obj _/
, PUNCT 12 punct _/which PRON 12 nsubj:pass PronType=Rel/was AUX 12 aux:pass _/
never ADV 12 advmod PronType=Neg/found VERB 7 acl:relcl _/by ADP 14 case _/
Rex PROPN 12 obl:agent _/. PUNCT 4 punct _"""
TURKISH = 'Annem NOUN 3 nsubj _/onu PRON 3 obj _/görmedi VERB 0 root Polarity=Neg/. PUNCT 3 punct _'
JAPANESE = """猫 NOUN 5 nsubj _/は ADP 1 case _/魚 NOUN 5 obj _/を ADP 3 case _/食べ VERB 0 root _/
ない AUX 5 aux Polarity=Neg/。 PUNCT 5 punct _"""
NAMES = ('noun', 'verb', 'pronoun', 'subject', 'object', 'negation', 'punctuation')
FOUND = {
    ENGLISH: 'bone Rex|did give was found|She him her|She which Rex|him bone|not never|, .'
    '|give>She found>which|give>She|',
    TURKISH: 'Annem|görmedi|onu|Annem|onu|görmedi|.|görmedi>Annem|görmedi>Annem|Annem>onu',
    JAPANESE: '猫 魚|食べ ない||猫|魚|ない|。|食べ>猫|食べ>猫|',
}


def columns(rows):
    return [row.split() for row in rows.split('/')]


@pytest.fixture
def trees(tmp_path):
    def read(*sentences):
        text = ''
        for rows in sentences:
            after = 'SpaceAfter=No' if rows is JAPANESE else '_'
            for number, (form, upos, head, relation, features) in enumerate(columns(rows), 1):
                row = (number, form, '_', upos, '_', features, head, relation, '_', after)
                text += '\t'.join(map(str, row)) + '\n'
            text += '\n'
        (tmp_path / 'own.conllu').write_text(text, encoding='utf-8')
        return read_treebank(tmp_path / 'own.conllu')

    return read


def said(annotation, text):
    """The findings in the words of `FOUND`."""
    found = [words(annotation, name, text) for name in NAMES]
    for name in ('verb-subject', 'verb-nsubj', 'noun-pronoun'):
        both = linked(annotation, name, text)
        found.append(['>'.join(map(' '.join, pair)) for pair in both])
    return '|'.join(map(' '.join, found))


@pytest.mark.parametrize('rows', FOUND, ids=['English', 'Turkish', 'Japanese'])
def test_what_words_are_by_universal_dependencies(trees, rows):
    """The notebook's marks of negation, whose words are English, are the same here."""
    (parse,) = trees(rows)
    (annotation,) = annotate([parse])
    assert said(annotation, parse.example.text_a) == FOUND[rows]
    same = {annotation.features[f'negation{end}'] for end in ('', '_word', '_substring')}
    assert len(same) == 1 and annotation.words == parse.words


class Pipeline:
    """A spaCy pipeline for Turkish that knows one sentence."""

    lang, pipe_names, max_length, labels = 'tr', ('tagger', 'parser'), 100, ('nsubj',)

    def get_pipe(self, name):
        return types.SimpleNamespace(labels=self.labels)

    def pipe(self, texts):
        forms, classes, heads, relations, features = zip(*columns(TURKISH), strict=True)
        places = [int(head) - 1 if head != '0' else place for place, head in enumerate(heads)]
        given = {'words': forms, 'pos': classes, 'heads': places, 'deps': relations}
        given['morphs'] = [each.replace('_', '') for each in features]
        return [spacy.tokens.Doc(spacy.blank('tr').vocab, **given)] * len(texts)


def test_a_pipeline_of_any_language_finds_the_same(monkeypatch):
    monkeypatch.setattr('importlib.metadata.version', lambda name: '1')
    monkeypatch.setattr('spacy.load', lambda *_, **__: Pipeline())
    text, name = 'Annem onu görmedi .', 'tr_core_news_md'
    assert said(annotate([text], pipeline=name)[0], text) == FOUND[TURKISH]
    with pytest.raises(ValueError, match=r"is a pipeline for 'tr': name it tr_"):
        annotate(['A dog ran.'], pipeline='en_core_web_md')
    monkeypatch.setattr(Pipeline, 'labels', ('sb',))
    with pytest.raises(ValueError, match="has no 'nsubj', as UD have: use a treebank"):
        annotate([text], pipeline=name)


@pytest.fixture(scope='module')
def metaspace(sentencepiece_of):
    """A tokenizer with pieces that hold two words, and without '▁魚'."""
    return sentencepiece_of('▁ ▁猫は 猫 は 魚 を 食べない 。')


def test_words_without_spaces_come_from_the_treebank(trees, metaspace, tmp_path):
    """For the tokenizer, a text without spaces is one word. <s> and </s> go by their roles."""
    (parse,) = trees(JAPANESE)
    whole = tokenize(metaspace, [parse.example])
    assert set(whole.marks[WORD][0].tolist()) == {0, 1, 2}
    write_annotations(tmp_path / 'own.jsonl', [parse.example], annotate([parse]))
    _, again = read_annotations(tmp_path / 'own.jsonl')
    # <s> 猫は 魚 を 食べない 。 </s>
    assert mark(whole, again).marks[WORD][0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    (batch,) = bucket(whole, fewest=9)
    places = [batch.marks[name][0].argmax() for name in ('cls', 'sep', 'period_comma')]
    assert places == [0, 6, 5]


def test_words_and_wordpieces_that_share_are_counted(trees, metaspace, caplog):
    caplog.set_level('INFO')
    parses = trees(JAPANESE, JAPANESE.replace('。', '猫'))
    encoded = encode_parses(metaspace, parses)
    # ▁猫は 魚 を 食べない 。, and each word apart. Neither 食べ nor ない is in the vocabulary.
    # The tokenizer gives the boundary at the beginning of a text the first character.
    assert list(count_pieces(encoded, parses).values()) == [2, 14, 2, 19, 2, 6, 0]
    assert encoded.marks[WORD][0, :7].tolist() == [-1, 0, 2, 3, 4, 6, -1]
    assert encoded.marks[WORD][1, 1:15].tolist() == [n for n in range(7) for _ in range(2)]
    assert "'wordpieces of several words': 2, 'lone boundaries of words': 6," in caplog.text
    # A mark has the boundary with the word that begins there.
    nouns = mark(encoded, annotate(parses)).marks['noun']
    assert nouns[1].nonzero()[0].tolist() == [1, 2, 5, 6]
    # Whoever only has annotations is told the same.
    assert caplog.text.count("'lone boundaries of words': 6,") == 2
    assert 'no negation is known' not in caplog.text
    annotate(trees(JAPANESE.replace('Polarity=Neg', '_')))
    assert 'no negation is known' in caplog.text
