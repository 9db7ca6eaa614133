"""Sentences with dependency trees, from files in CoNLL-U (Universal Dependencies).

Shapes: E sentences, T positions of wordpieces.
"""

import dataclasses
import graphlib
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_secrets_jax.checks import check_lengths, check_name, shortened
from bert_secrets_jax.data.annotation import Annotation, Link, Span, words_of_pieces
from bert_secrets_jax.data.encoding import WORD, Encoded, tokenize
from bert_secrets_jax.data.rows import AnyPath, Lines, Row, good_rows
from bert_secrets_jax.data.tasks import Example

# The relations that Clark et al. leave out: the root has no head, and punctuation hangs anywhere.
LEFT_OUT = ('root', 'punct')
# Names the columns of a file that has others, in its first line (CoNLL-U Plus).
_NAMES = '# global.columns'


@dataclasses.dataclass(frozen=True)
class Parse:
    """A sentence and its dependency tree. Words count from 0.

    Attributes:
      example: The text of the sentence.
      words: The characters of each word in the text.
      forms: Each word as the treebank writes it: of "don't", 'do' and "n't".
      heads: The word that governs each word; -1 for the root.
      relations: The relation of each word to its head, such as 'nsubj' or 'nsubj:pass'.
      classes: The part of speech (UPOS) of each word, such as 'NOUN'.
      features: The features of each word, such as {'Polarity': 'Neg'}; none are known if empty.
    """

    example: Example
    words: tuple[Span, ...]
    forms: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self):
        of_words = ('words', 'forms', 'heads', 'relations', 'classes')
        check_lengths(**{name: getattr(self, name) for name in of_words})
        count = len(self.words)
        for word, head in enumerate(self.heads):
            if not -1 <= head < count:
                raise ValueError(f'{self.forms[word]!r} has the head {head + 1} of {count} words')
            if head == word:
                raise ValueError(f'{self.forms[word]!r} is its own head')

    @property
    def annotation(self) -> Annotation:
        """The relations as links from each word to its head, and the word classes."""
        links: dict[str, list[Link]] = {}
        for word, head, relation in zip(self.words, self.heads, self.relations, strict=True):
            if head >= 0 and relation not in LEFT_OUT:
                links.setdefault(relation, []).append(Link((word,), (self.words[head],)))
        classes: dict[str, list[Span]] = {}
        for span, name in zip(self.words, self.classes, strict=True):
            classes.setdefault(name, []).append(span)
        relations = {name: tuple(each) for name, each in links.items()}
        return Annotation({}, relations, {name: tuple(each) for name, each in classes.items()})


def sentences_of(path: AnyPath) -> list[Row]:
    """Return the lines of each sentence of a CoNLL-U file."""
    lines, found = list(Lines(path)), []
    names = lines.pop(0)[1] if lines and lines[0][1].startswith(_NAMES) else ''
    for is_blank, numbered in itertools.groupby(lines, lambda each: not each[1].strip()):
        numbers, part = zip(*numbered, strict=True)
        named = re.search(r'^# *sent_id *= *([^\r\n]+)', ''.join(part), re.MULTILINE)
        where = f'sentence at line {numbers[0]}' + (f' (sent_id {named[1]})' if named else '')
        if not is_blank:
            found.append(Row(where, names + ''.join(part).strip()))
    return found


def words_of(sentence: str) -> tuple[Any, list[Any]]:
    """Return the lines of a sentence in CoNLL-U as dictionaries of its columns, and its words.

    ValueError if it is no CoNLL-U, its words are not numbered from 1 on, or a line has no word.
    """
    import conllu
    import conllu.exceptions

    if '\r' in sentence and '\n' not in sentence:
        raise ValueError('its lines end in carriage returns alone: end them in line feeds')
    try:
        found = conllu.parse(sentence, field_parsers={'feats': _features})
    except conllu.exceptions.ParseException as error:
        raise ValueError(f'it is no CoNLL-U: {error}') from error
    if not found or not len(found[0]):
        raise ValueError('it has no words')
    lines = [line for line in sentence.split('\n') if not line.startswith('#')]
    widths = sorted({len(re.split(r'\t| {2,}', line)) for line in lines})
    if len(widths) > 1:
        raise ValueError(f'its lines have {widths[0]} to {widths[-1]} columns')
    words = [token for token in found[0] if isinstance(token['id'], int)]
    numbers = [word['id'] for word in words]
    if numbers != list(range(1, len(words) + 1)):
        raise ValueError(f'its words are numbered {shortened(numbers)}, not from 1 to {len(words)}')
    if not all(token['form'] for token in found[0]):
        raise ValueError('a line has no form, which is the word as it is written')
    return found[0], words


def in_column(word: Mapping[str, Any], name: str) -> Any:
    """Return what a word has in a column; ValueError if that is nothing."""
    if word.get(name) in (None, '_'):
        raise ValueError(f'{word["form"]!r} has no {name}')
    return word[name]


def _features(line: list[str], column: int) -> dict[str, str]:
    pairs = [each.split('=') for each in line[column].split('|') if line[column] not in ('_', '')]
    found = dict(pair for pair in pairs if len(pair) == 2 and all(pair))
    if len(found) < len(pairs):
        raise ValueError(f'{line[column]!r} are no features, such as Case=Nom|Number=Sing')
    return found


