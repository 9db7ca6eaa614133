"""The effects of masks: one type for every outcome, and for one model or any fine-tuning.

Axes: M masks, S seeds (each is one fine-tuned model).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Shaped

from bert_secrets_jax.checks import brief, check_name
from bert_secrets_jax.stats.agreement import Agreement
from bert_secrets_jax.stats.scores import PerMask
from bert_secrets_jax.stats.student import LEVEL

THIS_MODEL = 'this model, on examples like these'
ANY_FINETUNING = 'any fine-tuning of this recipe, on examples like these'
# The effect of losing a mask that is shown; where neither direction is better, it MATTERS.
WORSE, BETTER, MATTERS, NO_MATTER, OPEN = 'worse', 'better', 'matters', 'does not matter', 'open'
VERDICTS = WORSE, BETTER, NO_MATTER, OPEN


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A quantity that masks change: the name of a metric, or 'loss'.

    Attributes:
      unit, digits: The unit in which readers see it, and decimals of a difference.
      scale: The number of these units in 1: a score of 1 has 100 points.
      more_is_better: Whether a model with a greater value is better.
      directed: Whether either direction is better at all.
      margin: The difference from which on a change matters, in either direction; 0 where any does.
      grows: Whether it cannot fall. It is then tested whether it grows by more than the margin.
    """

    name: str
    unit: str = 'points'
    scale: float = 100.0
    digits: int = 2
    more_is_better: bool = True
    directed: bool = True
    margin: float = 0.0
    grows: bool = False

    @property
    def counts_from(self) -> float:
        """The difference against which a change is tested: 0, but for one that cannot fall."""
        return self.margin if self.grows else 0.0


# Half a point of a score is too little to matter. So are 0.01 nats of a loss, by which the right
# answer has 1 % less probability (in the geometric mean), and 1 % of the variance of true values.
MARGIN, MARGIN_OF_LOSS = 0.005, 0.01


def loss_in(unit: str, *, name: str = 'loss', variance: float = 0.0) -> Outcome:
    """Return the outcome of a loss in a unit, such as 'nats', or in that of squared errors.

    A margin of squared errors needs the variance of the true values.
    """
    margin = MARGIN_OF_LOSS * (1.0 if unit.startswith('nats') else variance)
    return Outcome(name, unit, scale=1.0, digits=4, more_is_better=False, margin=margin)


