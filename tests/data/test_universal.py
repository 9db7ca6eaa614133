"""Words of any language by Universal Dependencies: from treebanks and from spaCy's pipelines."""

import types

import pytest
import spacy
import tokenizers
import transformers

import bert_secrets_jax as bs
from bert_secrets_jax.data.annotation import read_annotations, write_annotations
from bert_secrets_jax.data.encoding import WORD, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.treebank import count_pieces, encode_parses, read_treebank

# Written for these tests: form, part of speech, head, relation, features.
ENGLISH = """\
She PRON 4 nsubj PronType=Prs
did AUX 4 aux _
not PART 4 advmod Polarity=Neg
give VERB 0 root _
him PRON 4 iobj PronType=Prs
her PRON 7 nmod:poss Poss=Yes|PronType=Prs
bone NOUN 4 obj _
, PUNCT 12 punct _
which PRON 12 nsubj:pass PronType=Rel
was AUX 12 aux:pass _
never ADV 12 advmod PronType=Neg
found VERB 7 acl:relcl _
by ADP 14 case _
Rex PROPN 12 obl:agent _
. PUNCT 4 punct _"""
TURKISH = """\
Annem NOUN 3 nsubj _
onu PRON 3 obj _
görmedi VERB 0 root Polarity=Neg
. PUNCT 3 punct _"""
JAPANESE = """\
猫 NOUN 5 nsubj _
は ADP 1 case _
魚 NOUN 5 obj _
を ADP 3 case _
食べ VERB 0 root _
ない AUX 5 aux Polarity=Neg
。 PUNCT 5 punct _"""
FOUND = {
    ENGLISH: 'noun: bone Rex; verb: did give was found; pronoun: She him her; negation: not never; '
    'subject: She which Rex; object: him bone; punctuation: , .; links: give>She found>which; '
    'active: give>She; antecedents:',
    TURKISH: 'noun: Annem; verb: görmedi; pronoun: onu; negation: görmedi; subject: Annem; '
    'object: onu; punctuation: .; links: görmedi>Annem; active: görmedi>Annem; '
    'antecedents: Annem>onu',
    JAPANESE: 'noun: 猫 魚; verb: 食べ ない; pronoun:; negation: ない; subject: 猫; object: 魚; '
    'punctuation: 。; links: 食べ>猫; active: 食べ>猫; antecedents:',
}


def columns(rows):
    return [row.split() for row in rows.splitlines()]


@pytest.fixture
def trees(tmp_path):
    """Sentences as a treebank writes them; without spaces in Japanese."""

    def read(*sentences):
        text = ''
        for rows in sentences:
            after = 'SpaceAfter=No' if rows is JAPANESE else '_'
            for number, (form, upos, head, relation, features) in enumerate(columns(rows), 1):
                text += (
                    f'{number}\t{form}\t_\t{upos}\t_\t{features}\t{head}\t{relation}\t_\t{after}\n'
                )
            text += '\n'
        (tmp_path / 'own.conllu').write_text(text, encoding='utf-8')
        return read_treebank(tmp_path / 'own.conllu')

    return read


def parsed(rows, vocabulary):
    """The same sentence as a spaCy pipeline gives it."""
    forms, classes, heads, relations, features = zip(*columns(rows), strict=True)
    places = [int(head) - 1 if head != '0' else number for number, head in enumerate(heads)]
    morphs = [each.replace('_', '') for each in features]
    spaces = [rows is not JAPANESE] * len(forms)
    given = {'words': forms, 'pos': classes, 'heads': places, 'deps': relations, 'morphs': morphs}
    return spacy.tokens.Doc(vocabulary, spaces=spaces, **given)


def said(annotation, text):
    """The findings in the words of `FOUND`."""

    def word(span):
        return text[span.start : span.end]

    names = ('noun', 'verb', 'pronoun', 'negation', 'subject', 'object', 'punctuation')
    lines = {name: map(word, annotation.features[name]) for name in names}
    links = {'links': 'verb-subject', 'active': 'verb-nsubj', 'antecedents': 'noun-pronoun'}
    for name, relation in links.items():
        both = annotation.relations[relation]
        lines[name] = (f'{word(each.source[0])}>{word(each.target[0])}' for each in both)
    return '; '.join(f'{name}: {" ".join(words)}'.strip() for name, words in lines.items())


