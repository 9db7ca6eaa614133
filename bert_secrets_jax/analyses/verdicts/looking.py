"""Claims of Clark et al. (2019, section 3) about what heads look at: [SEP], [CLS] and gradients.

They are about layers of a model with 12 layers, and are tested on the layers at the same depth.
Tables of heads hold no covariances, so that the tests take a bound, as those in `layers.py`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.verdicts.verdict import (
    FEWEST,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Contrasts,
    Verdict,
    all_above,
    as_runs,
    between,
    by_layer,
    error_of,
    layers_named,
    mean_over,
    measured_in,
    over_runs,
    verdict_of,
)
from bert_secrets_jax.measure.collect import HeadTable

MOSTLY_SEP = 0.5
NEARLY_ALL_SEP = 0.9
BROADLY = 0.8
_CLARK = 'Clark et al. 2019'

SEP_HALF = Claim(
    'In the middle and later layers (6 to 10 of 12), heads give on average more than half of their '
    'attention to [SEP].',
    f'{_CLARK}, section 3.2, Figure 2',
    bound='The paper says "over half". What it shows are means of layers between 0.48 and 0.57; '
    'the test is of the mean over all of these layers.',
    limits='Whether this attention does anything. All [SEP] of a text count together, and texts '
    'with one [SEP] have half as many to look at as pairs.',
)
SEP_TO_SEP = Claim(
    'In the same layers, [SEP] gives on average more than 90 % of its attention to [SEP].',
    f'{_CLARK}, section 3.2, Figure 2',
    bound='The paper says "over 90 %".',
    limits='Whether a [SEP] looks at itself or at the other one.',
)
BROAD_CLS = Claim(
    'In the last layer, [CLS] attends broadly: the entropy of its attention is on average at least '
    f'{100 * BROADLY:g} % of that of even attention.',
    f'{_CLARK}, section 3.3, Figure 4',
    bound='The paper says "broad" and has 3.89 nats, where even attention to 128 tokens has 4.85: '
    '80 %.',
    limits='That [CLS] takes something from all of these tokens.',
)
SEP_NO_OP = Claim(
    'From layer 5 of 12 on, the loss depends less on attention to [SEP] than on attention to other '
    'tokens: its gradient is smaller there in every layer.',
    f'{_CLARK}, section 3.2, Figure 3',
    bound='The paper says that the gradients "become very small": any difference counts here.',
    limits='What a larger change of attention would do: a gradient is of the smallest one. Each '
    'weight is changed by itself, so that rows no longer sum to 1.',
)


def layers_between(first: int, last: int, layers: int) -> slice:
    """Return the layers of a model at the depth of some layers of 12.

    >>> layers_between(6, 10, 12), layers_between(6, 10, 6)
    (slice(5, 10, None), slice(2, 5, None))

    Args:
      first, last: The first and the last of the layers of 12, from 1.
      layers: The number of layers of the model.

    Returns:
      The layers from 0, at least one.
    """
    start = (first - 1) * layers // 12
    return slice(start, max(last * layers // 12, start + 1))


def heads_look_at_sep(sep: HeadTable | Sequence[HeadTable]) -> Verdict:
    """Test SEP_HALF: the mean attention to all [SEP] in layers 6 to 10 of 12 is above MOSTLY_SEP.

    Args:
      sep: The attention to all [SEP] together (`statistics.to_all_sep`): a table, or one for each
        fine-tuned model.
    """
    return _above(SEP_HALF, sep, MOSTLY_SEP, 'attention to all [SEP] together')


def sep_looks_at_sep(sep: HeadTable | Sequence[HeadTable]) -> Verdict:
    """Test SEP_TO_SEP: the mean attention of [SEP] to [SEP] there is above NEARLY_ALL_SEP.

    Args:
      sep: The attention of [SEP] to all [SEP] together (`statistics.sep_to_sep`): a table, or one
        for each fine-tuned model.
    """
    return _above(SEP_TO_SEP, sep, NEARLY_ALL_SEP, 'attention of [SEP] to all [SEP] together')


def cls_looks_broadly(
    entropy: HeadTable | Sequence[HeadTable], uniform: HeadTable | Sequence[HeadTable]
) -> Verdict:
    """Test BROAD_CLS: the entropy of [CLS] in the last layer is at least BROADLY of the even one.

    The estimate is the entropy minus BROADLY times that of even attention, which is above the
    threshold 0 if the claim holds.

    Args:
      entropy: The entropy of the attention of [CLS]: a table, or one for each fine-tuned model.
      uniform: That of even attention on the same texts (`statistics.uniform_entropy`), likewise.
    """
    pairs = list(zip(as_runs(entropy), as_runs(uniform), strict=True))
    found = over_runs(
        [
            (
                of_cls.mean[-1].mean(dtype=np.float64) - BROADLY * even.mean[-1, 0],
                error_of(of_cls)[-1].mean() + BROADLY * error_of(even)[-1, 0],
            )
            for of_cls, even in pairs
        ],
        pairs[0][0].count,
    )
    interval = found.interval(0)
    words, numbers, fields = measured_in(found)
    of_cls, even = (
        np.mean([each.mean[-1].mean() for each in of]) for of in zip(*pairs, strict=True)
    )
    return verdict_of(
        BROAD_CLS,
        all_above(found),
        'In the last layer, the attention of [CLS] has {entropy:.2f} nats and even attention '
        '{even:.2f}, of which it is {share:.2f}. The {what} is '
        f'{{estimate:z.3f}}{between(interval)}, where {{threshold:g}} or more is claimed, in '
        f'{words}.',
        interval,
        what='entropy less the claimed share of that of even attention',
        unit='nats',
        threshold=0.0,
        otherwise=_undecided(found),
        numbers={'entropy': of_cls, 'even': even, 'share': of_cls / even} | numbers,
        **fields,
    )


def sep_is_a_no_op(gradients: Mapping[str, HeadTable], *, loss: str) -> Verdict:
    """Test SEP_NO_OP: in each layer from 5 of 12 on, the gradient at [SEP] is the smaller one.

    The estimate is the gradient at other tokens minus that at [SEP], as a share of that at other
    tokens; it is above the threshold 0 in every layer if the claim holds, and is that of the layer
    that is least in favour of the claim.

    Args:
      gradients: The mean of |d loss / d attention| at '[SEP]' and at 'other tokens'
        (`measure.gradients`).
      loss: The name of the loss.
    """
    sep, others = gradients['[SEP]'], gradients['other tokens']
    where = layers_between(5, 12, len(sep.mean))
    (at_sep, sep_error), (elsewhere, error) = (
        [each[where] for each in _relative(table, others)] for table in (sep, others)
    )
    found = over_runs([(elsewhere - at_sep, sep_error + error)], min(sep.count, others.count))
    layer = where.start + found.least
    interval = found.interval(found.least)
    words, numbers, fields = measured_in(found)
    return verdict_of(
        SEP_NO_OP,
        all_above(found),
        'From layer {first} on, the gradient of {loss} at [SEP] is on average {ratio:.2f} of that '
        'at other tokens. Least in favour of the claim is layer {layer}, where the {what} is '
        f'{{estimate:z.3f}}{between(interval)} of that at other tokens, in {words}.',
        interval,
        what='gradient at other tokens less that at [SEP]',
        unit='share of the gradient at other tokens',
        threshold=0.0,
        otherwise=_undecided(found),
        numbers={
            'first': where.start + 1,
            'loss': loss,
            'ratio': sep.mean[where].mean() / others.mean[where].mean(),
            'layer': layer + 1,
        }
        | numbers,
        **fields,
    )


def _undecided(found: Contrasts) -> str:
    return TOO_FEW if found.examples < FEWEST else UNDECIDED


def _relative(table: HeadTable, to: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Return means of layers and bounds of their errors, in units of the means of another."""
    scale = to.mean.mean(axis=1, dtype=np.float64)
    mean = table.mean.mean(axis=1, dtype=np.float64)
    # Gradients may be far smaller than what rounding leaves of a share of attention.
    error = table.standard_error.mean(axis=1, dtype=np.float64)
    return mean / scale, error / scale


def _above(
    claim: Claim, tables: HeadTable | Sequence[HeadTable], threshold: float, what: str
) -> Verdict:
    """Test that a mean over layers 6 to 10 of 12 is above a threshold."""
    runs = as_runs(tables)
    where = layers_between(6, 10, len(runs[0].mean))
    parts = [[each[where].mean() for each in by_layer(run)] for run in runs]
    found = over_runs([(mean - threshold, error) for mean, error in parts], runs[0].count)
    interval = found.interval(0, offset=threshold)
    layers = mean_over([by_layer(run)[0] for run in runs])
    words, numbers, fields = measured_in(found)
    return verdict_of(
        claim,
        all_above(found),
        f'In {{layers}}, the mean {{what}} is {{estimate:z.3f}}{between(interval)}, where more '
        'than {threshold:g} is claimed; of all layers it is greatest in layer {greatest_layer}, '
        f'{{greatest:.3f}}. This is measured in {words}.',
        interval,
        what=what,
        unit='share of attention',
        threshold=threshold,
        otherwise=_undecided(found),
        numbers={
            'layers': layers_named(where.start + 1, where.stop),
            'greatest_layer': layers.argmax() + 1,
            'greatest': layers.max(),
        }
        | numbers,
        **fields,
    )
