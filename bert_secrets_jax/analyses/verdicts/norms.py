"""A claim about how much attention to [SEP] moves (Clark et al. 2019; Kobayashi et al. 2020)."""

from bert_secrets_jax.analyses.verdicts.looking import MOSTLY_SEP
from bert_secrets_jax.analyses.verdicts.verdict import (
    FEWEST,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Verdict,
    all_above,
    between,
    error_of,
    nothing_to_test,
    over_runs,
    sampled,
    verdict_of,
)
from bert_secrets_jax.measure.tables import HeadTable

SEP_MOVES_LITTLE = Claim(
    'Heads that give [SEP] more than half of their attention get less than half of what they move '
    'from it, on average.',
    'Clark et al. 2019, section 3.2; Kobayashi et al. 2020, section 4',
    bound='Clark et al. say "over half" of attention; the same half is asked of what is moved, the '
    'norms of weighted vectors as shares of their sum for each token.',
    limits='That attention to [SEP] does nothing: less than half may be much.',
)


def sep_moves_little(weights: HeadTable, norms: HeadTable) -> Verdict:
    """Test SEP_MOVES_LITTLE: the mean share of norms from [SEP] is below MOSTLY_SEP.

    The mean is over the heads whose attention to [SEP] is above MOSTLY_SEP. Its error is at most
    the mean of their errors, whatever the dependence between heads.

    Args:
      weights: The attention to all [SEP] together (`statistics.to_all_sep`).
      norms: The same statistic of norms as shares of their rows (`contributions.norms`).
    """
    heads = weights.mean > MOSTLY_SEP
    if not heads.any():
        return nothing_to_test(
            SEP_MOVES_LITTLE,
            'None of {heads} heads gives [SEP] more than half of its attention.',
            weights.count,
            heads=heads.size,
        )
    mean, error = norms.mean[heads].mean(dtype='float64'), error_of(norms)[heads].mean()
    found = over_runs([(MOSTLY_SEP - mean, error)], norms.count)
    _, low, high = found.interval(0)
    interval = (mean, MOSTLY_SEP - high, MOSTLY_SEP - low)
    return verdict_of(
        SEP_MOVES_LITTLE,
        all_above(found),
        f'The {{what}} is {{estimate:z.3f}}{between(interval)} in the {{sinks:head|heads}} that '
        'give it more than half; less than {threshold:g} is claimed.',
        interval,
        what='share of norms that comes from [SEP]',
        unit='share of norms',
        threshold=MOSTLY_SEP,
        otherwise=TOO_FEW if found.examples < FEWEST else UNDECIDED,
        numbers={'sinks': heads.sum()},
        **sampled(found),
    )