@pytest.mark.parametrize('rows', FOUND, ids=['English', 'Turkish', 'Japanese'])
def test_what_words_are_by_universal_dependencies(trees, rows):
    """The notebook's marks of negation, whose words are English, are the same here."""
    (parse,) = trees(rows)
    (annotation,) = annotate([parse])
    assert said(annotation, parse.example.text_a) == FOUND[rows]
    for name in ('negation_word', 'negation_substring'):
        assert annotation.features[name] == annotation.features['negation']
    assert annotation.words == parse.words


class Pipeline:
    """A spaCy pipeline that knows one sentence."""

    pipe_names, max_length = ('tagger', 'parser'), 100

    def __init__(self, lang, rows, labels=('nsubj',)):
        self.lang, self.labels, self.doc = lang, labels, parsed(rows, spacy.blank(lang).vocab)

    def get_pipe(self, name):
        return types.SimpleNamespace(labels=self.labels)

    def pipe(self, texts):
        return [self.doc for _ in texts]


def test_a_pipeline_of_any_language_finds_the_same(trees, monkeypatch):
    (parse,) = trees(TURKISH)
    monkeypatch.setattr('importlib.metadata.version', lambda name: '1')
    monkeypatch.setattr('spacy.load', lambda *_, **__: Pipeline('tr', TURKISH))
    texts = [Pipeline('tr', TURKISH).doc.text]
    (found,) = annotate(texts, pipeline='tr_core_news_md')
    assert said(found, texts[0]) == said(annotate([parse])[0], parse.example.text_a)
    with pytest.raises(ValueError, match=r"is a pipeline for 'tr': name it tr_"):
        annotate(['A dog ran.'], pipeline='en_core_web_md')
    monkeypatch.setattr('spacy.load', lambda *_, **__: Pipeline('tr', TURKISH, ('sb',)))
    with pytest.raises(ValueError, match="has no 'nsubj', as UD have: use a treebank"):
        annotate(texts, pipeline='tr_core_news_md')


def test_words_without_spaces_come_from_the_treebank(trees, metaspace, tmp_path):
    """Of a text without spaces, the tokenizer says that all of it is one word."""
    (parse,) = trees(JAPANESE)
    whole = tokenize(metaspace, [parse.example])
    assert set(whole.marks[WORD][0].tolist()) == {0, 1, 2}
    annotations = annotate([parse])
    write_annotations(tmp_path / 'own.jsonl', [parse.example], annotations)
    _, again = read_annotations(tmp_path / 'own.jsonl')
    for given in (annotations, again):
        # [CLS] 猫は 魚 を 食べない 。 [SEP]
        assert mark(whole, given).marks[WORD][0].tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.fixture(scope='module')
def metaspace():
    """A tokenizer like XLM-RoBERTa's, with pieces that hold two words, and without '▁魚'."""
    pieces = [
        '<s>',
        '</s>',
        '<pad>',
        '<unk>',
        '▁',
        '▁猫は',
        '猫',
        'は',
        '魚',
        'を',
        '食べない',
        '。',
    ]
    model = tokenizers.models.Unigram([(each, -1.0) for each in pieces], unk_id=3)
    fast = tokenizers.Tokenizer(model)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single='<s> $A </s>',
        pair='<s> $A </s> </s> $B </s>',
        special_tokens=[('<s>', 0), ('</s>', 1)],
    )
    special = {'cls_token': '<s>', 'sep_token': '</s>', 'pad_token': '<pad>', 'unk_token': '<unk>'}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=fast, **special)


def test_words_and_wordpieces_that_share_are_counted(trees, metaspace, caplog):
    caplog.set_level('INFO')
    spaced = JAPANESE.replace('。', '猫')
    parses = trees(JAPANESE, spaced)
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


def test_special_tokens_go_by_their_role(metaspace):
    (batch,) = bs.encode(metaspace, ['猫は', '魚 を'], fewest=9)
    tokens = [metaspace.convert_ids_to_tokens(row.tolist()) for row in batch.input_ids]
    for name, token in (('cls', '<s>'), ('sep', '</s>')):
        assert batch.marks[name].tolist() == [[each == token for each in row] for row in tokens]
    (batch,) = bs.encode(metaspace, ['魚 。'], fewest=9)
    assert batch.marks['period_comma'].sum() == 1
