"""Learning to answer questions from a text: where answers stand, and how predictions are scored.

Axes: E questions, T positions.
"""

import collections
import re
import string
from collections.abc import Sequence

import numpy as np
from absl import logging
from jaxtyping import Float, Int, Int32

from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.questions import Question, answer_places
from bert_secrets_jax.finetune.losses import NONE
from bert_secrets_jax.finetune.metrics import scored
from bert_secrets_jax.stats.student import p_above_zero

# The longest answer in wordpieces, as in the script of BERT's authors.
LONGEST = 30

_ARTICLES = re.compile(r'\b(a|an|the)\b')


def places_of(
    encoded: Encoded, questions: Sequence[Question], split: str
) -> Int32[np.ndarray, 'E 2']:
    """Return the first and last wordpieces of the answers to questions that were tokenised.

    They are NONE where an answer was cut off.
    """
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
    return places


def evaluate(
    encoded: Encoded,
    questions: Sequence[Question],
    metrics: Sequence[str],
    logits: Float[np.ndarray, 'E T two'],
) -> dict[str, float]:
    """Return the named metrics, 'answer_f1', and the p-value of having learnt nothing.

    The answer is the part of at most LONGEST wordpieces with the greatest sum of both scores. Its
    rival is the part where the answer to the question before stands in its text.
    """
    in_text = encoded.text == 1
    spans = np.array([_best(*each) for each in zip(in_text, logits, strict=True)])
    # Places count from the first wordpiece of a text: questions differ in length.
    starts = in_text.argmax(axis=1)[:, None]
    moved = np.roll(spans - starts, 1, axis=0) + starts
    found, elsewhere = (
        np.array([_scores(encoded, row, questions[row], span) for row, span in enumerate(some)])
        for some in (spans, moved)
    )
    exact, f1 = found.mean(axis=0).tolist()
    return scored(metrics, {'exact_match': exact, 'answer_f1': f1}) | {
        'answer_f1': f1,
        'p_learnt': p_above_zero(found[:, 1] - elsewhere[:, 1]),
    }


def _best(in_text: np.ndarray, logits: np.ndarray) -> tuple[int, int]:
    places = np.flatnonzero(in_text)
    if not len(places):
        return 0, 0
    first, last = logits[places].T
    both = first[:, None] + last[None]
    length = np.arange(len(places))[None] - np.arange(len(places))[:, None]
    both = np.where((length >= 0) & (length < LONGEST), both, -np.inf)
    first, last = places[list(np.unravel_index(both.argmax(), both.shape))].tolist()
    return first, last


def _scores(
    encoded: Encoded, row: int, question: Question, span: Int[np.ndarray, ' 2']
) -> tuple[float, float]:
    """Return exact match and F1 of the best of the right answers."""
    of_text = np.append(encoded.text[row], -1) == 1
    first, last = np.minimum(span, len(of_text) - 1)
    answer = ''
    # An answer that reaches beyond a shorter text ends with it.
    if of_text[first]:
        last = np.flatnonzero(of_text[: last + 1])[-1]
        offsets = encoded.offsets[row]
        answer = question.context[offsets[first, 0] : offsets[last, 1]]
    right = [text for text, _ in question.answers]
    return (
        max(exact_match(answer, each) for each in right),
        max(word_f1(answer, each) for each in right),
    )


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
