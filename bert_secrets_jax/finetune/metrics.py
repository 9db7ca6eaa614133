"""Metrics by name, computed from the logits of all examples together."""

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float, Num

from bert_secrets_jax.checks import check_names
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.stats import confusion, scores
from bert_secrets_jax.stats.correlations import fisher_interval
from bert_secrets_jax.stats.intervals import score_interval


def _score(metric: str, predicted: Num[np.ndarray, ' E'], labels: Num[np.ndarray, ' E']) -> float:
    return float(scores.weighted_scores(metric, predicted[None], labels)[0, 0])


# Functions of predictions and labels. 'f1' is that of class 1, as in GLUE for MRPC and QQP;
# 'f1_macro' the mean over the classes that occur in the labels; 'f1_micro' that of all classes
# together, which is the accuracy. Matthews 1975, as in GLUE for CoLA, and with more than two
# classes Gorodkin 2004, is 0 where predictions or labels are all the same, as in scikit-learn;
# the other correlations are NaN there.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = types.MappingProxyType(
    {name: functools.partial(_score, name) for name in scores.METRICS}
)
# How the metrics are written for people.
TITLES = {
    'accuracy': 'accuracy',
    'f1': 'F1',
    'f1_macro': 'macro F1',
    'f1_micro': 'micro F1',
    'matthews': "Matthews' r",
    'pearson': "Pearson's r",
    'spearman': "Spearman's ρ",
    'span_f1': 'span F1',
    'word_accuracy': 'accuracy of words',
    'exact_match': 'exact match',
    'answer_f1': 'F1 of the words of answers',
}
# Metrics whose interval needs the counts of all pairs of class and answer.
_OF_COUNTS = ('f1', 'f1_macro', 'matthews')
_OF_VALUES = ('pearson', 'spearman')
# The metrics that can be negative.
BELOW_ZERO = 'matthews', *_OF_VALUES
# Metrics of what is said of single tokens.
OF_TAGS = ('span_f1', 'word_accuracy', 'f1_macro')
OF_ANSWERS = ('exact_match', 'answer_f1')


def metrics_for(classes: int, examples: Sequence[Example] = ()) -> tuple[str, ...]:
    """Return the names of the metrics of the task that all examples are of.

    Where there is none, or its metrics do not fit the classes, they are those that GLUE reports for
    most tasks with this many classes.
    """
    tasks = {each.metrics for each in examples}
    if len(tasks) == 1 and () not in tasks and {*next(iter(tasks))} <= {*_usable(classes)}:
        return tasks.pop()
    return {1: _OF_VALUES, 2: ('f1', 'accuracy')}.get(classes, ('accuracy',))


def _usable(classes: int) -> tuple[str, ...]:
    if classes == 1:
        return _OF_VALUES
    return tuple(name for name in confusion.METRICS if classes == 2 or name != 'f1')


def tested(metrics: Sequence[str], classes: int) -> str:
    """Return the name of the metric by which it is tested whether a model has learnt anything.

    It is Pearson's correlation for a regression, Matthews' where that is the first metric of two
    classes (of which it is Pearson's correlation), and else the accuracy.
    """
    if classes == 1:
        return 'pearson'
    return 'matthews' if classes == 2 and tuple(metrics[:1]) == ('matthews',) else 'accuracy'


def check_metrics(
    metrics: Sequence[str], classes: int, *, usable: Sequence[str] | None = None
) -> None:
    """Raise ValueError for metrics that are not among the usable, by default for these classes."""
    if usable is None:
        kind = 'a regression' if classes == 1 else f'{classes} classes'
        usable = _usable(classes)
    elif OF_ANSWERS[0] in usable:
        kind = 'answers to questions'
    else:
        kind = f'these {classes} tags of words'
    check_names(f'For {kind}, metric', metrics, usable)


def predictions(logits: Float[np.ndarray, 'E C']) -> Num[np.ndarray, ' E']:
    """Return the predicted class of each example, or the predicted values of a regression."""
    check_finite(logits)
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def evaluate(
    metrics: Sequence[str], logits: Float[np.ndarray, 'E C'], labels: Num[np.ndarray, ' E']
) -> dict[str, float]:
    """Return the named metrics and their mean, `score`, which chooses the best checkpoint."""
    predicted = predictions(logits)
    return scored(metrics, {name: METRICS[name](predicted, labels) for name in metrics})


