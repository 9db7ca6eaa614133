"""Questions whose answers stand in a text, as in SQuAD."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int32

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.rows import AnyPath, Row, check_texts, good_rows
from bert_secrets_jax.data.tasks import Example, Placed
from bert_secrets_jax.files import read_json


@dataclasses.dataclass(frozen=True)
class Question(Placed):
    """A question about a text, with its answers: parts of the text, any of which is right.

    Attributes:
      question, context: The question, and the text.
      answers: The right answers, each with the place of its first character in the text.
      id, where: As in `Example`.
    """

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    id: str = ''
    where: str = dataclasses.field(default='', repr=False, compare=False)

    def __post_init__(self):
        check_texts(self, 'question', 'context')
        answers = tuple((text, start) for text, start in self.answers)
        object.__setattr__(self, 'answers', answers)
        if not answers:
            raise ValueError(
                'There is no answer. Questions without one (SQuAD 2) cannot be learnt: leave them '
                'out.'
            )
        for text, start in answers:
            there = isinstance(start, int) and start >= 0 and isinstance(text, str)
            if not there or not text or self.context[start : start + len(text)] != text:
                raise ValueError(f'The answer {text!r} does not stand at character {start!r}.')

    @property
    def example(self) -> Example:
        """The pair that a model reads: question and text."""
        return Example(self.question, self.context, id=self.id, where=self.where)


def read_questions(path: AnyPath, *, bad_rows: str = 'error') -> list[Question]:
    """Read questions in the layout of SQuAD 1.1 (`.json`), or as JSON lines (`.jsonl`).

    Each line has 'question', 'context' and 'answers', an object with the lists 'text' and
    'answer_start', as data sets of Hugging Face have them. A question is bad whose answer is
    missing or does not stand in the text; `bad_rows` is as in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some questions are bad, or the file is of another layout.
    """
    path = pathlib.Path(path)
    suffix = path.suffix.lower()
    check_name(f'{path} of SQuAD: the ending', suffix, ('.json', '.jsonl'))

    def read(row: dict[str, Any], *place: str) -> Question:
        answers = row['answers']
        if isinstance(answers, dict):
            pairs = zip(answers['text'], answers['answer_start'], strict=True)
        else:
            pairs = ((answer['text'], answer['answer_start']) for answer in answers)
        # Each answer once.
        return Question(row['question'], row['context'], tuple(dict.fromkeys(pairs)), *place)

    if suffix == '.jsonl':
        return list(good_rows(path, None, read, bad_rows))
    try:
        rows = [
            Row(f'question {asked.get("id", number)}', asked | {'context': paragraph['context']})
            for article in read_json(path)['data']
            for paragraph in article['paragraphs']
            for number, asked in enumerate(paragraph['qas'])
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path} is not laid out as SQuAD is: {error!r}.') from error
    return list(good_rows(path, rows, read, bad_rows))


def answer_places(encoded: Encoded, questions: Sequence[Question]) -> Int32[np.ndarray, 'E 2']:
    """Return the first and last wordpiece of each first answer; -1 where a part was cut off."""
    found = np.full((len(questions), 2), -1, np.int32)
    for row, question in enumerate(questions):
        text, start = question.answers[0]
        in_text = encoded.text[row] == 1
        first, last = encoded.offsets[row].T
        inside = np.flatnonzero(in_text & (last > start) & (first < start + len(text)))
        # A text that was cut ends before the answer does.
        if inside.size and last[in_text].max() >= start + len(text.rstrip()):
            found[row] = inside[0], inside[-1]
    return found
