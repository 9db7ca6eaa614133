"""Learning the tags of words: what of a text has a label, and how predictions are scored.

A word has the tag that is predicted for its first wordpiece (Devlin et al. 2019, section 5.3).

Axes: E texts, T positions, C tags.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import logging
from jaxtyping import Float, Int32

from bert_secrets_jax.brief import meant
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.tagged import Tagged, first_pieces
from bert_secrets_jax.finetune.losses import NONE
from bert_secrets_jax.finetune.metrics import METRICS
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


@dataclasses.dataclass(frozen=True)
class Tags:
    """The tags of texts at their wordpieces."""

    texts: Sequence[Tagged]
    names: tuple[str, ...]
    # The number of the word of which a wordpiece is the first; -1 elsewhere.
    words: Int32[np.ndarray, 'E T']
    # The number of its tag; NONE elsewhere.
    labels: Int32[np.ndarray, 'E T']

    @property
    def share_of_commonest(self) -> float:
        """The share of the words that have the most frequent tag."""
        return self._counts.max() / self._counts.sum()

    @property
    def _true(self) -> list[np.ndarray]:
        number = {name: index for index, name in enumerate(self.names)}
        return [np.array([number[tag] for tag in text.tags]) for text in self.texts]

    @property
    def _counts(self) -> np.ndarray:
        return np.bincount(np.concatenate(self._true), minlength=len(self.names))

    def evaluate(
        self, metrics: Sequence[str], logits: Float[np.ndarray, 'E T C']
    ) -> dict[str, float]:
        """Return the named metrics, 'word_accuracy', and the p-value of having learnt nothing.

        A word of which no wordpiece is left, because the text was cut, is answered wrongly, and is
        in no span.
        """
        best = logits.argmax(axis=-1)
        true, predicted = self._true, []
        for row, tags in enumerate(true):
            answers = np.full(len(tags), NONE)
            places = np.flatnonzero(self.words[row] >= 0)
            answers[self.words[row, places]] = best[row, places]
            predicted.append(answers)
        right = [each == tags for each, tags in zip(predicted, true, strict=True)]
        accuracy = float(np.concatenate(right).mean())
        everywhere = np.concatenate(predicted), np.concatenate(true)
        functions = {
            'span_f1': lambda: self._span_f1(predicted),
            'word_accuracy': lambda: accuracy,
            'f1_macro': lambda: METRICS['f1_macro'](*everywhere),
        }
        values = {name: functions[name]() for name in metrics}
        commonest = self._counts.argmax()
        ahead = [
            each.sum() - (tags == commonest).sum() for each, tags in zip(right, true, strict=True)
        ]
        return values | {
            'score': float(np.mean(list(values.values()))),
            'word_accuracy': accuracy,
            'p_learnt': p_above_zero(np.array(ahead)),
        }

    def _span_f1(self, predicted: Sequence[np.ndarray]) -> float:
        from nervaluate import Evaluator

        # The last one, NONE, is a word without a wordpiece.
        names = [*self.names, OUTSIDE]
        answers = [[names[each] for each in tags] for tags in predicted]
        kinds = sorted({name[2:] for name in self.names if name != OUTSIDE})
        truth = [list(text.tags) for text in self.texts]
        found = Evaluator(truth, answers, tags=kinds, loader='list').evaluate()
        return float(found['overall']['strict'].f1)


def tags_of(encoded: Encoded, texts: Sequence[Tagged], split: str, names: tuple[str, ...]) -> Tags:
    """Return the tags of texts that were tokenised in the same order."""
    words = first_pieces(encoded, texts)
    number = {name: index for index, name in enumerate(names)}
    labels = np.full(words.shape, NONE, np.int32)
    for row, text in enumerate(texts):
        places = np.flatnonzero(words[row] >= 0)
        labels[row, places] = [number[text.tags[word]] for word in words[row, places]]
    count = sum(len(text.words) for text in texts)
    lost = count - int((words >= 0).sum())
    if lost:
        logging.warning(
            '%s texts: %d of %d words have no wordpiece, mostly because texts were cut. Nothing is '
            'learnt from them, and their tags count as not found.',
            split, lost, count,
        )  # fmt: skip
    return Tags(texts, names, words, labels)
