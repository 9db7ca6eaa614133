"""Much of one thing: what is long, wide, deep or compressed is refused or read in a moment."""

import gzip
import json
import lzma
import random
from collections.abc import Callable
from typing import Any

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.checks import summary
from bert_secrets_jax.data.treebank import encode_parses
from bert_secrets_jax.finetune.config import listed_seeds
from tests.conftest import rarely
from tests.fuzz import broken
from tests.fuzz.broken import FOLDER, folder_of, within_limits

MANY = 100_000
SPARSE = 'sparse'  # one of `KINDS`
_WORD = 'x' * 20 * MANY
_ROOT, _OTHER = (f'{{}}\t{{}}\t_\tNOUN\t_\t_\t{at}\t_\t_' for at in ('0\troot', '1\tdep'))
_KEYS = ', '.join(f'"k{number}": 1' for number in range(2 * MANY))
_LABELS = tuple(f'n{number}' for number in range(MANY))
_SPANS = {'source': [[4, 7]], 'target': [[8, 11]]}


def _sentence(words: int, contracted: bool = False) -> str:
    lines = []
    for number in range(1, words + 1):
        if contracted and number % 2:
            lines.append(f'{number}-{number + 1}\tcat' + 8 * '\t_')
        lines.append((_ROOT if number == 1 else _OTHER).format(number, 'cat'))
    return '\n'.join(lines) + '\n'


def _annotated(**more: Any) -> str:
    return json.dumps({'text_a': 'the cat saw a dog', **more}) + '\n'


def _table(name: str, **more: Any) -> Callable[[], Any]:
    return lambda: bs.read_table(FOLDER / name, text_a='text', **more)


def _marked(tokenizer) -> list:
    texts, annotations = bs.read_annotations(FOLDER / 'a.jsonl')
    return bs.encode(tokenizer, texts, annotations=annotations)


def _parsed(tokenizer) -> None:
    encode_parses(tokenizer, bs.read_treebank(FOLDER / 'a.conllu'))


# Lines that hardly shrink: two megabytes.
_NOISE = gzip.compress(random.Random(0).randbytes(10**6).hex('\n', 1000).encode())
_RARE = 'text,label\n' + ''.join(f'cat,q{number}\n' for number in range(2000))
_LINKS, _BAD = {'relations': {'r': [_SPANS] * (MANY // 5)}}, 'unknown label'
_OFTEN = ['a key twice', 'sentences', 'labels', 'rows', 'letters of prose', 'contractions', 'heads']
_OFTEN += [f'bytes of a.{kind}' for kind in ('csv', 'jsonl', 'conllu', 'txt', 'json')]
# The name of a file, its content, how it is read, and a part of the error; '' if it is read.
CASES = {
    'a key twice': ('a.jsonl', f'{{{_KEYS}, "k7": 2}}', _table('a.jsonl'), "'k7' occurs twice"),
    'columns': ('a.tsv', '\t'.join(_LABELS), _table('a.tsv'), "no column 'text'"),
    'lines': ('a.csv.gz', gzip.compress(b'text\n' * 5 * MANY), _table('a.csv.gz'), 'unpacks to'),
    'sentences': (
        'a.conllu.xz', lzma.compress(_sentence(1).encode() * MANY, preset=0),
        lambda: bs.read_treebank(FOLDER / 'a.conllu.xz'), 'unpacks to',
    ),
    'lines behind others': (
        'a.gz', _NOISE + gzip.compress((b'c' * 999 + b'\n') * 1000) * 120,
        lambda: list(bs.stream_texts(FOLDER / 'a.gz')), 'unpacks to',
    ),
    'blank lines': (
        'a.gz', gzip.compress(b'\n' * 20 * MANY), lambda: bs.stream_texts(FOLDER / 'a.gz'),
        'unpacks to',
    ),
    'a label twice': (
        'a.csv', _RARE, _table('a.csv', label='label', labels=_LABELS[-2:] + _LABELS),
        "'n99998' twice",
    ),
    'labels': ('a.csv', _RARE, _table('a.csv', label='label', labels=_LABELS), _BAD),
    'rows': (
        'a.csv', _RARE * 20, _table('a.csv', label='label', labels=_LABELS[:900]), _BAD,
    ),
    'tags': (
        'a.jsonl', json.dumps({'tokens': ['cat'], 'tags': ['q']}),
        lambda: bs.read_tagged(FOLDER / 'a.jsonl', names=_LABELS), 'one of 100,000',
    ),
    'letters of a word': (
        'a.conllu', _ROOT.format(1, _WORD), _parsed, 'characters of text_a have no 16385 tokens',
    ),
    'letters of a text': (
        'a.txt', f'the cat {_WORD}',
        lambda tokenizer: list(bs.stream_batches(tokenizer, bs.stream_texts(FOLDER / 'a.txt'))),
        'characters of text_a have no 16385 tokens',
    ),
    'letters of prose': (
        'a.txt', f'The cat ran.\nA {_WORD} ran. It ran.',
        lambda tokenizer: bs.read_segments(FOLDER / 'a.txt', tokenizer),
        'line 2: a word has 2,000,000 characters',
    ),
    'links': ('a.jsonl', _annotated(**_LINKS), _marked, ''),
    'words': (
        'a.conllu', _sentence(MANY // 10),
        lambda: bs.read_treebank(FOLDER / 'a.conllu')[0].annotation, '',
    ),
    'contractions': (
        'a.conllu', _sentence(MANY // 10, contracted=True),
        lambda: bs.read_treebank(FOLDER / 'a.conllu'), '',
    ),
    'contractions of all words': (
        'a.conllu', '\n'.join(
            line for number in range(1, 4000)
            for line in ('1-3999\tcat' + 8 * '\t_', _OTHER.format(number, 'cat'))
        ), lambda: bs.read_treebank(FOLDER / 'a.conllu'), 'begins within a contraction',
    ),
    'heads': (
        'a.txt', '', lambda config: bs.masks.random_sets(config, size=1, count=10**30, seed=0),
        'count=.* must be a whole number',
    ),
    'seeds': ('a.txt', '', lambda: listed_seeds(10**12), 'at most 1,000'),
    # Files of 100 gigabytes of nothing.
    **{
        f'bytes of {name}': (name, SPARSE, read, rf'{name}.* bytes')
        for name, read in {
            'a.csv': _table('a.csv'),
            'a.jsonl': _table('a.jsonl'),
            'a.conllu': lambda: bs.read_treebank(FOLDER / 'a.conllu'),
            'a.txt': lambda tokenizer: bs.read_segments(FOLDER / 'a.txt', tokenizer),
            'a.json': lambda: bs.read_questions(FOLDER / 'a.json'),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize('name', rarely(list(CASES), often=_OFTEN))
def test_much_of_one_thing(request, monkeypatch, name):
    file, content, read, fault = CASES[name]
    given = [request.getfixturevalue(each) for each in read.__code__.co_varnames[:1]]
    given = given if read.__code__.co_argcount else []
    monkeypatch.setattr(broken, 'SECONDS', 8)
    if isinstance(content, str) and content != SPARSE:
        content = content.encode()
    with folder_of({file: content}), within_limits():
        if not fault:
            assert read(*given) is not None
            return
        with pytest.raises(ValueError, match=fault) as caught:
            read(*given)
    assert len(summary(caught.value)) < 2000
