"""Texts that are surely not English are refused by name; an unsure guess refuses nothing."""

import pytest

from bert_secrets_jax.data.language import foreign_language
from bert_secrets_jax.data.linguistics import annotate

GERMAN = (
    'Der Film war wirklich schön, und wir haben viel gelacht.',
    'Die Schauspieler haben mir leider gar nicht gefallen.',
    'Ich würde ihn kein zweites Mal sehen wollen.',
)
TURKISH = (
    'Film gerçekten çok güzeldi ve hepimiz çok güldük.',
    'Oyuncuları ne yazık ki hiç beğenmedim.',
    'Onu bir daha izlemek istemezdim, çünkü uzundu.',
)
ENGLISH = (
    'The film was really nice, and all of us laughed a lot.',
    'I did not like the actors at all, to be honest.',
    'I would not want to see it a second time.',
)
SHORT = ('gut', 'schlecht', 'nicht gut', 'sehr schön', 'zu lang')


@pytest.mark.parametrize(
    ('texts', 'language', 'name', 'certain'),
    [
        (GERMAN, '', 'German (de)', True),
        (TURKISH, '', 'Turkish (tr)', True),
        (ENGLISH, '', '', True),
        # Many short ones are judged together, and the same one counts once.
        ([f'{one} {two}' for one in SHORT for two in SHORT], '', 'German (de)', True),
        (SHORT * 50, '', '', False),
        # Of two languages, and of none.
        ((*GERMAN, *ENGLISH), '', '', False),
        ((GERMAN[0], *ENGLISH), '', '', True),
        (['CC(=O)OC1=CC=CC=C1C(=O)O', 'CN1C=NC2=C1C(=O)N(C(=O)N2C)C'] * 9, '', '', False),
        (['MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDG', 'MVLSPADKTNVKAAWGKVG'], '', '', False),
        (['for (int i = 0; i < n; i++) { s += a[i]; }', 'x = f(y)'], '', '', False),
        # Kana are of Japanese, in texts of any length; a name in them makes no text Japanese.
        (['犬が走った。', '私は猫を見ました。'], '', 'Japanese (ja)', True),
        ([*ENGLISH, 'She said ありがとう.'], '', '', True),
        ([], '', '', False),
        (['\ud800', ''], '', '', False),
        # Whoever names it is right.
        (GERMAN, 'en', '', True),
        (GERMAN, 'English', '', True),
        (ENGLISH, 'fi', 'Finnish (fi)', True),
        (ENGLISH, 'tlh', "'tlh'", True),
    ],
)
def test_languages(texts, language, name, certain, caplog):
    assert foreign_language(texts, language) == name
    assert ('not certain' not in caplog.text) == certain


def test_words_are_found_in_english_alone():
    with pytest.raises(ValueError, match=r"in German \(de\), and spacy .* or say language='en'"):
        annotate(GERMAN, pipeline='spacy')