@dataclasses.dataclass(frozen=True)
class BySeed:
    """The effects in every fine-tuning, and the two corrections of their means for all masks.

    Attributes:
      intact, difference: [S] and [S, M] As in `Effects`, for each seed.
      spread: [M] The standard deviation of `difference` over seeds (divisor S - 1).
      holm: [M] Holm's p-values over seeds and examples; effects over seeds count as about normal.
      max_t: [M] P-values by flips of the signs of seeds (max-T), for any fine-tuning of this recipe
        on these very examples; effects over seeds count as symmetric.
      least_p: The least that `max_t` can be with so many seeds: above 0.05 for five and fewer.
      significant_share: [M] The share of the seeds in which the mask is significant by itself.
      needed_share: [M] The share of the seeds in which losing it makes the outcome worse by more
        than the margin, each by its own test, corrected for all masks.
      needed_low, needed_high: [M] The ends of the exact interval of that share in all fine-tunings
        (`student.exact_interval`). A need that a single test does not see is not in it.
      needed_p: [M] The p-values that at most one seed needs the mask, corrected for all masks: S
        times the second smallest of the seeds' own. They hold however seeds, which share their
        examples, depend on each other (Benjamini and Heller 2008). 1 for a single seed.
    """

    intact: Float[np.ndarray, ' S']
    difference: Float[np.ndarray, 'S M']
    spread: PerMask
    holm: PerMask
    max_t: PerMask
    least_p: float
    significant_share: PerMask
    needed_share: PerMask
    needed_low: PerMask
    needed_high: PerMask
    needed_p: PerMask
    agreement: Agreement

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effects:
    """The outcome under each of M masks, compared with that of the intact model.

    Attributes:
      names: [M] The heads or the layer that each mask disables, such as 'L1-H2'; empty if unnamed.
      difference: [M] The outcome under each mask minus the intact model's, a mean over seeds if
        there are several; NaN where it is undefined.
      low, high: [M] The ends of the 95 % interval of `difference`.
      p_value, corrected: [M] The two-sided p-values of no difference, the second for all M masks.
      sample, sample_of: The number of examples or fine-tunings, and which of these they are.
      population: For whom the intervals and p-values are.
      intact: The outcome of the intact model, mean over seeds.
      test, correction: The names of the test and of the correction.
      benjamini_hochberg: [M] The p-values after a weaker correction, by Benjamini and Hochberg.
      critical: [M] The smallest difference, in either direction, that the test would call
        significant at LEVEL after a correction for all M masks.
      detectable: [M] The smallest true difference that it then finds with a probability of POWER.
      changed: [M] The number of examples that are answered otherwise than by the intact model.
      beyond: [M] The p-values of a change within the outcome's margin, adjusted for M tests. Small
        ones show that losing the mask matters.
      tost: [M] The p-value of a change by the margin or more in either direction (two one-sided
        tests). At most 0.05 means that the 90 % interval lies within it.
      equivalent: [M] The same, adjusted for M tests: for scores by Holm's method, for means of
        skewed values, which have no `tost`, by max-T. None where it is not tested.
      unseen: How far the interval of a mask that changes no prediction reaches, on either side.
      fewest: The number of masks that lower the outcome by more than the margin, and of those that
        raise it so, at least; both hold with a certainty of 95 %. None where it is not known.
      seeds: The effects in every fine-tuning; None if one model was measured.
    """

    names: Sequence[str]
    difference: PerMask
    low: PerMask
    high: PerMask
    p_value: PerMask
    corrected: PerMask
    sample: int
    sample_of: str = 'examples'
    population: str = THIS_MODEL
    outcome: Outcome = Outcome('score')
    intact: float = np.nan
    test: str = ''
    correction: str = 'Holm'
    benjamini_hochberg: PerMask | None = None
    critical: PerMask | None = None
    detectable: PerMask | None = None
    changed: PerMask | None = None
    beyond: PerMask | None = None
    tost: PerMask | None = None
    equivalent: PerMask | None = None
    unseen: float = 0.0
    fewest: tuple[int, int] | None = None
    seeds: BySeed | None = None

    def __post_init__(self):
        if len(self.names) not in (0, len(self.difference)):
            raise ValueError(
                f'{len(self.names)} names do not fit {len(self.difference)} masks: give one for '
                'each, or none.'
            )

    __repr__ = brief

    @property
    def value(self) -> PerMask:
        """[M] The outcome under each mask."""
        return self.intact + self.difference

    @property
    def gain(self) -> PerMask:
        """[M] The difference, with the sign by which a better model is above 0."""
        return self.difference if self.outcome.more_is_better else -self.difference

    @property
    def p_beyond(self) -> PerMask:
        """[M] `beyond`, or where any change matters, `corrected`."""
        return self.corrected if self.beyond is None else self.beyond

    @property
    def verdict(self) -> Shaped[np.ndarray, ' M']:
        """[M] One of VERDICTS or MATTERS for each mask, so that their numbers add up to M.

        Losing it matters where the change is shown to exceed the margin, and does not where it is
        shown to be smaller. All else is open.
        """
        matters = self.p_beyond <= LEVEL
        within = np.zeros(len(matters)) + (1 if self.equivalent is None else self.equivalent)
        names = (WORSE, BETTER) if self.outcome.directed else (MATTERS, MATTERS)
        return np.select(
            [matters & (self.gain < 0), matters, within <= LEVEL], [*names, NO_MATTER], OPEN
        )

    @property
    def matters(self) -> Bool[np.ndarray, ' M']:
        """[M] Whether losing the mask is shown to change the outcome by more than the margin."""
        return ~np.isin(self.verdict, (NO_MATTER, OPEN))

    @property
    def best(self) -> int:
        """The index of the mask that leaves the best model, where undefined effects come last."""
        return int(np.argmax(np.where(np.isnan(self.gain), -np.inf, self.gain)))

    @property
    def worst(self) -> int:
        """The index of the mask that leaves the worst model, where undefined effects come last."""
        return int(np.argmin(np.where(np.isnan(self.gain), np.inf, self.gain)))

    @property
    def red(self) -> float:
        """The change for the worse that is drawn in full red: one that is found of any mask.

        That is the greatest `detectable` or, without it, the widest interval, which is about as
        much. A greater change that is significant takes its place; noise never does.
        """
        found = self.high - self.low if self.detectable is None else self.detectable
        sizes = np.concatenate([found, np.abs(self.difference[self.corrected <= LEVEL])])
        size = float(np.max(sizes[np.isfinite(sizes)], initial=0.0)) or 1.0
        return -size if self.outcome.more_is_better else size

    def extremes(self, count: int) -> list[int]:
        """Return the masks with the `count` lowest and highest differences, ascending."""
        order = np.argsort(self.difference)[: np.isfinite(self.difference).sum()].tolist()
        return list(dict.fromkeys((*order[:count], *order[-count:])))

    def examples_for(self, effect: float) -> PerMask:
        """Return how many examples [M] it would take to find such an effect of each mask.

        It is then found with a probability of POWER, after correction for all masks. This is the
        inverse of `detectable`: errors fall with the square root of the number of examples.

        Args:
          effect: The true difference, in either direction, in the unit of `difference`.

        Raises:
          ValueError: The outcome is no mean over the examples of one model, or the effect is so
            small that it does not count.
        """
        least = self.outcome.counts_from
        if self.detectable is None or self.critical is not None:
            raise ValueError(
                f'The number of examples that {self.outcome.name} takes is not known: ask for a '
                "mean over the examples of one model, such as 'discrimination'."
            )
        if not least < effect < np.inf:
            raise ValueError(f'{effect=} must be a number above {least:g}, and not infinite.')
        # Two examples are the fewest that have an error.
        return np.maximum(self.sample * ((self.detectable - least) / (effect - least)) ** 2, 2)

    def significant(self, level: float = LEVEL, correction: str = 'corrected') -> tuple[int, int]:
        """Return the numbers of masks that significantly lower the outcome and that raise it.

        The correction 'corrected' bounds the chance of any error, 'benjamini_hochberg' the expected
        share of errors among the masks that are counted, and 'none' bounds neither.
        """
        adjusted = {'none': self.p_value, 'corrected': self.corrected}
        if self.benjamini_hochberg is not None:
            adjusted['benjamini_hochberg'] = self.benjamini_hochberg
        check_name('correction', correction, adjusted)
        return self.signed(adjusted[correction] <= level)

    def signed(self, chosen: np.ndarray) -> tuple[int, int]:
        """Return how many of the chosen masks [M] lower the outcome, and how many raise it."""
        changes = self.difference[chosen]
        return int((changes < 0).sum()), int((changes > 0).sum())
