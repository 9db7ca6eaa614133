"""The claim about the shares of patterns."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.verdicts.verdict import (
    Claim,
    Verdict,
    all_above,
    as_runs,
    capped,
    decisive,
    not_below,
    over_runs,
    sampled,
    verdict_of,
    whole_model,
)
from bert_secrets_jax.measure.collect import HeadTable

# The greatest share in the paper, that of QQP, and what two classifiers may disagree on.
MOST_IN_THE_PAPER = 0.61
PRACTICAL_PATTERNS = 0.05
MOST = MOST_IN_THE_PAPER + PRACTICAL_PATTERNS

FEW_HETEROGENEOUS = Claim(
    'Block and heterogeneous maps, which may hold more than pre-training put there, are less than '
    f'{100 * MOST:g} % of all.',
    'section 4.1, Figure 2: 32 % on MRPC to 61 % on QQP',
    bound='61 % is the greatest share in the paper, of QQP; 5 % of the maps are allowed for what '
    "two classifiers disagree on, the paper's with an F1 of 0.86.",
    limits='What the classifier mistakes in models of another kind than all labelled ones.',
)


def few_are_heterogeneous(
    classes: Mapping[str, HeadTable | Sequence[HeadTable]],
    *,
    corrected: tuple[float, float, float] | None = None,
) -> Verdict:
    """Test FEW_HETEROGENEOUS on the shares of maps.

    The estimate is the share of block and heterogeneous maps together, which is below the threshold
    MOST if the claim holds, and above it if it does not.

    Args:
      classes: The shares of the maps of each head in these classes, by the names of the classes; a
        table each, or one for each fine-tuned model.
      corrected: The share of both together and its 95 % interval, corrected for what the classifier
        mistakes (`Patterns.correct`), which decides; None takes the share as it is.
    """
    tables = [as_runs(each) for each in classes.values()]
    per_run = [
        tuple(np.sum([whole_model(table) for table in run], axis=0))
        for run in zip(*tables, strict=True)
    ]
    found = over_runs([(MOST - share, error) for share, error in per_run], tables[0][0].count)
    estimate, low, high = found.interval(0, offset=-MOST)
    as_found = -estimate, -high, -low
    interval = as_found if corrected is None else corrected
    p_values = all_above(found)
    if corrected is not None and not np.isnan(p_values).any():
        share, low, high = corrected
        p_values = capped(not_below(MOST, share, high)), capped(not_below(-MOST, -share, -low))
    parts = ' and '.join(classes)
    what = f'share of maps that are {parts}'
    return verdict_of(
        FEW_HETEROGENEOUS,
        p_values,
        decisive(interval, 'less'),
        interval,
        what=what if corrected is None else f'corrected {what}',
        unit='share of maps',
        threshold=MOST,
        numbers={},
        **sampled(found),
    )
