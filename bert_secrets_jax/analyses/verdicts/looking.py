"""Claims of Clark et al. (2019, section 3) about what heads look at: [SEP], [CLS] and gradients.

How much attention to [SEP] moves is also from Kobayashi et al. (2020). Layers of 12 stand for those
at the same depth. Errors are bounds, as those in `layers.py`.
"""

from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Runs, Verdict
from bert_secrets_jax.measure.collect import HeadTable

MOSTLY_SEP = 0.5
NEARLY_ALL_SEP = 0.9
BROADLY = 0.8
_CLARK = 'Clark et al. 2019'

SEP_HALF = Claim(
    'In layers 6 to 10 of 12, heads give on average more than half of their attention to [SEP].',
    f'{_CLARK}, section 3.2, Figure 2',
    bound='The paper says "over half". What it shows are means of layers between 0.48 and 0.57; '
    'the test is of the mean over all of these layers.',
    limits='Whether this attention does anything.',
    short='Middle layers give [SEP] more than half of their attention',
)
SEP_TO_SEP = Claim(
    'In the same layers, [SEP] gives on average more than 90 % of its attention to [SEP].',
    f'{_CLARK}, section 3.2, Figure 2',
    bound='The paper says "over 90 %".',
    limits='Whether a [SEP] looks at itself or at the other one.',
    short='In middle layers, [SEP] gives [SEP] nine tenths of its attention',
)
BROAD_CLS = Claim(
    'In the last layer, [CLS] attends broadly: the entropy of its attention is on average at least '
    f'{100 * BROADLY:g} % of that of even attention.',
    f'{_CLARK}, section 3.3, Figure 4',
    bound='The paper says "broad" and has 3.89 nats, where even attention to 128 tokens has 4.85: '
    '80 %.',
    limits='That [CLS] takes something from all of these tokens.',
    short='In the last layer, [CLS] spreads its attention',
)
SEP_NO_OP = Claim(
    'From layer 5 of 12 on, the gradient of the loss is smaller at attention to [SEP] than at '
    'attention to other tokens.',
    f'{_CLARK}, section 3.2, Figure 3',
    bound='The paper says that the gradients "become very small": any difference counts here.',
    limits='What a larger change of attention would do.',
    short='Attention to [SEP] hardly changes the loss',
)


SEP_MOVES_LITTLE = Claim(
    'Heads that give [SEP] more than half of their attention get less than half of what they move '
    'from it, on average.',
    'Clark et al. 2019, section 3.2; Kobayashi et al. 2020, section 4',
    bound='Clark et al. say "over half" of attention; the same half is asked of what is moved, the '
    'norms of weighted vectors as shares of their sum for each token.',
    limits='That attention to [SEP] does nothing: less than half may be much.',
    short='Heads take little from [SEP], however much they attend to it',
)


