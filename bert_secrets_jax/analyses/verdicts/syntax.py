"""Claims about heads, and probes of attention, that find dependency relations (Clark et al. 2019).

Shapes: R seeds of a probe, E sentences.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Verdict
from bert_secrets_jax.probes.evaluation import scores
from bert_secrets_jax.runs.verdict import MOST_PROBES, THESE_PROBES

# Much more often than an offset, and hardly more often: percentage points.
PRACTICAL_LEAD = 0.10

RELATION_HEADS = Claim(
    "For at least half of Clark et al.'s relations, a head finds the other word "
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='There it is so for seven of the twelve relations that Universal Dependencies have, too.',
    limits='That no other head does better, and that position and word class do not explain it.',
    short='Half of the relations have a head that finds them',
    section='syntax_heads',
    unit='share of links',
    threshold=PRACTICAL_LEAD,
)
NO_HEAD_FOR_ALL = Claim(
    'At all relations together, the best head finds the other word less than '
    f'{100 * PRACTICAL_LEAD:g} points more often than the best fixed offset.',
    'Clark et al. 2019, section 4.2, Table 1',
    bound='In Table 1 the difference is 8.2 points.',
    limits='That no other head does better than the one that was chosen on other texts.',
    short='No single head finds all relations',
    section='syntax_heads',
    unit='share of links',
    threshold=PRACTICAL_LEAD,
    side='less',
)


# Points of UAS, about half of the published differences.
LEAD_OVER_WORDS = 10.0
LEAD_OVER_RANDOM = 15.0

PROBE_BEYOND_WORDS = Claim(
    'A probe of attention and word vectors is more than '
    f'{LEAD_OVER_WORDS:g} points of UAS better than one of distances and word vectors.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead in Table 3 is 19 points (77 against 58); the threshold is about half of that.',
    limits='Trees: heads are chosen for each word alone.',
    short='Attention knows more syntax than distances do',
    section='probe',
    unit='points',
    threshold=LEAD_OVER_WORDS,
)
ATTENTION_BEYOND_RANDOM = Claim(
    f'A probe of attention alone is more than {LEAD_OVER_RANDOM:g} points of UAS better than one '
    'of word vectors and the attention of random weights.',
    'Clark et al. 2019, section 5, Table 3',
    bound='The lead in Table 3 is 31 points (61 against 30); the threshold is about half of that.',
    limits='Other random weights: a single draw of them is measured.',
    short='Attention knows more syntax than word vectors do',
    section='probe',
    unit='points',
    threshold=LEAD_OVER_RANDOM,
)


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
        why = "{known} of Clark et al.'s relations have enough links in these texts."
        return verdict.nothing_to_test(RELATION_HEADS, why, sample, known=len(known))
    found = _leads(np.array(list(known.values())), RELATION_HEADS)
    half = -(-len(known) // 2)
    # The one on which it hangs: if it is above, half of them are.
    hinge = int(np.argsort(-found.difference, kind='stable')[half - 1])
    interval, reached = found.interval(hinge, offset=PRACTICAL_LEAD), (found.difference >= 0).sum()
    name = list(known)[hinge]
    return verdict.verdict_on(
        RELATION_HEADS,
        found,
        'what the head of the decisive relation finds more than the offset',
        '{reached} of {known} relations have such a head; the claim needs {half}. In the decisive '
        f'one, {{decisive}}, the lead is {verdict.with_interval(RELATION_HEADS, interval)}.',
        p_values=(
            verdict.at_least(found.above, half),
            verdict.at_least(found.below, len(known) - half + 1),
        ),
        interval=interval,
        numbers={'reached': reached, 'known': len(known), 'half': half, 'decisive': name},
        sample=sample,
        sample_of='texts',
    )


def no_head_for_all(gain: float, error: float, texts: int) -> Verdict:
    """Test NO_HEAD_FOR_ALL on the links of all relations together."""
    found = _leads(np.array([(gain, error, texts)]), NO_HEAD_FOR_ALL)
    what = 'share of all links that the best head finds minus that of the best offset'
    return verdict.verdict_on(NO_HEAD_FOR_ALL, found, what, sample_of='texts')


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
    bounds = 100 * (error + verdict.ROUNDING)
    return verdict.contrasts(
        zip(100 * value, bounds, strict=True), float(len(words)), above=threshold
    )


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
    found = uas_contrasts(words, right, other, threshold=claim.threshold)
    several = found.runs >= verdict.FEWEST_FOR_MOST
    return verdict.verdict_on(
        claim,
        found,
        'UAS of the first probe minus that of the second',
        population=MOST_PROBES if several else THESE_PROBES,
    )


def _leads(gains: np.ndarray, claim: Claim) -> Contrasts:
    """Return the parts of a claim on gains, errors and texts [P, 3] (Student's t over texts)."""
    gain, error, texts = gains.astype(np.float64).T
    above = gain - claim.threshold
    above = above if claim.side == 'more' else -above
    return Contrasts(above, error, np.maximum(texts - 1, 1), above[None], examples=texts.min())
