"""Claims about probes that find dependency heads from attention (Clark et al. 2019).

Shapes: R seeds of a probe, E sentences.
"""

import numpy as np
from jaxtyping import Float32

from bert_secrets_jax.analyses.populations import ANY_PROBE, THESE_PROBES
from bert_secrets_jax.analyses.verdicts.verdict import (
    FEWEST_RUNS,
    ROUNDING,
    Claim,
    Contrasts,
    Verdict,
    all_above,
    contrasts,
    decisive,
    verdict_of,
)
from bert_secrets_jax.probes.evaluation import scores

# Points of UAS, about half of the published differences.
LEAD_OVER_WORDS = 10.0
LEAD_OVER_RANDOM = 15.0

PROBE_BEYOND_WORDS = Claim(
    'A probe of attention and word vectors is more than '
    f'{LEAD_OVER_WORDS:g} points of UAS better than one of distances and word vectors.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead there is 19 points (77 against 58); the threshold is about half of that.',
    limits='Trees: heads are chosen for each word alone.',
)
ATTENTION_BEYOND_RANDOM = Claim(
    f'A probe of attention alone is more than {LEAD_OVER_RANDOM:g} points of UAS better than one '
    'of word vectors and the attention of random weights.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead there is 31 points (61 against 30); the threshold is about half of that.',
    limits='Other random weights: a single draw of them is measured.',
)
_THRESHOLDS = {
    PROBE_BEYOND_WORDS: LEAD_OVER_WORDS,
    ATTENTION_BEYOND_RANDOM: LEAD_OVER_RANDOM,
}


def uas_contrasts(
    words: Float32[np.ndarray, ' E'],
    right: Float32[np.ndarray, 'R E'],
    other: Float32[np.ndarray, '_ E'] | None = None,
    *,
    threshold: float | int = 0,
) -> Contrasts:
    """Return the UAS of a probe, or its lead over another one on the same sentences, in points.

    Sentences are the sample, and from FEWEST_RUNS seeds on, seeds are one, too.

    Args:
      words: The number of words of each sentence that count.
      right: The number of those whose head the probe finds.
      other: The same of the other probe, with as many seeds or one; None for the UAS itself.
      threshold: The number that is subtracted, in points.
    """
    value, error = scores(right if other is None else right - other, words)
    # A probe that is never wrong has no error, and is right by no more than rounding.
    found = 100 * value - threshold, 100 * (error + ROUNDING)
    return contrasts(*(list(each[:, None]) for each in found), float(len(words)))


def probe_leads(
    claim: Claim,
    words: Float32[np.ndarray, ' E'],
    right: Float32[np.ndarray, 'R E'],
    other: Float32[np.ndarray, '_ E'],
) -> Verdict:
    """Test PROBE_BEYOND_WORDS or ATTENTION_BEYOND_RANDOM.

    The estimate is the difference of the two scores, which is above the threshold of the claim if
    it holds.

    Args:
      claim: The claim.
      words: The number of words of each sentence that count.
      right: The number of those whose head the first probe of the claim finds.
      other: The number of those whose head the second one finds.
    """
    threshold = _THRESHOLDS[claim]
    found = uas_contrasts(words, right, other, threshold=threshold)
    interval = found.interval(0, offset=threshold)
    several = found.runs >= FEWEST_RUNS
    return verdict_of(
        claim,
        all_above(found),
        decisive(interval, spec='+z.1f'),
        interval,
        what='UAS of the first probe minus that of the second',
        unit='points',
        threshold=threshold,
        population=ANY_PROBE if several else THESE_PROBES,
        sample=found.runs if several else len(words),
        sample_of='runs' if several else 'examples',
        numbers={},
    )