def layers_between(first: int, last: int, layers: int) -> slice:
    """Return the layers of a model, at least one, at the depth of some layers of 12.

    >>> layers_between(6, 10, 12), layers_between(6, 10, 6)
    (slice(5, 10, None), slice(2, 5, None))
    """
    start = (first - 1) * layers // 12
    return slice(start, max(last * layers // 12, start + 1))


def heads_look_at_sep(sep: Runs) -> Verdict:
    """Test SEP_HALF: the mean attention to all [SEP] in layers 6 to 10 of 12 is above MOSTLY_SEP.

    The tables are of `statistics.to_all_sep`: one, or one for each fine-tuned model.
    """
    return _above(SEP_HALF, sep, MOSTLY_SEP, 'attention to all [SEP] together')


def sep_looks_at_sep(sep: Runs) -> Verdict:
    """Test SEP_TO_SEP: the mean attention of [SEP] to [SEP] there is above NEARLY_ALL_SEP.

    The tables are of `statistics.sep_to_sep`: one, or one for each fine-tuned model.
    """
    return _above(SEP_TO_SEP, sep, NEARLY_ALL_SEP, 'attention of [SEP] to all [SEP] together')


def cls_looks_broadly(entropy: Runs, uniform: Runs) -> Verdict:
    """Test BROAD_CLS: the entropy of [CLS] in the last layer is at least BROADLY of the even one.

    The estimate is the entropy minus BROADLY times that of even attention on the same texts
    (`statistics.uniform_entropy`), above 0 if it holds.
    """
    pairs = list(zip(verdict.as_runs(entropy), verdict.as_runs(uniform), strict=True))
    per_run = [
        (
            of_cls.mean[-1].mean(dtype=np.float64) - BROADLY * even.mean[-1, 0],
            verdict.error_of(of_cls)[-1].mean() + BROADLY * verdict.error_of(even)[-1, 0],
        )
        for of_cls, even in pairs
    ]
    found = verdict.over_runs(per_run, pairs[0][0].count)
    of_cls, even = (
        np.mean([each.mean[-1].mean() for each in of]) for of in zip(*pairs, strict=True)
    )
    return verdict.verdict_on(
        BROAD_CLS,
        found,
        'In the last layer, the attention of [CLS] has {share:.2f} of the entropy of even '
        'attention; {claimed:g} or more is claimed.',
        what='entropy less the claimed share of that of even attention',
        unit='nats',
        threshold=0.0,
        otherwise=verdict.undecided(found),
        numbers={'share': of_cls / even, 'claimed': BROADLY},
    )


def sep_is_a_no_op(gradients: Mapping[str, HeadTable], *, loss: str) -> Verdict:
    """Test SEP_NO_OP: in each layer from 5 of 12 on, the gradient at [SEP] is the smaller one.

    The estimate is the gradient at other tokens minus that at [SEP], as a share of the former, in
    the layer least in favour of the claim. It is above 0 in every layer if the claim holds.
    Tables are of |d loss / d attention| at '[SEP]' and at 'other tokens' (`measure.gradients`).
    """
    sep, others = gradients['[SEP]'], gradients['other tokens']
    where = layers_between(5, 12, len(sep.mean))
    (at_sep, sep_error), (elsewhere, error) = (
        [each[where] for each in _relative(table, others)] for table in (sep, others)
    )
    found = verdict.over_runs(
        [(elsewhere - at_sep, sep_error + error)], min(sep.count, others.count)
    )
    layer = where.start + found.least
    interval = found.interval(found.least)
    return verdict.verdict_on(
        SEP_NO_OP,
        found,
        f'In layer {{layer}}, the {{what}} is {{estimate:z.3f}}{verdict.between(interval)} of that '
        'at other tokens; more than {threshold:g} is claimed.',
        what='gradient at other tokens less that at [SEP]',
        unit=f'share of the gradient of {loss} at other tokens',
        threshold=0.0,
        otherwise=verdict.undecided(found),
        numbers={'layer': layer + 1},
    )


def sep_moves_little(weights: HeadTable, norms: HeadTable) -> Verdict:
    """Test SEP_MOVES_LITTLE: the mean share of norms from [SEP] is below MOSTLY_SEP.

    The mean is over the heads whose attention to [SEP] is above MOSTLY_SEP. Its error is at most
    the mean of their errors, whatever the dependence between heads.
    Tables are of all [SEP] together (`statistics.to_all_sep`), and norms are shares of their rows.
    """
    heads = weights.mean > MOSTLY_SEP
    if not heads.any():
        return verdict.nothing_to_test(
            SEP_MOVES_LITTLE,
            'None of {heads} heads gives [SEP] more than half of its attention.',
            weights.count,
            heads=heads.size,
        )
    mean, error = norms.mean[heads].mean(dtype='float64'), verdict.error_of(norms)[heads].mean()
    found = verdict.over_runs([(MOSTLY_SEP - mean, error)], norms.count)
    _, low, high = found.interval(0)
    interval = (mean, MOSTLY_SEP - high, MOSTLY_SEP - low)
    return verdict.verdict_on(
        SEP_MOVES_LITTLE,
        found,
        f'The {{what}} is {{estimate:z.3f}}{verdict.between(interval)} in the {{sinks:head|heads}} '
        'that give it more than half; less than {threshold:g} is claimed.',
        interval,
        what='share of norms that comes from [SEP]',
        unit='share of norms',
        threshold=MOSTLY_SEP,
        otherwise=verdict.undecided(found),
        numbers={'sinks': heads.sum()},
    )


def _relative(table: HeadTable, to: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Return means of layers and bounds of their errors, in units of the means of another."""
    scale = to.mean.mean(axis=1, dtype=np.float64)
    mean = table.mean.mean(axis=1, dtype=np.float64)
    # Gradients may be far smaller than what rounding leaves of a share of attention.
    error = table.standard_error.mean(axis=1, dtype=np.float64)
    return mean / scale, error / scale


def _above(claim: Claim, tables: Runs, threshold: float, what: str) -> Verdict:
    """Test that a mean over layers 6 to 10 of 12 is above a threshold."""
    runs = verdict.as_runs(tables)
    where = layers_between(6, 10, len(runs[0].mean))
    parts = [[each[where].mean() for each in verdict.by_layer(run)] for run in runs]
    found = verdict.over_runs([(mean - threshold, error) for mean, error in parts], runs[0].count)
    interval = found.interval(0, offset=threshold)
    return verdict.verdict_on(
        claim,
        found,
        f'In {{layers}}, the mean {{what}} is {{estimate:z.3f}}{verdict.between(interval)}; more '
        'than {threshold:g} is claimed.',
        what=what,
        unit='share of attention',
        threshold=threshold,
        otherwise=verdict.undecided(found),
        numbers={'layers': verdict.layers_named(where.start + 1, where.stop)},
    )
