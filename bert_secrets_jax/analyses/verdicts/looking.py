"""Claims of Clark et al. (2019, section 3) about what heads look at: [SEP], [CLS] and gradients.

How much attention to [SEP] moves is also from Kobayashi et al. (2020). Layers of 12 stand for those
at the same depth. Errors are bounds, as those in `layers.py`.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Runs, Verdict
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.names import counted

MOSTLY_SEP = 0.5
NEARLY_ALL_SEP = 0.9
BROADLY = 0.8

SEP_HALF = Claim(
    'In layers 6 to 10 of 12, heads give on average more than half of their attention to [SEP].',
    'Clark et al. 2019, section 3.2, Figure 2',
    bound='They say "over half". Their Figure 2 shows means of layers between 0.48 and 0.57.',
    limits='Whether this attention does anything.',
    short='Middle layers give [SEP] more than half of their attention',
    section='look_at',
    unit='share of attention',
    threshold=MOSTLY_SEP,
)
SEP_TO_SEP = dataclasses.replace(
    SEP_HALF,
    text='In layers 6 to 10 of 12, [SEP] gives [SEP] on average over 90 % of its attention.',
    bound='They say "over 90 %".',
    limits='Whether a [SEP] looks at itself or at the other one.',
    short='In middle layers, [SEP] gives [SEP] nine tenths of its attention',
    threshold=NEARLY_ALL_SEP,
)
BROAD_CLS = Claim(
    'In the last layer, [CLS] attends broadly: its attention has on average at least '
    f'{100 * BROADLY:g} % of the entropy of even attention.',
    'Clark et al. 2019, section 3.3, Figure 4',
    bound='They say "broad" and report 3.89 nats: 80 % of even attention to 128 tokens.',
    limits='That [CLS] takes something from all of these tokens.',
    short='In the last layer, [CLS] spreads its attention',
    section='look_at',
    unit='nats',
)
SEP_NO_OP = Claim(
    'From layer 5 of 12 on, the gradient of the loss is smaller at attention to [SEP] than at '
    'attention to other tokens.',
    'Clark et al. 2019, section 3.2, Figure 3',
    bound='They say that the gradients "become very small": any difference counts here.',
    limits='What a larger change of attention would do.',
    short='Attention to [SEP] hardly changes the loss',
    section='look_at',
)
SEP_MOVES_LITTLE = Claim(
    'Heads that give [SEP] more than half of their attention get less than half of what they move '
    'from it, on average.',
    'Clark et al. 2019, section 3.2; Kobayashi et al. 2020, section 4',
    bound='Clark et al. say "over half" of attention; we ask the same half of what is moved.',
    limits='That attention to [SEP] does nothing: less than half may be much.',
    short='Heads take little from [SEP], however much they attend to it',
    section='contributions',
    unit='share of norms',
    threshold=MOSTLY_SEP,
    side='less',
)


def layers_between(first: int, last: int, layers: int) -> slice:
    """Return the layers of a model, at least one, at the depth of some layers of 12.

    >>> layers_between(6, 10, 12), layers_between(6, 10, 6)
    (slice(5, 10, None), slice(2, 5, None))
    """
    start = (first - 1) * layers // 12
    return slice(start, max(last * layers // 12, start + 1))


def heads_look_at_sep(sep: Runs) -> Verdict:
    """Test SEP_HALF on tables of `statistics.to_all_sep`: one, or one for each fine-tuned model."""
    return _in_middle_layers(SEP_HALF, sep, 'mean attention to all [SEP]')


def sep_looks_at_sep(sep: Runs) -> Verdict:
    """Test SEP_TO_SEP on tables of `statistics.sep_to_sep`, as `heads_look_at_sep` does."""
    return _in_middle_layers(SEP_TO_SEP, sep, 'mean attention of [SEP] to all [SEP]')


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
    of_cls, even = (
        np.mean([each.mean[-1].mean() for each in of]) for of in zip(*pairs, strict=True)
    )
    return verdict.verdict_on(
        BROAD_CLS,
        verdict.contrasts(per_run, pairs[0][0].count),
        'entropy less the claimed share of that of even attention',
        'In the last layer, the attention of [CLS] has {share:.2f} of the entropy of even '
        'attention. The claim needs {claimed:g} or more.',
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
    found = verdict.contrasts(
        [(elsewhere - at_sep, sep_error + error)], min(sep.count, others.count)
    )
    layer = where.start + found.least + 1
    return verdict.verdict_on(
        SEP_NO_OP,
        found,
        f'relative drop of the gradient from other tokens to [SEP] in layer {layer}',
        unit=f'share of the gradient of {loss} at other tokens',
    )


def sep_moves_little(weights: HeadTable, norms: HeadTable) -> Verdict:
    """Test SEP_MOVES_LITTLE: the mean share of norms from [SEP] is below MOSTLY_SEP.

    The mean is over the heads whose attention to [SEP] is above MOSTLY_SEP. Its error is at most
    the mean of their errors, whatever the dependence between heads.
    Tables are of all [SEP] together (`statistics.to_all_sep`), and norms are shares of their rows.
    """
    heads = weights.mean > MOSTLY_SEP
    if not heads.any():
        why = 'None of {heads} heads gives [SEP] more than half of its attention.'
        return verdict.nothing_to_test(SEP_MOVES_LITTLE, why, weights.count, heads=heads.size)
    mean, error = norms.mean[heads].mean(dtype='float64'), verdict.error_of(norms)[heads].mean()
    found = verdict.contrasts([(MOSTLY_SEP - mean, error)], norms.count)
    what = f'share of norms from [SEP] in the {counted(heads.sum(), "head")} that give it most'
    return verdict.verdict_on(SEP_MOVES_LITTLE, found, what)


def _relative(table: HeadTable, to: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Return means of layers and bounds of their errors, in units of the means of another."""
    scale = to.mean.mean(axis=1, dtype=np.float64)
    mean = table.mean.mean(axis=1, dtype=np.float64)
    # Gradients may be far smaller than what rounding leaves of a share of attention.
    error = table.standard_error.mean(axis=1, dtype=np.float64)
    return mean / scale, error / scale


def _in_middle_layers(claim: Claim, tables: Runs, what: str) -> Verdict:
    runs = verdict.as_runs(tables)
    where = layers_between(6, 10, len(runs[0].mean))
    parts = [[each[where].mean() for each in verdict.by_layer(run)] for run in runs]
    found = verdict.contrasts(parts, runs[0].count, above=claim.threshold)
    layers = verdict.layers_named(where.start + 1, where.stop)
    return verdict.verdict_on(claim, found, f'{what} in {layers}')
