"""The language of texts, found offline, because each spaCy pipeline is made for one."""

import collections
import functools
import re
from collections.abc import Sequence

from absl import logging

# py3langid's probability from which a text counts, and the share of characters that decides.
_SURE, _MOST = 0.8, 0.5
# Fewer characters are never foreign. Unsure texts are read together, up to so many characters.
_FEWEST, _TOGETHER = 100, 300
_TEXTS, _LONGEST = 1000, 1000
# Hiragana and katakana, and their share of the characters from which even a short text is Japanese:
# each of the 1,000 sentences of UD PUD has more.
_KANA = re.compile('[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]')
_OF_KANA = 0.15


def language_of(pipeline: str) -> str:
    """Return the language of a spaCy pipeline, with which its name begins: 'de_core_news_sm'."""
    code, named, _ = pipeline.partition('_')
    return code if named and len(code) < 4 else 'en'


def foreign_language(texts: Sequence[str], language: str = '', *, to: str = 'en') -> str:
    """Return the language of texts, such as 'German (de)', if they are surely in another than `to`.

    It is '' if they may be in that one. The language of the texts can be given, such as 'de'. ''
    finds it from all texts, of which the same one counts once; a warning says if it is not certain.
    """
    joined = ''.join(texts)
    if not language and len(_KANA.findall(joined)) > _OF_KANA * len(joined):
        language = 'ja'
    if not language:
        shares = _shares([text[:_LONGEST] for text in dict.fromkeys(texts)][:_TEXTS], to)
        own = shares.pop(to, 0)
        foreign = sum(shares.values())
        if foreign >= max(_MOST, _SURE * (foreign + own)):
            language = max(shares, key=lambda code: shares[code])
        elif own < _MOST:
            logging.warning(
                'The language of these texts is not certain, and words are found as in %r. If it '
                'is another one, name it (setting data.language, in Python language=...).', to,
            )  # fmt: skip
    if language.lower().startswith(to) or not language:
        return ''
    try:
        # Imported late because it takes seconds.
        import spacy

        return f'{spacy.util.get_lang_class(language).__name__} ({language})'
    except ImportError:
        return repr(language)


def _shares(texts: Sequence[str], to: str) -> dict[str, float]:
    """Return the share of the characters that are surely in each language, by its code."""
    found, together, total = collections.Counter(), [''], sum(map(len, texts))
    for text in texts:
        found[code := _sure(text)] += len(text)
        if not code:
            together[-1] += f' {text}'
            together += [''] * (len(together[-1]) > _TOGETHER)
    for text in together:
        found[_sure(text)] += len(text)
    # Formulas and the like are 'zxx'.
    known = [code for code in found if code not in ('', 'zxx') and found[code]]
    return {code: found[code] / total for code in known if code == to or total >= _FEWEST}


def _sure(text: str) -> str:
    """Return the code of the language of a text; '' if it is not certain."""
    code, probability = _identifier().classify(text.encode(errors='replace'))
    return code if probability >= _SURE else ''


@functools.cache
def _identifier():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
