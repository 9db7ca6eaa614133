"""Questions and answers: what is read and refused, and the wordpieces of an answer."""

import json

import pytest

from bert_secrets_jax.data import questions
from bert_secrets_jax.data.encoding import tokenize

CONTEXT = 'The cat ran and the old dog saw the house.'
LINE = {
    'question': 'Who saw the house?',
    'context': CONTEXT,
    'answers': {'text': ['the old dog', 'the old dog', 'dog'], 'answer_start': [16, 16, 24]},
}


def test_both_layouts_are_the_same(tmp_path):
    (tmp_path / 'q.jsonl').write_text(json.dumps(LINE) + '\n\n')
    pairs = zip(*LINE['answers'].values(), strict=True)
    answers = [{'text': text, 'answer_start': start} for text, start in pairs]
    asked = {'id': 'x', 'question': LINE['question'], 'answers': answers}
    (tmp_path / 'q.json').write_text(
        json.dumps({'data': [{'paragraphs': [{'context': CONTEXT, 'qas': [asked]}]}]})
    )
    (one,), (other,) = (questions.read_questions(tmp_path / f'q.{e}') for e in ('jsonl', 'json'))
    assert one == other
    assert one.answers == (('the old dog', 16), ('dog', 24)) and one.id == 'q/0'
    assert other.place.endswith('q.json, question x')


def test_other_files(tmp_path):
    (tmp_path / 'q.json').write_text('{"data": 3}')
    with pytest.raises(ValueError, match=r'q\.json is not laid out as SQuAD'):
        questions.read_questions(tmp_path / 'q.json')
    with pytest.raises(ValueError, match=r"of SQuAD: the ending='\.txt' must be"):
        questions.read_questions(tmp_path / 'q.txt')


def test_the_wordpieces_of_an_answer(tokenizer):
    asked = questions.Question('she?', CONTEXT, (('the old dog', 16),))
    last = questions.Question('he?', CONTEXT, (('the house.', CONTEXT.index('the house')),))
    encoded = tokenize(tokenizer, [asked.example, last.example])
    found = questions.answer_places(encoded, [asked, last])
    for row, (first, end) in enumerate(found):
        text, start = (asked, last)[row].answers[0]
        assert encoded.offsets[row, first, 0] == start
        assert encoded.offsets[row, end, 1] == start + len(text)
        assert encoded.text[row, first] == encoded.text[row, end] == 1


def test_an_answer_that_was_cut_off_has_no_place(tokenizer):
    asked = questions.Question('she?', CONTEXT, (('old dog', 20),))
    # [CLS] she ? [SEP] the cat ran and the old dog, and [SEP].
    for length in range(8, 16):
        cut = tokenize(tokenizer, [asked.example], max_length=length)
        found = questions.answer_places(cut, [asked])[0].tolist()
        assert found == ([9, 10] if length > 11 else [-1, -1])
