"""Claims about heads, and probes of attention, that find dependency relations (Clark et al. 2019).

Shapes: R seeds of a probe, E sentences.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32

from bert_secrets_jax.analyses.populations import ANY_PROBE, THESE_PROBES, THIS_MODEL
from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Verdict
from bert_secrets_jax.probes.evaluation import scores

# Much more often than an offset, and hardly more often: percentage points.
PRACTICAL_LEAD = 0.10

RELATION_HEADS = Claim(
    'For at least half of the relations that the paper lists, a head finds the other word '
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='In Table 1 that is so for seven of the twelve relations that have one of the same '
    'meaning in Universal Dependencies.',
    limits='That no other head does better than the one that was chosen on other texts, and that '
    'position and word class do not explain it.',
    short='Half of the relations have a head that finds them',
)
NO_HEAD_FOR_ALL = Claim(
    'At all relations together, the best head finds the other word less than '
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='In Table 1 the difference is 8.2 points.',
    limits='That no other head does better than the one that was chosen on other texts.',
    short='No single head finds all relations',
)


# Points of UAS, about half of the published differences.
LEAD_OVER_WORDS = 10.0
LEAD_OVER_RANDOM = 15.0

PROBE_BEYOND_WORDS = Claim(
    'A probe of attention and word vectors is more than '
    f'{LEAD_OVER_WORDS:g} points of UAS better than one of distances and word vectors.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead there is 19 points (77 against 58); the threshold is about half of that.',
    limits='Trees: heads are chosen for each word alone.',
    short='Attention knows more syntax than distances do',
)
ATTENTION_BEYOND_RANDOM = Claim(
    f'A probe of attention alone is more than {LEAD_OVER_RANDOM:g} points of UAS better than one '
    'of word vectors and the attention of random weights.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead there is 31 points (61 against 30); the threshold is about half of that.',
    limits='Other random weights: a single draw of them is measured.',
    short='Attention knows more syntax than word vectors do',
)
_THRESHOLDS = {PROBE_BEYOND_WORDS: LEAD_OVER_WORDS, ATTENTION_BEYOND_RANDOM: LEAD_OVER_RANDOM}
_OF_LINKS = {
    'unit': 'share of links',
    'threshold': PRACTICAL_LEAD,
    'sample_of': 'texts',
    'population': THIS_MODEL,
}


def relations_have_heads(gains: Mapping[str, tuple[float, float, int]]) -> Verdict:
    """Test RELATION_HEADS.

    Args:
      gains: By the name of each relation, the share of links that its head finds minus that of the
        best offset, on other texts than both were chosen on; its standard error over texts; and the
        number of texts with such links. Relations in fewer than FEWEST texts do not count.
    """
    known = {name: gain for name, gain in gains.items() if gain[2] >= verdict.FEWEST}
    sample = float(max((texts for _, _, texts in gains.values()), default=0))
    if len(known) < 2:
        return verdict.nothing_to_test(
            RELATION_HEADS,
            'Of the relations that the paper lists, {known} have enough links in these texts.',
            sample,
            known=len(known),
        )
    found = _leads(*known.values())
    half = -(-len(known) // 2)
    # The one on which it hangs: if it is above, half of them are.
    hinge = int(np.argsort(-found.difference, kind='stable')[half - 1])
    interval, reached = found.interval(hinge, offset=PRACTICAL_LEAD), (found.difference >= 0).sum()
    return verdict.verdict_of(
        RELATION_HEADS,
        (verdict.at_least(found.above, half), verdict.at_least(found.below, len(known) - half + 1)),
        '{reached} of {known} relations have such a head; half of them, if that of {decisive} is '
        f'one: {{estimate:z.3f}}{verdict.between(interval)} above the offset.',
        interval,
        what='what the head of the decisive relation finds more than the offset',
        sample=sample,
        numbers={'reached': reached, 'known': len(known), 'decisive': list(known)[hinge]},
        **_OF_LINKS,
    )


def no_head_for_all(gain: float, error: float, texts: int) -> Verdict:
    """Test NO_HEAD_FOR_ALL on the links of all relations together."""
    found = _leads((gain, error, texts))
    interval = found.interval(0, offset=PRACTICAL_LEAD)
    return verdict.verdict_of(
        NO_HEAD_FOR_ALL,
        (found.below[0], found.above[0]),
        f'Of all links, the best head finds {{estimate:z.3f}}{verdict.between(interval)} more than '
        'the best offset; less than {threshold:g} is claimed.',
        interval,
        what='what the best head finds more than the offset, of all relations',
        sample=texts,
        **_OF_LINKS,
        otherwise=verdict.undecided(found),
    )


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
    """
    value, error = scores(right if other is None else right - other, words)
    # A probe that is never wrong has no error, and is right by no more than rounding.
    found, bounds = 100 * value - threshold, 100 * (error + verdict.ROUNDING)
    return verdict.contrasts(list(found[:, None]), list(bounds[:, None]), float(len(words)))


def probe_leads(
    claim: Claim,
    words: Float32[np.ndarray, ' E'],
    right: Float32[np.ndarray, 'R E'],
    other: Float32[np.ndarray, '_ E'],
) -> Verdict:
    """Test PROBE_BEYOND_WORDS or ATTENTION_BEYOND_RANDOM.

    The estimate is the difference of the two scores, above the threshold if the claim holds. The
    arguments are those of `uas_contrasts`.
    """
    threshold = _THRESHOLDS[claim]
    found = uas_contrasts(words, right, other, threshold=threshold)
    several = found.runs >= verdict.FEWEST_RUNS
    return verdict.verdict_on(
        claim,
        found,
        verdict.decisive(found.interval(0), spec='+z.1f'),
        what='UAS of the first probe minus that of the second',
        unit='points',
        threshold=threshold,
        population=ANY_PROBE if several else THESE_PROBES,
    )


def _leads(*gains: tuple[float, float, int]) -> Contrasts:
    """Return what heads find more than PRACTICAL_LEAD above the offset (Student's t over texts)."""
    gain, error, texts = np.array(gains, np.float64).T
    return Contrasts(
        gain - PRACTICAL_LEAD, error, np.maximum(texts - 1, 1), examples=texts.min(), runs=1
    )
