"""Claims about heads that find dependency relations (Clark et al. 2019)."""

from collections.abc import Mapping

import numpy as np
import scipy.stats

from bert_secrets_jax.analyses.populations import THIS_MODEL
from bert_secrets_jax.analyses.verdicts.verdict import (
    FEWEST,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Verdict,
    at_least,
    between,
    margin,
    nothing_to_test,
    verdict_of,
)

# Much more often than an offset, and hardly more often: percentage points.
PRACTICAL_LEAD = 0.10

RELATION_HEADS = Claim(
    'For at least half of the relations that the paper lists, a head finds the other word '
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='In Table 1 that is so for seven of the twelve relations that have one of the same '
    'meaning in Universal Dependencies.',
    limits='That no other head does better than the one that was chosen on other texts.',
)
NO_HEAD_FOR_ALL = Claim(
    'At all relations together, the best head finds the other word less than '
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='In Table 1 the difference is 8.2 points.',
    limits='That no other head does better than the one that was chosen on other texts.',
)


def relations_have_heads(gains: Mapping[str, tuple[float, float, int]]) -> Verdict:
    """Test RELATION_HEADS.

    Args:
      gains: By the name of each relation, the share of links that its head finds minus that of the
        best offset, on other texts than both were chosen on; its standard error over texts; and the
        number of texts with such links. Relations in fewer than FEWEST texts do not count.
    """
    known = {name: gain for name, gain in gains.items() if gain[2] >= FEWEST}
    sample = float(max((texts for _, _, texts in gains.values()), default=0))
    if len(known) < 2:
        return nothing_to_test(
            RELATION_HEADS,
            'Of the relations that the paper lists, {known} have enough links in these texts.',
            sample,
            known=len(known),
        )
    gain, error, texts = (np.array(each, np.float64) for each in zip(*known.values(), strict=True))
    lead = gain - PRACTICAL_LEAD
    above, below = _p(lead, error, texts), _p(-lead, error, texts)
    half = -(-len(known) // 2)
    reached = int((lead >= 0).sum())
    # The one on which it hangs: if it is above, half of them are.
    decisive = int(np.argsort(-lead, kind='stable')[half - 1])
    reach = margin(float(texts[decisive]) - 1) * error[decisive]
    interval = (gain[decisive], gain[decisive] - reach, gain[decisive] + reach)
    return verdict_of(
        RELATION_HEADS,
        (at_least(above, half), at_least(below, len(known) - half + 1)),
        '{reached} of {known} relations have such a head; half of them, if that of {decisive} is '
        f'one: {{estimate:z.3f}}{between(interval)} above the offset.',
        interval,
        what='what the head of the decisive relation finds more than the offset',
        unit='share of links',
        threshold=PRACTICAL_LEAD,
        sample=sample,
        sample_of='texts',
        population=THIS_MODEL,
        numbers={
            'reached': reached,
            'known': len(known),
            'decisive': list(known)[decisive],
        },
    )


def no_head_for_all(gain: float, error: float, texts: int) -> Verdict:
    """Test NO_HEAD_FOR_ALL on the links of all relations together.

    Args:
      gain, error, texts: As in `relations_have_heads`.
    """
    few = texts < FEWEST
    reach = margin(max(texts - 1.0, 1.0)) * error
    interval = (gain, gain - reach, gain + reach)
    lead = np.array([gain - PRACTICAL_LEAD])
    nothing = np.full(1, np.nan)
    above, below = (
        nothing if few else _p(sign * lead, np.array([error]), np.array([texts]))
        for sign in (1, -1)
    )
    return verdict_of(
        NO_HEAD_FOR_ALL,
        (below[0], above[0]),
        f'Of all links, the best head finds {{estimate:z.3f}}{between(interval)} more than the '
        'best offset; less than {threshold:g} is claimed.',
        interval,
        what='what the best head finds more than the offset, of all relations',
        unit='share of links',
        threshold=PRACTICAL_LEAD,
        sample=texts,
        sample_of='texts',
        population=THIS_MODEL,
        numbers={},
        otherwise=TOO_FEW if few else UNDECIDED,
    )


def _p(lead: np.ndarray, error: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return the p-values of the hypotheses that a lead is not above 0 (Student's t)."""
    with np.errstate(divide='ignore', invalid='ignore'):
        return scipy.stats.t.sf(lead / error, texts - 1)
