"""Claims about where heads attend: layers, patterns, kinds of tokens, [CLS] and [SEP].

Tables of heads hold no covariances. The tests take the greatest standard deviation that a mean or a
difference can have, however heads depend on each other: they are conservative. Where a claim has
several parts, the estimate is the part that is least in favour of it, in standard errors.

Clark et al. (2019, section 3) write of layers of 12, which stand for those at the same depth. How
much attention to [SEP] moves is also from Kobayashi et al. (2020).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_secrets_jax.analyses.verdicts import claims, verdict
from bert_secrets_jax.analyses.verdicts.verdict import (
    Claim,
    Runs,
    Tables,
    Verdict,
    each_of,
    on_runs,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.names import counted, head_name
from bert_secrets_jax.runs.findings import Interval
from bert_secrets_jax.runs.verdict import ANY_FINETUNING, MOST_FINETUNINGS, THESE_MODELS
from bert_secrets_jax.stats import over_runs, student
from bert_secrets_jax.stats.over_runs import Contrasts


def last_layers_change_most(
    *similarity: Runs, claim: Claim = claims.LAST_LAYERS, under: Sequence[str] = ('',)
) -> Verdict:
    """Test LAST_LAYERS: both last layers are less similar than every other one.

    The estimate is the similarity (`statistics.cosine`) of another layer minus that of one of the
    last two, above the threshold for every such pair if the claim holds. Of several schedules, each
    with the same seeds and a name that ends a sentence (`under`), it is so for every one.
    """
    runs = [*zip(*map(verdict.as_runs, similarity), strict=True)]
    count, layers = runs[0][0].count, len(runs[0][0].mean)
    if layers < 3:
        why = 'The model has {layers:layer|layers} and no others to compare the last two with.'
        return verdict.nothing_to_test(claim, why, count, layers=layers)
    last, other = np.eye(layers)[-2:], np.eye(layers)[:-2]
    weights = (other[None] - last[:, None]).reshape(-1, layers)
    tables = [np.concatenate([verdict.by_layer(each) for each in run], axis=1) for run in runs]
    weights = np.kron(np.eye(len(similarity)), weights)
    pairs = [verdict.combined(weights, *table) for table in tables]
    found = over_runs.contrasts(pairs, count, above=claims.LAST_LAYERS.threshold)
    schedule, pair = divmod(found.least, 2 * (layers - 2))
    which, against = layers - 1 + pair // (layers - 2), 1 + pair % (layers - 2)
    what = f'similarity of layer {against} minus that of layer {which}{under[schedule]}'
    # A single fine-tuning under each schedule does not speak for the schedules.
    alone: dict[str, Any] = {}
    if under[0] and len(runs) == 1:
        alone['population'] = THESE_MODELS
    return verdict.verdict_on(claim, found, what, **alone)


def cls_then_sep(runs: Mapping[str, Tables]) -> list[Verdict]:
    """Return the verdict on CLS_THEN_SEP from tables of [CLS] and [SEP]; none on no runs."""
    return on_runs(
        runs,
        lambda tables: attention_moves_from_cls_to_sep(
            each_of(tables, '[CLS]'), each_of(tables, '[SEP]')
        ),
    )


def attention_moves_from_cls_to_sep(cls: Runs, sep: Runs) -> Verdict:
    """Test CLS_THEN_SEP from the first half of the layers to the second.

    With an odd number of layers the middle one is in neither half. The estimate is one of three
    parts, all above the threshold if the claim holds.
    """
    runs = list(zip(verdict.as_runs(cls), verdict.as_runs(sep), strict=True))
    count, layers = runs[0][0].count, len(runs[0][0].mean)
    half = layers // 2
    if not half:
        return verdict.nothing_to_test(claims.CLS_THEN_SEP, 'The model has a single layer.', count)
    early, late = np.zeros(layers), np.zeros(layers)
    early[:half], late[-half:] = 1 / half, 1 / half
    # Weights of the layers of [CLS], then of those of [SEP].
    none = np.zeros(layers)
    weights = np.block([[early - late, none], [none, late - early], [-late, late]])
    tables = [np.concatenate([verdict.by_layer(each) for each in run], axis=1) for run in runs]
    parts = [verdict.combined(weights, *table) for table in tables]
    found = over_runs.contrasts(parts, count, above=claims.CLS_THEN_SEP.threshold)
    names = (
        'attention that [CLS] loses from early to late layers',
        'attention that [SEP] gains from early to late layers',
        'attention to [SEP] minus that to [CLS] in late layers',
    )
    return verdict.verdict_on(claims.CLS_THEN_SEP, found, names[found.least])


def vertical_patterns_are_special(
    vertical: np.ndarray | Sequence[np.ndarray], special: Runs
) -> Verdict:
    """Test VERTICAL on the heads of which more than half of the maps are vertical.

    The estimate is the attention to special tokens of the head that decides: in order of their t,
    the last of the NEARLY_ALL that are to be above one half. Its interval is of this head alone.

    Args:
      vertical: The share of each head's maps that are vertical [L, N], or one for each model.
      special: The attention to [CLS] and all [SEP] together (`statistics.to_special`).

    Raises:
      ValueError: The two have different numbers of layers or heads.
    """
    runs = verdict.as_runs(special)
    shares = [np.asarray(each) for each in ([vertical] if np.ndim(vertical) == 2 else vertical)]
    for share, table in zip(shares, runs, strict=True):
        if share.shape != table.mean.shape:
            raise ValueError(
                f'Shares of vertical maps are {list(share.shape)}, and the model has '
                f'{list(table.mean.shape)} heads.'
            )
    heads, count = (
        np.mean(shares, axis=0, dtype=np.float64) > claims.VERTICAL.threshold,
        runs[0].count,
    )
    if not heads.any():
        return verdict.nothing_to_test(claims.VERTICAL, 'No head has mostly vertical maps.', count)
    found = over_runs.contrasts(
        [
            (run.mean[heads] - claims.VERTICAL.threshold, verdict.error_of(run)[heads])
            for run in runs
        ],
        count,
    )
    needed = math.ceil(claims.NEARLY_ALL * len(found.difference))
    others = len(found.difference) - needed + 1
    p_values = (
        over_runs.at_least(found.above, needed, found.by_sign[0]),
        over_runs.at_least(found.below, others, found.by_sign[1]),
    )
    if count < over_runs.FEWEST:
        p_values = math.nan, math.nan
    order = np.argsort(-found.difference / found.error, kind='stable')
    deciding = int(order[needed - 1])
    interval = found.typical(deciding, offset=claims.VERTICAL.threshold)
    head = head_name(*np.argwhere(heads)[deciding])
    above = (found.difference > 0).sum()
    return verdict.verdict_on(
        claims.VERTICAL,
        found,
        f'attention of {head} to [CLS] and all [SEP]',
        '{above} of {vertical_heads} heads with mostly vertical maps give [CLS] and [SEP] more '
        'than half; the claim needs {needed}. By that count {head} decides, and gives '
        f'{verdict.with_interval(claims.VERTICAL, interval)}.',
        p_values=p_values,
        interval=interval,
        vertical_heads=heads.sum(),
        above=above,
        needed=needed,
        head=head,
    )


def features_are_negligible(cls: Runs, sep: Runs, features: Mapping[str, Runs]) -> Verdict:
    """Test FEATURES: each type of word gets less than a part of [CLS] and [SEP] together.

    The estimate is the attention to a feature divided by that to [CLS] and [SEP] together, of the
    feature that is least in favour of the claim. Its interval is Fieller's, and agrees with the
    test of a single model. Features in fewer than 20 examples are left out if any other remains.
    At least one is needed, by its name (`statistics.attention_to`).
    """
    features = {name: verdict.as_runs(tables) for name, tables in features.items()}
    features, rare, numbers = _frequent(features)
    wholes = _sums(verdict.as_runs(cls), verdict.as_runs(sep))
    parts = np.array([[verdict.whole_model(table) for table in runs] for runs in features.values()])
    parts = np.moveaxis(parts, 0, -1)  # [R, 2, P]: mean and bound of each feature
    count = min(runs[0].count for runs in features.values())
    found = over_runs.contrasts(
        [
            (
                claims.FEATURES.threshold * special - means,
                claims.FEATURES.threshold * error + errors,
            )
            for (special, error), (means, errors) in zip(wholes, parts, strict=True)
        ],
        count,
    )
    part = over_runs.contrasts([run[:, found.least] for run in parts], count)
    interval = _ratio(part, over_runs.contrasts(wholes, count))
    return verdict.verdict_on(
        claims.FEATURES,
        found,
        f'attention to {list(features)[found.least]} divided by that to [CLS] and [SEP]',
        verdict.decisive(claims.FEATURES, interval) + rare,
        interval=interval,
        **numbers,
    )


def few_are_heterogeneous(
    classes: Mapping[str, Runs], *, corrected: Interval | None = None
) -> Verdict:
    """Test FEW_HETEROGENEOUS: block and heterogeneous maps together have a small share.

    Args:
      classes: The shares of the maps of each head in these classes, by the names of the classes.
      corrected: The share of both and its 95 % interval, corrected for what the classifier mistakes
        (`Patterns.correct`), which decides; None takes the share as it is.
    """
    tables = [verdict.as_runs(each) for each in classes.values()]
    per_run = [
        (claims.FEW_HETEROGENEOUS.threshold - share, error) for share, error in _sums(*tables)
    ]
    found = over_runs.contrasts(per_run, tables[0][0].count)
    what, p_values = f'share of maps that are {" or ".join(classes)}', over_runs.all_above(found)
    if corrected is None:
        return verdict.verdict_on(claims.FEW_HETEROGENEOUS, found, what)
    if not np.isnan(p_values).any():
        share, low, high = corrected
        p_values = (
            over_runs.capped(
                float(over_runs.not_below(claims.FEW_HETEROGENEOUS.threshold, share, high))
            ),
            over_runs.capped(
                float(over_runs.not_below(-claims.FEW_HETEROGENEOUS.threshold, -share, -low))
            ),
        )
    of_mean: dict[str, Any] = {}
    if verdict.population_of(found) == MOST_FINETUNINGS:
        # Mistakes are corrected in the mean over models.
        of_mean['population'] = ANY_FINETUNING
    return verdict.verdict_on(
        claims.FEW_HETEROGENEOUS,
        found,
        f'corrected {what}',
        p_values=p_values,
        interval=corrected,
        **of_mean,
    )


def cls_attends_most_to_sep(from_cls: Mapping[str, Runs]) -> Verdict:
    """Test LAST_CLS in the last layer.

    The estimate is the attention to [SEP] minus that to another type of token, above 0 for every
    type if the claim holds; it is of the type least in favour of the claim. Types in fewer than 20
    examples are left out if at least two remain.
    Types go by their names (`statistics.cls_to`): '[SEP]' and at least one other.
    """
    from_cls = {name: verdict.as_runs(tables) for name, tables in from_cls.items()}
    from_cls, rare, numbers = _frequent(from_cls, at_least_kept=2)
    means = {name: [run.mean[-1].mean() for run in runs] for name, runs in from_cls.items()}
    errors = {
        name: [verdict.error_of(run)[-1].mean() for run in runs] for name, runs in from_cls.items()
    }
    others = [name for name in from_cls if name != '[SEP]']
    found = over_runs.contrasts(
        zip(
            np.transpose([np.subtract(means['[SEP]'], means[name]) for name in others]),
            np.transpose([np.add(errors['[SEP]'], errors[name]) for name in others]),
            strict=True,
        ),
        min(runs[0].count for runs in from_cls.values()),
    )
    return verdict.verdict_on(
        claims.LAST_CLS,
        found,
        f'attention of [CLS] to [SEP] minus that to {others[found.least]}',
        verdict.decisive(claims.LAST_CLS, found.typical(found.least)) + rare,
        **numbers,
    )


def _sums(*tables: list[HeadTable]) -> list[tuple[float, float]]:
    """Return for each run the sum of the means of some tables, and a bound of its error."""
    runs = zip(*tables, strict=True)
    return [tuple(np.sum([verdict.whole_model(table) for table in run], axis=0)) for run in runs]


def _frequent(
    tables: Mapping[str, list[HeadTable]], *, at_least_kept: int = 1
) -> tuple[Mapping[str, list[HeadTable]], str, dict[str, Any]]:
    """Return the tables of what is frequent enough, and a sentence on the rest."""
    kept = {name: runs for name, runs in tables.items() if runs[0].count >= over_runs.FEWEST}
    if len(kept) in (len(tables), *range(at_least_kept)):
        return tables, '', {}
    counts = {name: runs[0].count for name, runs in tables.items() if name not in kept}
    rare = ', '.join(f'{name} ({round(float(count))})' for name, count in counts.items())
    return kept, ' Left out as too rare: {rare}.', {'rare': rare}


def _ratio(part: Contrasts, total_of: Contrasts) -> Interval:
    """Return a ratio of positive numbers and its 95 % interval after Fieller.

    He tests part - ratio * whole against 0, here with the bound of that difference's error.
    """
    (value,), (error,) = part.difference, part.error
    (total,), (total_error,) = total_of.difference, total_of.error
    squares, freedom = (error**2, total_error**2), min(part.freedom[0], total_of.freedom[0])
    ends = student.ratio_interval(value, total, squares, -error * total_error, freedom)
    low, high = (max(float(each), 0.0) for each in ends)
    if part.runs < over_runs.FEWEST_FOR_MOST or np.isinf(high):
        return float(value / total), low, high
    median, low, high = over_runs.median_of(
        (part.each / total_of.each)[:, 0], (high - low) / 2 / student.reach(freedom)
    )
    return median, max(low, 0.0), high


def layers_between(first: int, last: int, layers: int) -> slice:
    """Return the layers of a model, at least one, at the depth of some layers of 12.

    >>> layers_between(6, 10, 12), layers_between(6, 10, 6)
    (slice(5, 10, None), slice(2, 5, None))
    """
    start = (first - 1) * layers // 12
    return slice(start, max(last * layers // 12, start + 1))


def heads_look_at_sep(sep: Runs) -> Verdict:
    """Test SEP_HALF on tables of `statistics.to_all_sep`: one, or one for each fine-tuned model."""
    return _in_middle_layers(claims.SEP_HALF, sep, 'mean attention to all [SEP]')


def sep_looks_at_sep(sep: Runs) -> Verdict:
    """Test SEP_TO_SEP on tables of `statistics.sep_to_sep`, as `heads_look_at_sep` does."""
    return _in_middle_layers(claims.SEP_TO_SEP, sep, 'mean attention of [SEP] to all [SEP]')


def cls_looks_broadly(entropy: Runs, uniform: Runs) -> Verdict:
    """Test BROAD_CLS: the entropy of [CLS] in the last layer is at least BROADLY of the even one.

    The estimate is the entropy minus BROADLY times that of even attention on the same texts
    (`statistics.uniform_entropy`), above 0 if it holds.
    """
    pairs = list(zip(verdict.as_runs(entropy), verdict.as_runs(uniform), strict=True))
    per_run = [
        (
            of_cls.mean[-1].mean(dtype=np.float64) - claims.BROADLY * even.mean[-1, 0],
            verdict.error_of(of_cls)[-1].mean() + claims.BROADLY * verdict.error_of(even)[-1, 0],
        )
        for of_cls, even in pairs
    ]
    of_cls, even = (
        np.mean([each.mean[-1].mean() for each in of]) for of in zip(*pairs, strict=True)
    )
    return verdict.verdict_on(
        claims.BROAD_CLS,
        over_runs.contrasts(per_run, pairs[0][0].count),
        'entropy less the claimed share of that of even attention',
        'In the last layer, the attention of [CLS] has {share:.2f} of the entropy of even '
        'attention. The claim needs {claimed:g} or more.',
        share=of_cls / even,
        claimed=claims.BROADLY,
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
    found = over_runs.contrasts(
        [(elsewhere - at_sep, sep_error + error)], min(sep.count, others.count)
    )
    layer = where.start + found.least + 1
    return verdict.verdict_on(
        claims.SEP_NO_OP,
        found,
        f'relative drop of the gradient from other tokens to [SEP] in layer {layer}',
        unit=f'share of the gradient of {loss} at other tokens',
    )


def sep_moves_little(weights: HeadTable, norms: HeadTable) -> Verdict:
    """Test SEP_MOVES_LITTLE: the mean share of norms from [SEP] is below one half.

    The mean is over the heads whose attention to [SEP] is above one half. Its error is at most
    the mean of their errors, whatever the dependence between heads.
    Tables are of all [SEP] together (`statistics.to_all_sep`), and norms are shares of their rows.
    """
    heads = weights.mean > claims.SEP_MOVES_LITTLE.threshold
    if not heads.any():
        why = 'None of {heads} heads gives [SEP] more than half of its attention.'
        return verdict.nothing_to_test(
            claims.SEP_MOVES_LITTLE, why, weights.count, heads=heads.size
        )
    mean, error = norms.mean[heads].mean(dtype='float64'), verdict.error_of(norms)[heads].mean()
    found = over_runs.contrasts([(claims.SEP_MOVES_LITTLE.threshold - mean, error)], norms.count)
    what = f'share of norms from [SEP] in the {counted(heads.sum(), "head")} that give it most'
    return verdict.verdict_on(claims.SEP_MOVES_LITTLE, found, what)


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
    found = over_runs.contrasts(parts, runs[0].count, above=claim.threshold)
    layers = verdict.layers_named(where.start + 1, where.stop)
    return verdict.verdict_on(claim, found, f'{what} in {layers}')
