"""Files of JSON lines: a bad line is named, and can be left out."""

import functools
import json
import re

import pytest

from bert_secrets_jax.data import annotation, framenet, questions, tables, tagged
from tests.data.test_framenet import PREPARED
from tests.data.test_questions import LINE


def record(**changes):
    return {'text_a': 'the cat'} | changes


def answered(texts, starts):
    return LINE | {'answers': {'text': texts, 'answer_start': starts}}


read_texts = functools.partial(tables.read_table, text_a='s', label='y')
# A reader, a good line, and bad ones with what is said of them.
FORMATS = [
    (
        annotation.read_annotations,
        record(),
        [
            ('{"text_a": ', 'malformed JSON at column 12'),
            ({'text_b': 'a'}, "no 'text_a'"),
            (record(label=1), "key='label' must be 'text_a', "),
            (record(features=[]), "'features': [] is not a JSON object"),
            (record(features={'f': 3}), "feature 'f': 3 is not a list"),
            (record(features={'f': [[0, True]]}), "feature 'f': [0, true] is not [start, end]"),
            (record(features={'f': [[0, 8]]}), 'span [0, 8] is not within text_a, which has 7'),
            (record(features={'f': [[-1, 3]]}), 'span [-1, 3] is empty: it needs 0 <= start'),
            (record(features={'f': [[0, 1, 1]]}), 'span [0, 1, 1], but there is no text_b'),
            (record(features={'f': [[0, 1, 2]]}), 'span in text 2: text_a is 0'),
            (record(features={'cls': []}), "'cls' cannot name a feature"),
            (record(features={'r': []}, relations={'r': []}), "'r' names a feature and a relation"),
            (
                record(relations={'r': [[0, 3]]}),
                "relation 'r': a link: [0, 3] is not a JSON object",
            ),
            (record(relations={'r': [{'from': []}]}), "key='from' must be 'source' or 'target'"),
            (record(relations={'r': [{'source': [[0, 3]]}]}), 'a link needs at least one span'),
        ],
    ),
    (
        read_texts,
        {'s': 'Fine', 'y': 1},
        [
            ({'s': 'No label'}, "no 'y'"),
            ({'s': ['nested'], 'y': 0}, "'s' is not a text"),
            ({'s': 'Half a smile \ud83d', 'y': 0}, 'surrogates not allowed'),
            ('{"s": ' + '9' * 5000 + '}', 'digits'),
        ],
    ),
    (
        framenet.read_framenet_sample,
        PREPARED,
        [
            (PREPARED | {'target_span': [16, 99]}, 'not within text_a'),
            (PREPARED | {'target_span': [16]}, '[16] is not [start, end]'),
            (PREPARED | {'link_spans': 3}, "'link_spans': 3 is not a list"),
            (PREPARED | {'sentence': 7}, "'sentence': 7 is not a text"),
            ({'sentence': 'He sat.', 'link_spans': []}, "there is no 'target_span'"),
        ],
    ),
    (
        questions.read_questions,
        LINE,
        [
            (answered([], []), 'There is no answer. Questions without one (SQuAD 2)'),
            (answered(['dog'], [3]), "'dog' does not stand at character 3"),
            (answered(['dog'], []), ''),
            (LINE | {'question': ''}, "question='' must be a text"),
            (LINE | {'context': 3}, 'context=3 must be a text'),
        ],
    ),
    (
        tagged.read_tagged,
        {'tokens': ['A'], 'tags': ['D']},
        [
            ({'tokens': ['A'], 'tags': ['DET', 'X']}, 'There are 1 words and 2 tags'),
            ({'tokens': ['A']}, "there is no 'tags'"),
            ({'tokens': 'A', 'tags': 'D'}, "'tokens': 'A' is not a list"),
            ({'tokens': ['A'], 'tags': [3]}, 'the tag 3 is no text: give names'),
            ({'tokens': [' '], 'tags': ['X']}, 'or a word or a tag is empty'),
            ({'tokens': [1], 'tags': ['X']}, 'must be a sequence of texts'),
            ({'tokens': ['A'], 'tags': ['D ']}, "the tag 'D ' has a space at its ends"),
            ({'tokens': ['A'], 'tags': ['D\ud83d']}, 'surrogates not allowed'),
        ],
    ),
]


@pytest.mark.parametrize(
    ('read', 'good', 'bad', 'fault'),
    [(read, good, *each) for read, good, lines in FORMATS for each in lines],
)
def test_a_bad_line_is_named(tmp_path, untyped, read, good, bad, fault):
    path = tmp_path / 'bad.jsonl'
    bad = bad if isinstance(bad, str) else json.dumps(bad)
    path.write_text(f'{json.dumps(good)}\n{bad}\n')
    with pytest.raises(ValueError, match=f'bad.jsonl: 1 of 2 .* line 2: .*{re.escape(fault)}'):
        read(path)
    found = read(path, bad_rows='skip')
    assert len(found[0] if isinstance(found, tuple) else found) == 1