def read_treebank(path: AnyPath, *, bad_rows: str = 'error') -> list[Parse]:
    """Read sentences with their dependency trees from a file in CoNLL-U.

    The text of a sentence is put together from its tokens, with a space after each that is not
    marked SpaceAfter=No. A contraction ("2-3 don't") is written as it stands, and its words share
    its letters: each has its own where they add up to it, as 'do' and "n't" do, and otherwise all
    have all. Words that are not written ("8.1") are left out. A sentence without a whole tree, of
    one root, is bad; `bad_rows` is as in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: A word has no head or no relation, heads go round in a circle, there are several
        roots, or the file is no CoNLL-U.
    """
    return list(good_rows(path, sentences_of(path), _parse, bad_rows))


def read_treebanks(*paths: str, bad_rows: str = 'error') -> dict[str, list[Parse]]:
    """Read several files as `read_treebank` does: sentences by the names of their files.

    The names have no folder, unless two would be the same.
    """
    named = named_by_file(paths).items()
    return {name: read_treebank(path, bad_rows=bad_rows) for name, path in named}


def named_by_file(paths: Sequence[str]) -> dict[str, str]:
    """Return files by their names, with folders if two are alike."""
    stems = [pathlib.PurePath(path).stem for path in paths]
    return dict(zip(stems if len({*stems}) == len(paths) else paths, paths, strict=True))


def forms_of(*treebanks: Sequence[Parse]) -> list[str]:
    """Return the words of sentences with trees, each as often as it occurs (`read_vectors`)."""
    return [form for parses in treebanks for parse in parses for form in parse.forms]


def treebank_sample(split: str = 'dev') -> list[Parse]:
    """Read a split of the embedded treebank: 180 sentences, written and annotated for this project.

    They are news, mail, reports and instructions as people write them, of 10 to 21 words, by the
    guidelines of Universal Dependencies 2 for English. Apache-2.0, like the rest of the project.
    The splits are 'train' (100 sentences) and 'dev' (80).

    Raises:
      ValueError: There is no such split.
    """
    check_name('split', split, ('train', 'dev'))
    return read_treebank(pathlib.Path(__file__).parent / 'trees' / f'{split}.conllu')


def _parse(lines: str, identity: str, where: str) -> Parse:
    sentence, words = words_of(lines)
    heads = tuple(in_column(word, 'head') - 1 for word in words)
    text, spans = _laid_out(sentence)
    parse = Parse(
        example=Example(text, id=identity, where=where),
        words=tuple(spans),
        forms=tuple(word['form'] for word in words),
        heads=heads,
        relations=tuple(in_column(word, 'deprel') for word in words),
        classes=tuple(
            'X' if word.get('upos') in (None, '', '_') else word['upos'] for word in words
        ),
        features=tuple(word.get('feats') or {} for word in words),
    )
    # From each word a way along heads leads to the one root.
    try:
        graphlib.TopologicalSorter({n: [head] for n, head in enumerate(parse.heads)}).prepare()
    except graphlib.CycleError as error:
        form = parse.forms[min(error.args[1])]
        raise ValueError(f'the heads go round in a circle from {form!r}') from None
    if (roots := parse.heads.count(-1)) > 1:
        raise ValueError(f'{roots} words have the head 0, and a tree has one root')
    for form, head, relation in zip(parse.forms, parse.heads, parse.relations, strict=True):
        if (head < 0) != (relation.partition(':')[0].lower() == 'root'):
            raise ValueError(
                f'{form!r} has the head {head + 1} and is {relation!r}: head 0 and root go together'
            )
    return parse


def _laid_out(sentence) -> tuple[str, list[Span]]:
    """Return the text of a sentence, and the characters of each word in it."""
    text, last = '', 0
    words = {each['id']: each['form'] for each in sentence if isinstance(each['id'], int)}
    spans: list[Span] = []
    for token in sentence:
        number, form = token['id'], token['form']
        if isinstance(number, int):
            if number <= last:
                # It is part of a contraction, which is written already.
                continue
            forms = [form]
        elif number[1] == '-':
            first, _, last = number
            if first != len(spans) + 1:
                raise ValueError(
                    f'{shortened(form)} begins within a contraction, or not before word {first}'
                )
            if not first < last <= len(words):
                raise ValueError(f'{shortened(form)} is words {first} to {last} of {len(words)}')
            forms = [words[each] for each in range(first, last + 1)]
        else:
            continue
        if ''.join(forms) == form:
            ends = itertools.accumulate(map(len, forms), initial=len(text))
            spans += itertools.starmap(Span, itertools.pairwise(ends))
        else:
            # The words do not add up to what is written, and all have all of it.
            spans += [Span(len(text), len(text) + len(form))] * len(forms)
        text += form
        if (token.get('misc') or {}).get('SpaceAfter') != 'No':
            text += ' '
    return text.rstrip(' '), spans


def encode_parses(tokenizer, parses: Sequence[Parse], *, max_length: int | None = None) -> Encoded:
    """Tokenise sentences, with the number of its word, from 0, as the mark 'word' of a wordpiece.

    It is -1 on special tokens and padding. The words are those of the treebank, as in Clark et al.
    2019, section 4.1. A wordpiece that several words share belongs to the first of them, and a lone
    boundary of words to the word that begins there. A log line has what `count_pieces` counts.
    """
    encoded = tokenize(tokenizer, [parse.example for parse in parses], max_length=max_length)
    words, about = words_of_pieces([parse.words for parse in parses], encoded)
    logging.info('%s', about)
    return dataclasses.replace(encoded, marks={**encoded.marks, WORD: words})


def count_pieces(encoded: Encoded, parses: Sequence[Parse]) -> dict[str, int]:
    """Count, by what they are, words and wordpieces of tokenised sentences that share or are alone.

    Words without a wordpiece are cut off, or share all of theirs with a word before. Lone
    boundaries are wordpieces without characters.
    """
    return words_of_pieces([parse.words for parse in parses], encoded)[1]
