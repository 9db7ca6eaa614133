"""The claim about the shares of patterns."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.verdicts.verdict import (
    Claim,
    Verdict,
    all_above,
    as_runs,
    between,
    capped,
    measured_in,
    not_below,
    over_runs,
    verdict_of,
    whole_model,
)
from bert_secrets_jax.measure.collect import HeadTable

# The greatest share in the paper, that of QQP, and what two classifiers may disagree on.
MOST_IN_THE_PAPER = 0.61
PRACTICAL_PATTERNS = 0.05
MOST = MOST_IN_THE_PAPER + PRACTICAL_PATTERNS

FEW_HETEROGENEOUS = Claim(
    'Heads with block and heterogeneous maps, which may hold more than pre-training put there, are '
    f'32 to 61 % at most: such maps are less than {100 * MOST:g} % of all.',
    'section 4.1, Figure 2: 32 % on MRPC to 61 % on QQP',
    bound='61 % is the greatest share in the paper, of QQP; 5 % of the maps are allowed for what '
    "two classifiers disagree on, the paper's with an F1 of 0.86.",
    limits='What a classifier mistakes in models of another kind than all that were labelled; with '
    'one of your own whose mistakes are not known, anything that it mistakes.',
)


def few_are_heterogeneous(
    classes: Mapping[str, HeadTable | Sequence[HeadTable]],
    *,
    published: float | None = None,
    corrected: tuple[float, float, float] | None = None,
) -> Verdict:
    """Test FEW_HETEROGENEOUS on the shares of maps.

    The estimate is the share of block and heterogeneous maps together, which is below the threshold
    MOST if the claim holds, and above it if it does not.

    Args:
      classes: The shares of the maps of each head in these classes, by the names of the classes; a
        table each, or one for each fine-tuned model.
      published: The paper's share for the same task, to stand beside it; None if there is none.
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
    words, numbers, fields = measured_in(found)
    p_values = all_above(found)
    if corrected is not None and not np.isnan(p_values).any():
        share, low, high = corrected
        p_values = capped(not_below(MOST, share, high)), capped(not_below(-MOST, -share, -low))
    beside = ''
    if published is not None:
        numbers['published'] = 100 * published
        beside = '; in the paper they are {published:.0f} % on this task'
    parts = ' and '.join(classes)
    numbers |= {'parts': parts, 'percent': 100 * as_found[0]}
    what = 'As a share this is'
    if corrected is not None:
        what = 'Corrected for what the classifier mistakes, the share is'
    return verdict_of(
        FEW_HETEROGENEOUS,
        p_values,
        f'Of all maps {{percent:.1f}} % are {{parts}}{beside}. {what} '
        f'{{estimate:z.3f}}{between(interval)}, where less than {{threshold:g}} is claimed, in '
        f'{words}.',
        interval,
        what=f'share of maps that are {parts}',
        unit='share of maps',
        threshold=MOST,
        numbers=numbers,
        **fields,
    )
