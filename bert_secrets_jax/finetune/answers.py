"""Learning to answer questions from a text: where answers stand, and how predictions are scored.

Axes: E questions, T positions.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Sequence

import numpy as np
from absl import logging
from jaxtyping import Float, Int32

from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.questions import Question, answer_places
from bert_secrets_jax.finetune.losses import NONE
from bert_secrets_jax.stats.student import p_above_zero

# The longest answer in wordpieces, as in the script of BERT's authors.
LONGEST = 30

_ARTICLES = re.compile(r'\b(a|an|the)\b')


@dataclasses.dataclass(frozen=True)
class QuestionAnswers:
    """The answers to questions at their wordpieces."""

    questions: Sequence[Question]
    encoded: Encoded
    # The first and the last wordpiece of an answer; NONE where it was cut off.
    places: Int32[np.ndarray, 'E 2']

    def evaluate(
        self, metrics: Sequence[str], logits: Float[np.ndarray, 'E T two']
    ) -> dict[str, float]:
        """Return the named metrics, 'answer_f1', and the p-value of having learnt nothing.

        The answer is the part of at most LONGEST wordpieces with the greatest sum of both scores.
        Its rival is the part where the answer to the question before stands in its text.
        """
        spans = [self._best(row, each) for row, each in enumerate(logits)]
        scores = np.array([self._scores(row, span) for row, span in enumerate(spans)])
        elsewhere = [self._scores(row, self._moved(row, spans))[1] for row in range(len(spans))]
        found: dict[str, float] = dict(
            zip(('exact_match', 'answer_f1'), scores.mean(axis=0).tolist(), strict=True)
        )
        values = {name: found[name] for name in metrics}
        return values | {
            'score': float(np.mean(list(values.values()))),
            'answer_f1': found['answer_f1'],
            'p_learnt': p_above_zero(scores[:, 1] - np.array(elsewhere)),
        }

    def _best(self, row: int, logits: np.ndarray) -> tuple[int, int]:
        places = np.flatnonzero(self.encoded.text[row] == 1)
        if not len(places):
            return 0, 0
        first, last = logits[places].T
        both = first[:, None] + last[None]
        length = np.arange(len(places))[None] - np.arange(len(places))[:, None]
        both = np.where((length >= 0) & (length < LONGEST), both, -np.inf)
        first, last = places[list(np.unravel_index(both.argmax(), both.shape))].tolist()
        return first, last

    def _moved(self, row: int, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the place, in the text of a question, of the answer to the question before."""
        # Places count from the first wordpiece of a text: questions differ in length.
        starts = [(self.encoded.text[each] == 1).argmax() for each in (row, row - 1)]
        shift = int(starts[0] - starts[1])
        first, last = spans[row - 1]
        return first + shift, last + shift

    def _scores(self, row: int, span: tuple[int, int]) -> tuple[float, float]:
        """Return exact match and F1 of the best of the right answers."""
        question = self.questions[row]
        of_text = np.append(self.encoded.text[row], -1) == 1
        first, last = (min(each, len(of_text) - 1) for each in span)
        answer = ''
        # An answer that reaches beyond a shorter text ends with it.
        if of_text[first]:
            last = np.flatnonzero(of_text[: last + 1])[-1]
            offsets = self.encoded.offsets[row]
            answer = question.context[offsets[first, 0] : offsets[last, 1]]
        right = [text for text, _ in question.answers]
        return (
            max(exact_match(answer, each) for each in right),
            max(word_f1(answer, each) for each in right),
        )


def answers_of(encoded: Encoded, questions: Sequence[Question], split: str) -> QuestionAnswers:
    """Return the answers to questions that were tokenised in the same order."""
    places = answer_places(encoded, questions)
    lost = int((places == NONE).any(axis=1).sum())
    if lost == len(questions):
        raise ValueError(
            f'{split} questions: the texts were cut before the answer in all of them. Raise '
            'max_length.'
        )
    if lost:
        logging.warning(
            '%s questions: %d of %d texts were cut before the answer. Nothing is learnt from them, '
            'and they cannot be answered. Texts are not divided into windows.',
            split, lost, len(questions),
        )  # fmt: skip
    return QuestionAnswers(questions, encoded, places)


def exact_match(answer: str, right: str) -> float:
    """Return 1 if two answers are the same words, else 0 (Rajpurkar et al. 2016, section 6.1)."""
    return float(_words(answer) == _words(right))


def word_f1(answer: str, right: str) -> float:
    """Return the F1 score of the words of two answers (Rajpurkar et al. 2016, section 6.1)."""
    ours, theirs = _words(answer), _words(right)
    shared = sum((collections.Counter(ours) & collections.Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs)) if shared else float(ours == theirs)


def _words(text: str) -> list[str]:
    """Return the words without case, punctuation and articles."""
    text = ''.join(each for each in text.lower() if each not in string.punctuation)
    return _ARTICLES.sub(' ', text).split()
