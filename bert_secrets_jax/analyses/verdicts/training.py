"""Claims about what fine-tuning reaches."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from bert_secrets_jax import paper
from bert_secrets_jax.analyses.populations import ANY_FINETUNING, THESE_MODELS
from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Verdict

PRETRAINING = Claim(
    'Fine-tuning from pre-trained weights scores higher than fine-tuning from random ones.',
    'section 4.3, Table 1: all tasks',
    bound='Any difference counts, as in Table 1.',
    limits='Other ways of training from random weights, such as longer ones.',
    short='Pre-trained weights score higher than random ones',
)
FINETUNING_GAINS = Claim(
    'Fine-tuning gains 35.9 points of accuracy on average: on these tasks as much as in the paper, '
    'to within the standard error of its average.',
    'section 4.3, Table 1: average of seven tasks',
    bound="The standard error of the paper's average over its seven tasks: other tasks like these "
    'would move it by as much.',
    limits='Anything about tasks that were not measured.',
    short='Fine-tuning gains as much as in the paper',
)


@dataclasses.dataclass(frozen=True)
class Gain:
    """The scores of a task before and after fine-tuning.

    Attributes:
      before, after: [R] The accuracy of each run, or its correlation.
      examples: The number of examples that the runs are evaluated on.
      regression: Whether the scores are correlations.
      published: The paper's gain on this task.
    """

    before: Sequence[float]
    after: Sequence[float]
    examples: int
    regression: bool
    published: float


def published_gain(task: str) -> float | None:
    """Return the gain of a task in Table 1, whose average the paper reports; None for another one.

    Where the table has two metrics, it is that of accuracy.
    """
    row = paper.finetuning(task)
    if row is None:
        return None
    metric = list(row.finetuned_from_pretrained)[-1]
    return row.finetuned_from_pretrained[metric] - row.pretrained_no_finetuning[metric]


def pretraining_helps(pretrained: Sequence[float], random: Sequence[float]) -> Verdict:
    """Test PRETRAINING on the scores of runs (Welch's test): seeds are the sample here.

    The estimate is the difference of the mean scores, which is above 0 if the claim holds. Scores
    of runs from either start are between 0 and 1.
    """
    groups = [np.asarray(scores, np.float64) for scores in (pretrained, random)]
    counts = np.array([len(scores) for scores in groups])
    difference = 100 * (groups[0].mean() - groups[1].mean())
    words = 'Pre-trained weights score {estimate:+z.1f} points'
    numbers = {'pretrained_runs': counts[0], 'random_runs': counts[1]}
    if min(counts) < verdict.FEWEST_RUNS:
        p_values, interval = (math.nan, math.nan), (difference, np.nan, np.nan)
        words += (
            ' above random ones; a test needs {needed} runs of each, not {pretrained_runs} and '
            '{random_runs}.'
        )
        numbers['needed'] = verdict.FEWEST_RUNS
    else:
        # Runs that never leave the majority class do not vary, so `ROUNDING` is added. In points.
        variances = np.array([scores.var(ddof=1) / len(scores) for scores in groups])
        variances = 100**2 * (variances + verdict.ROUNDING**2)
        error = np.sqrt(variances.sum())
        freedom = variances.sum() ** 2 / np.sum(variances**2 / (counts - 1))
        p, half = scipy.stats.t.sf(difference / error, freedom), verdict.margin(freedom) * error
        p_values = float(p), float(1 - p)
        interval = difference, difference - half, difference + half
        words += (
            ' ({low:+z.1f} to {high:+z.1f}, p = {p_value:.2g}) above random ones, in '
            '{pretrained_runs:run|runs} against {random_runs}.'
        )
        numbers['p_value'] = 2 * min(p_values)
    return verdict.verdict_of(
        PRETRAINING,
        p_values,
        words,
        interval,
        what='mean score from pre-trained weights minus that from random weights',
        unit='points',
        threshold=0.0,
        population=THESE_MODELS if min(counts) < verdict.FEWEST_RUNS else ANY_FINETUNING,
        sample=int(counts.sum()),
        sample_of='runs',
        numbers=numbers,
    )


def finetuning_gains(gains: Mapping[str, Gain]) -> Verdict:
    """Test FINETUNING_GAINS on several tasks.

    The estimate is the average gain minus the paper's on the same tasks. The claim holds where it
    is within the threshold on either side (two one-sided tests, Schuirmann 1987). Tasks are taken
    as given; the error is that of the examples of each task and, from FEWEST_RUNS runs on, that of
    the seeds.
    """
    found, tasks = [_points(gain) for gain in gains.values()], len(gains)
    runs = min(len(gain.after) for gain in gains.values())
    errors = np.array([each.error[0] for each in found]) / tasks
    error = np.sqrt(np.sum(errors**2))
    freedom = error**4 / np.sum(errors**4 / [each.freedom[0] for each in found])
    ours = np.mean([each.difference[0] for each in found])
    theirs = 100 * np.mean([gain.published for gain in gains.values()])
    difference, threshold = ours - theirs, 100 * _error_of_the_paper()
    reach = np.array([threshold + difference, threshold - difference]) / error
    too_low, too_high = scipy.stats.t.sf(reach, freedom)
    low, high = scipy.stats.t.sf(-reach, freedom)
    half = verdict.margin(freedom) * error
    interval = float(difference), float(difference - half), float(difference + half)
    return verdict.verdict_of(
        FINETUNING_GAINS,
        # Both must be refuted for it to hold; either one refutes it, and two are tried.
        (max(too_low, too_high), verdict.capped(2 * min(low, high))),
        'Fine-tuning gains {ours:+z.1f} points on average over {sample:task|tasks}, '
        '{estimate:+z.1f} ({low:+z.1f} to {high:+z.1f}) more than in the paper; {threshold:.1f} '
        'either way is allowed.',
        interval,
        what="average gain minus the paper's",
        unit='points',
        threshold=threshold,
        population=ANY_FINETUNING if runs >= verdict.FEWEST_RUNS else THESE_MODELS,
        sample=tasks,
        sample_of='tasks',
        numbers={'ours': ours},
    )


def _points(gain: Gain) -> Contrasts:
    """Return the gain of a task in points, with the error of examples and seeds."""
    scores = np.array([gain.before, gain.after], np.float64)
    # The variances of correlations of normal variables, or of accuracies.
    variance = (1 - scores**2) ** 2 if gain.regression else scores * (1 - scores)
    # Both scores are of the same examples: their errors add up at worst.
    bound = (np.sqrt(variance / max(gain.examples - 1, 1)) + verdict.ROUNDING).sum(axis=0)
    gains = 100 * (scores[1] - scores[0])[:, None]
    return verdict.contrasts(list(gains), list(100 * bound[:, None]), float(gain.examples))


@functools.cache
def _error_of_the_paper() -> float:
    """Return the standard error of the paper's average gain over its tasks."""
    return float(scipy.stats.sem([published_gain(task) for task in paper.TASKS]))
