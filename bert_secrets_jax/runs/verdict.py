"""A claim of a paper, and the verdict on it."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.names import filled
from bert_secrets_jax.stats.effects import ANY_FINETUNING as ANY_FINETUNING
from bert_secrets_jax.stats.effects import THIS_MODEL as THIS_MODEL
from bert_secrets_jax.stats.student import LEVEL

# Several models were measured, and too few of them to speak of others.
THESE_MODELS = 'these models, on examples like these'
# At least half of all fine-tunings are on this side: where some fail, their average may not be.
MOST_FINETUNINGS = 'most fine-tunings of this recipe, on examples like these'
# Several probes were trained on one model: their seeds and sentences are samples.
MOST_PROBES = 'most such probes of this model, on sentences like these'
# Too few probes were trained for an interval over seeds.
THESE_PROBES = 'these probes of this model, on sentences like these'
HOLDS, DOES_NOT_HOLD, UNDECIDED = 'holds', 'does not hold', 'undecided'
# One of the two verdicts could not have come out, whatever the examples or fine-tunings say.
TOO_FEW = 'not decidable with so small a sample'
NOT_MEASURED = 'not measured'


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of a paper, in a sentence that a test can decide.

    Attributes:
      text: The sentence.
      source: The authors and the year, the section and the figure with the statement, its tasks.
      bound: Where the threshold of the test comes from.
      limits: A statement of what a verdict on the claim does not show; empty for none.
      short: The claim in at most twelve words.
      section: The sections of a report that measure it, as `--sections` takes them.
      unit: The unit of the number that decides.
      threshold: The number that it is compared with.
      side: Where the claim holds: at 'more' or at 'less' than the threshold.
    """

    text: str
    source: str
    bound: str = ''
    limits: str = ''
    short: str = ''
    section: str = ''
    unit: str = ''
    threshold: float = 0.0
    side: str = 'more'

    @property
    def paper(self) -> str:
        """The authors and the year."""
        return self.source.partition(',')[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of the test of a claim: text and numbers that explain it and can be stored.

    Attributes:
      verdict: The outcome: HOLDS, DOES_NOT_HOLD, UNDECIDED, TOO_FEW or NOT_MEASURED.
      template: The sentence of `evidence`, with names of fields in braces and no digit of its own.
      population: For what the verdict is: THIS_MODEL, THESE_MODELS or MOST_FINETUNINGS, if
        anything.
      what: The noun phrase that names the estimate.
      estimate: The number that decides, compared with the threshold; NaN where there is none.
      low, high: The ends of the estimate's interval, of 95 % or wider, and of 94 % over five runs;
        NaN where there is none.
      unit: The unit of the estimate, its interval and the threshold.
      p_if_false, p_if_true: The p-values of the hypotheses that the claim is false, and that it is
        true; NaN where there is none.
      sample, sample_of: The size of the sample, and its unit: 'examples', 'runs' or 'tasks'.
      numbers: All other numbers and names in the sentence, by their names.
    """

    claim: Claim
    verdict: str
    template: str
    population: str = ''
    what: str = ''
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ''
    threshold: float = math.nan
    p_if_false: float = math.nan
    p_if_true: float = math.nan
    sample: int = 0
    sample_of: str = 'examples'
    numbers: Mapping[str, float | int | str] = dataclasses.field(default_factory=dict)

    @property
    def p(self) -> float:
        """The smaller of the two p-values: how well the claim is decided, either way; else NaN."""
        return float(np.fmin(self.p_if_false, self.p_if_true))

    def after(self, corrected: float) -> str:
        """Return the verdict after `p` is corrected for several tests."""
        if self.verdict not in (HOLDS, DOES_NOT_HOLD) or corrected <= LEVEL:
            return self.verdict
        return UNDECIDED

    @property
    def fields(self) -> dict[str, float | int | str]:
        """All values that the sentence may show, by their names in the template."""
        own = ('what', 'estimate', 'low', 'high', 'unit', 'threshold', 'sample', 'sample_of')
        return dict(self.numbers) | {name: getattr(self, name) for name in own}

    @property
    def evidence(self) -> str:
        """The sentence that explains the verdict, made from the fields alone."""
        return filled(self.template, self.fields)