def scored(metrics: Sequence[str], found: Mapping[str, float]) -> dict[str, float]:
    """Return the named ones of the metrics that were found, and their mean, `score`."""
    values = {name: found[name] for name in metrics}
    return values | {'score': float(np.mean(list(values.values())))}


def tested_values(
    metrics: Sequence[str], logits: Float[np.ndarray, 'E C'], labels: Num[np.ndarray, ' E']
) -> dict[str, float]:
    """Return what the test of a model needs (`Finetuned.p_learnt`), whichever metrics it has.

    Further values are the ends of those intervals for which `interval` needs all predictions.
    """
    predicted = predictions(logits)
    if logits.shape[1] == 1:
        return {'pearson': METRICS['pearson'](predicted, labels)}
    values = {'accuracy': METRICS['accuracy'](predicted, labels)}
    if tested(metrics, logits.shape[1]) == 'matthews':
        values['p_learnt'] = p_matthews(predicted, labels)
    for metric in [each for each in metrics if each in _OF_COUNTS]:
        low, high = score_interval(metric, predicted, labels)
        values |= {f'{metric}_low': low, f'{metric}_high': high}
    return values


def p_matthews(predicted: Num[np.ndarray, ' E'], labels: Num[np.ndarray, ' E']) -> float:
    """Return the one-sided p-value of Fisher's exact test (1922); classes may be rare."""
    table = [[np.sum((predicted == a) & (labels == b)) for b in (1, 0)] for a in (1, 0)]
    return float(np.asarray(scipy.stats.fisher_exact(table, alternative='greater'))[1])


def interval(metric: str, row: Mapping[str, Any], examples: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a score over examples; NaN where none is known.

    Those of F1, macro F1 and Matthews' r of whole texts are in the row
    (`intervals.score_interval`). For accuracy and micro F1 it is Wilson's (1927), for Pearson's r
    Fisher's (1921), for Spearman's that of Bonett and Wright (2000).
    """
    if f'{metric}_low' in row:
        return row[f'{metric}_low'], row[f'{metric}_high']
    value = row[metric]
    if metric in ('accuracy', 'f1_micro') and examples > 0:
        right = scipy.stats.binomtest(round(value * examples), examples)
        ends = right.proportion_ci(method='wilson')
        return float(ends.low), float(ends.high)
    if metric in _OF_VALUES and examples > 3 and abs(value) < 1:
        variance = 1 if metric == 'pearson' else 1 + value**2 / 2
        return fisher_interval(value, np.sqrt(variance / (examples - 3)))
    return float('nan'), float('nan')


def mean_ends(
    metric: str, rows: Sequence[Mapping[str, Any]], examples: int
) -> Float[np.ndarray, ' 2']:
    """Return the mean over runs of the ends of their intervals, times 100."""
    ends = [interval(metric, row, examples) for row in rows]
    return 100 * np.mean(ends or [(np.nan, np.nan)], axis=0)


def described(
    first: str,
    metrics: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    examples: int,
    guess: float,
) -> str:
    """Return how well runs do, in words: means over runs, also of the ends of their intervals."""
    said, sure = [], '95 % interval: '
    for metric in dict.fromkeys([first, *metrics]):
        value = 100 * np.mean([row[metric] for row in rows])
        low, high = mean_ends(metric, rows, examples)
        ends = '' if np.isnan(low) else f' ({sure}{low:.0f} to {high:.0f})'
        sure = '' if ends else sure
        score = f'{value:.0f} of 100'
        right, named = f'{score} answers are right', f'{TITLES[metric]} is {score}'
        said.append(f'{right if metric == "accuracy" else named}{ends}')
    if first == 'accuracy':
        said.insert(1, f'guessing gives {100 * guess:.0f}')
    text = '; '.join(said)
    return f'{text[:1].upper()}{text[1:]}'
