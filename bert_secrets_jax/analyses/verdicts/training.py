"""Claims about what fine-tuning reaches."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats

from bert_secrets_jax import paper
from bert_secrets_jax.analyses.verdicts import claims, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Verdict
from bert_secrets_jax.runs.verdict import MOST_FINETUNINGS, THESE_MODELS
from bert_secrets_jax.stats import over_runs, student
from bert_secrets_jax.stats.over_runs import Contrasts


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

    @property
    def by_run(self) -> np.ndarray:
        """[R] The gain of each run."""
        return np.subtract(self.after, self.before)


def published_gain(task: str) -> float | None:
    """Return the gain of a task in Table 1, whose average the paper reports; None for another one.

    Where the table has two metrics, it is that of accuracy.
    """
    row = paper.finetuning(task)
    if row is None:
        return None
    metric = list(row.finetuned_from_pretrained)[-1]
    return row.finetuned_from_pretrained[metric] - row.pretrained_no_finetuning[metric]


def pretraining_helps(
    pretrained: Sequence[float], random: Sequence[float], *, unlearnt: int = 0
) -> Verdict:
    """Test PRETRAINING on the scores of runs: seeds are the sample here.

    The verdict is about most pairs of runs, by the sign test of the pairs in the order of their
    seeds, which holds where some runs do not learn. Welch's test of the means of all runs has to
    agree. The estimate is the median difference of the pairs, above 0 if the claim holds.

    Args:
      pretrained, random: The scores of runs from either start, between 0 and 1.
      unlearnt: The number of runs from pre-trained weights that have learnt nothing.
    """
    ours, theirs = (100 * np.asarray(scores, np.float64) for scores in (pretrained, random))
    count = min(len(ours), len(theirs))
    pairs, difference = ours[:count] - theirs[:count], ours.mean() - theirs.mean()
    tested = count >= over_runs.FEWEST_FOR_MOST
    p_values, interval = (math.nan, math.nan), (float(np.median(pairs)), math.nan, math.nan)
    if tested:
        # Runs that never leave the majority class do not vary, so `ROUNDING` is added. In points.
        squares = [
            scores.var(ddof=1) / len(scores) + (100 * over_runs.ROUNDING) ** 2
            for scores in (ours, theirs)
        ]
        squared, freedom = student.of_sum(squares, (len(ours) - 1, len(theirs) - 1))
        p = float(student.p_above(difference / np.sqrt(squared), freedom))
        not_above, not_below = (
            over_runs.by_sign(each[:, None], 0.0).item() for each in (pairs, -pairs)
        )
        p_values = max(p, not_above), max(1 - p, not_below)
        interval = over_runs.median_of(pairs, 0.0)
    words = (
        'Pre-trained weights score {number} above '
        'random ones in the median pair, and {mean:+z.2f} on average, '
        'in {pretrained_runs:run|runs} against {random_runs}.'
    )
    words += ' Of the first, {unlearnt} learnt nothing.' * bool(unlearnt)
    words += ' A test needs {needed} runs of each.' * (not tested)
    return verdict.verdict_of(
        claims.PRETRAINING,
        p_values,
        interval,
        words,
        what='score from pre-trained weights minus that from random weights, median of pairs',
        population=MOST_FINETUNINGS if tested else THESE_MODELS,
        otherwise=verdict.UNDECIDED if tested else verdict.TOO_FEW,
        sample=len(ours) + len(theirs),
        sample_of='runs',
        mean=difference,
        pretrained_runs=len(ours),
        random_runs=len(theirs),
        needed=over_runs.FEWEST_FOR_MOST,
        unlearnt=unlearnt,
    )


def finetuning_gains(gains: Mapping[str, Gain]) -> Verdict:
    """Test FINETUNING_GAINS on several tasks.

    The estimate is the average gain minus the paper's on the same tasks. The claim holds where it
    is within the threshold on either side (two one-sided tests, Schuirmann 1987). Tasks are taken
    as given; the error is that of the examples of each task and, from FEWEST_RUNS runs on, that of
    the seeds. A verdict on several runs is about most of them, and takes FEWEST_FOR_MOST.
    """
    found, tasks = [_points(gain) for gain in gains.values()], len(gains)
    runs = min(len(gain.after) for gain in gains.values())
    squares = [(each.error[0] / tasks) ** 2 for each in found]
    squared, freedom = student.of_sum(squares, [each.freedom[0] for each in found])
    error = np.sqrt(squared)
    ours = float(np.mean([each.difference[0] for each in found]))
    theirs = float(100 * np.mean([gain.published for gain in gains.values()]))
    # Over their tasks.
    published = [published_gain(task) for task in paper.TASKS]
    difference, threshold = ours - theirs, float(100 * scipy.stats.sem(published))
    reach = np.array([threshold + difference, threshold - difference]) / error
    too_low, too_high = student.p_above(reach, freedom)
    low, high = student.p_above(-reach, freedom)
    # Most runs have to agree. They cannot fail on both sides: no correction for two.
    each = np.mean([100 * gain.by_run[:runs] for gain in gains.values()], axis=0) - theirs
    inside = np.stack([threshold + each, threshold - each], axis=1)
    too_low, too_high = np.maximum((too_low, too_high), over_runs.by_sign(inside, error))
    low, high = np.maximum((low, high), over_runs.by_sign(-inside, error) / 2)
    # Both must be refuted for it to hold; either one refutes it, and two are tried.
    p_values = max(too_low, too_high), 2 * min(low, high)
    interval, words = student.interval(difference, float(error), freedom), ''
    several: dict[str, Any] = {}
    too_few = 1 < runs < over_runs.FEWEST_FOR_MOST
    if too_few:
        p_values, words = (math.nan, math.nan), verdict.TOO_FEW_RUNS
        several = {'runs': runs, 'needed': over_runs.FEWEST_FOR_MOST}
    elif runs > 1:
        interval, words = over_runs.median_of(each, error), verdict.MEDIAN
        several = {'runs': runs}
    return verdict.verdict_of(
        claims.FINETUNING_GAINS,
        p_values,
        interval,
        'Fine-tuning gains {ours:+z.2f} points on average over {sample:task|tasks}. Compared with '
        'the paper that is {number}; the claim allows {threshold:.2f} either way.',
        more=words,
        what="average gain minus the paper's",
        threshold=threshold,
        population=MOST_FINETUNINGS if runs >= over_runs.FEWEST_FOR_MOST else THESE_MODELS,
        otherwise=verdict.TOO_FEW if too_few else verdict.UNDECIDED,
        sample=tasks,
        sample_of='tasks',
        ours=interval[0] + theirs,
        **several,
    )


def _points(gain: Gain) -> Contrasts:
    """Return the gain of a task in points, with the error of examples and seeds."""
    scores = np.array([gain.before, gain.after], np.float64)
    # The variances of correlations of normal variables, or of accuracies.
    variance = (1 - scores**2) ** 2 if gain.regression else scores * (1 - scores)
    # Both scores are of the same examples: their errors add up at worst.
    bound = (np.sqrt(variance / max(gain.examples - 1, 1)) + over_runs.ROUNDING).sum(axis=0)
    gains = zip(100 * gain.by_run, 100 * bound, strict=True)
    return over_runs.contrasts(gains, float(gain.examples))
