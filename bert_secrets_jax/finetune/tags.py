"""Learning the tags of words: what of a text has a label, and how predictions are scored.

A word has the tag that is predicted for its first wordpiece (Devlin et al. 2019, section 5.3).

Axes: E texts, T positions, C tags.
"""

from collections.abc import Sequence

import numpy as np
from absl import logging
from jaxtyping import Float, Int32

from bert_secrets_jax.checks import meant
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.tagged import Tagged, first_pieces
from bert_secrets_jax.finetune.losses import NONE
from bert_secrets_jax.finetune.metrics import METRICS, scored
from bert_secrets_jax.stats.student import p_above_zero

# The tag of a word without a wordpiece, where tags are those of spans.
OUTSIDE = 'O'


def is_of_spans(names: Sequence[str]) -> bool:
    """Return whether tags say where spans begin and go on: 'O', 'B-...' and 'I-...' (IOB2)."""
    return OUTSIDE in names and all(name == OUTSIDE or name[:2] in ('B-', 'I-') for name in names)


def names_of(texts: Sequence[Tagged]) -> tuple[str, ...]:
    """Return the names of all tags in some texts, in alphabetical order but for 'O', the first."""
    found = {tag for text in texts for tag in text.tags}
    return tuple(sorted(found, key=lambda name: (name != OUTSIDE, name)))


def check_tags(texts: Sequence[Tagged], names: Sequence[str], split: str) -> None:
    """Raise ValueError for a tag that is not among the names."""
    for text in texts:
        for tag in text.tags:
            if tag not in names:
                raise ValueError(
                    f'{split} text {text.place} has the tag {tag!r}, none of those of the '
                    f'training texts ({", ".join(names)}): give all as label_names, in the '
                    f'programs as data.labels. {meant(tag, names)}'.rstrip()
                )


def words_of(encoded: Encoded, texts: Sequence[Tagged], split: str) -> Int32[np.ndarray, 'E T']:
    """Return the number of the word of which each wordpiece is the first; -1 elsewhere."""
    words = first_pieces(encoded, texts)
    count = sum(len(text.words) for text in texts)
    lost = count - int((words >= 0).sum())
    if lost:
        logging.warning(
            '%s texts: %d of %d words have no wordpiece, mostly because texts were cut. Nothing is '
            'learnt from them, and their tags count as not found.',
            split, lost, count,
        )  # fmt: skip
    return words


def numbered(texts: Sequence[Tagged], names: Sequence[str]) -> list[np.ndarray]:
    """Return the numbers of the tags of each text."""
    number = {name: index for index, name in enumerate(names)}
    return [np.array([number[tag] for tag in text.tags]) for text in texts]


def labels_of(
    words: Int32[np.ndarray, 'E T'], tags: Sequence[np.ndarray]
) -> Int32[np.ndarray, 'E T']:
    """Return the numbers of tags at the first wordpieces of their words; NONE elsewhere."""
    labels = np.full(words.shape, NONE, np.int32)
    for of_text, row, numbers in zip(labels, words, tags, strict=True):
        of_text[row >= 0] = numbers[row[row >= 0]]
    return labels


def evaluate(
    words: Int32[np.ndarray, 'E T'],
    tags: Sequence[np.ndarray],
    names: Sequence[str],
    metrics: Sequence[str],
    logits: Float[np.ndarray, 'E _ C'],
) -> dict[str, float]:
    """Return the named metrics, 'word_accuracy', and the p-value of having learnt nothing.

    A word of which no wordpiece is left, because the text was cut, is answered wrongly, and is in
    no span.

    Args:
      words, tags, names: As of `words_of`, `numbered`, and the names of all tags.
      metrics, logits: The wanted metrics, and what is predicted.
    """
    predicted = [np.full(len(each), NONE) for each in tags]
    for answers, row, best in zip(predicted, words, logits.argmax(axis=-1), strict=True):
        first = np.flatnonzero(row >= 0)
        answers[row[first]] = best[first]
    right = [each == true for each, true in zip(predicted, tags, strict=True)]
    every = np.concatenate(tags)
    accuracy = float(np.concatenate(right).mean())
    found = {'word_accuracy': accuracy}
    found['f1_macro'] = METRICS['f1_macro'](np.concatenate(predicted), every)
    if 'span_f1' in metrics:
        from nervaluate import Evaluator

        # The last one, NONE, is a word without a wordpiece.
        named = [*names, OUTSIDE]
        answers, truth = (
            [[named[one] for one in row] for row in both] for both in (predicted, tags)
        )
        kinds = sorted({name[2:] for name in names if name != OUTSIDE})
        spans = Evaluator(truth, answers, tags=kinds, loader='list').evaluate()
        found['span_f1'] = float(spans['overall']['strict'].f1)
    commonest = np.bincount(every).argmax()
    ahead = [each.sum() - (true == commonest).sum() for each, true in zip(right, tags, strict=True)]
    return scored(metrics, found) | {
        'word_accuracy': accuracy,
        'p_learnt': p_above_zero(np.array(ahead)),
    }
