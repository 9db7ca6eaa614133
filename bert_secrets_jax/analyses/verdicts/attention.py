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
from bert_secrets_jax.runs.result import Interval
from bert_secrets_jax.runs.verdict import ANY_FINETUNING, THESE_MODELS
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
    runs = verdict.as_runs(similarity[0])
    layers, schedules = len(runs[0].mean), len(similarity)
    if layers < 3:
        why = 'The model has {layers:layer|layers} and no others to compare the last two with.'
        return verdict.nothing_to_test(claim, why, runs[0].count, layers=layers)
    last, other = np.eye(layers)[-2:], np.eye(layers)[:-2]
    pairs = (other[None] - last[:, None]).reshape(-1, layers)
    weights = np.kron(np.eye(schedules), pairs).reshape(-1, schedules, layers)
    found = verdict.on_layers(claim, weights, *similarity)
    schedule, pair = divmod(found.least, len(pairs))
    which, against = layers - 1 + pair // (layers - 2), 1 + pair % (layers - 2)
    what = f'similarity of layer {against} minus that of layer {which}{under[schedule]}'
    # A single fine-tuning under each schedule does not speak for the schedules.
    alone: dict[str, Any] = {'population': THESE_MODELS} if under[0] and found.runs == 1 else {}
    return verdict.verdict_on(claim, found, what, **alone)


def cls_then_sep(runs: Mapping[str, Tables]) -> list[Verdict]:
    """Return the verdict on CLS_THEN_SEP from tables of [CLS] and [SEP]; none on no runs."""

    def moves(tables: Sequence[Tables]) -> Verdict:
        return attention_moves_from_cls_to_sep(*(each_of(tables, of) for of in ('[CLS]', '[SEP]')))

    return on_runs(runs, moves)


def attention_moves_from_cls_to_sep(cls: Runs, sep: Runs) -> Verdict:
    """Test CLS_THEN_SEP from the first half of the layers to the second.

    With an odd number of layers the middle one is in neither half. The estimate is one of three
    parts, all above the threshold if the claim holds.
    """
    first = verdict.as_runs(cls)[0]
    layers, half = len(first.mean), len(first.mean) // 2
    if not half:
        why = 'The model has a single layer.'
        return verdict.nothing_to_test(claims.CLS_THEN_SEP, why, first.count)
    none, early = np.zeros(layers), _mean_of(slice(half), layers)
    late = early[::-1]
    # Weights of the layers of [CLS], and of those of [SEP].
    weights = np.array([[early - late, none], [none, late - early], [-late, late]])
    found = verdict.on_layers(claims.CLS_THEN_SEP, weights, cls, sep)
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
    claim = claims.VERTICAL
    heads = np.mean(shares, axis=0, dtype=np.float64) > claim.threshold
    if not heads.any():
        return verdict.nothing_to_test(claim, 'No head has mostly vertical maps.', runs[0].count)
    found = over_runs.contrasts(
        [(run.mean[heads], verdict.error_of(run)[heads]) for run in runs],
        runs[0].count,
        above=claim.threshold,
    )
    needed = math.ceil(claims.NEARLY_ALL * len(found.difference))
    order = np.argsort(-found.difference / found.error, kind='stable')
    deciding = int(order[needed - 1])
    interval = found.typical(deciding, offset=claim.threshold)
    head = head_name(*np.argwhere(heads)[deciding])
    above = (found.difference > 0).sum()
    return verdict.verdict_on(
        claim,
        found,
        f'attention of {head} to [CLS] and all [SEP]',
        '{above} of {vertical_heads} heads with mostly vertical maps give [CLS] and [SEP] more '
        'than half; the claim needs {needed}. By that count {head} decides, and gives {number}.',
        p_values=over_runs.so_many_above(found, needed),
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
    features, rare, numbers = _frequent(features)
    bound, tables = claims.FEATURES.threshold, (cls, sep, *features.values())
    layers = _mean_of(slice(None), len(verdict.as_runs(cls)[0].mean))
    # [CLS] and [SEP] together, then each feature.
    signs = np.eye(1 + len(features), len(tables), k=1)
    signs[0, 0] = 1
    per_run = verdict.sums_of_layers(np.multiply.outer(signs, layers), *tables)
    count = min(verdict.as_runs(each)[0].count for each in features.values())
    found = over_runs.contrasts(
        [(bound * mean[0] - mean[1:], bound * error[0] + error[1:]) for mean, error in per_run],
        count,
    )
    part, whole = (
        over_runs.contrasts([(mean[row], error[row]) for mean, error in per_run], count)
        for row in (1 + found.least, 0)
    )
    return verdict.verdict_on(
        claims.FEATURES,
        found,
        f'attention to {list(features)[found.least]} divided by that to [CLS] and [SEP]',
        more=rare,
        interval=_ratio(part, whole),
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
    claim, tables = claims.FEW_HETEROGENEOUS, [*classes.values()]
    layers = _mean_of(slice(None), len(verdict.as_runs(tables[0])[0].mean))
    weights = np.multiply.outer(np.ones((1, len(tables))), layers)
    found = verdict.on_layers(claim, weights, *tables)
    what, p_values = f'share of maps that are {" or ".join(classes)}', over_runs.all_above(found)
    if corrected is None:
        return verdict.verdict_on(claim, found, what)
    if not np.isnan(p_values).any():
        share, low, high = corrected
        p_if_false = over_runs.not_below(claim.threshold, share, high)
        p_if_true = over_runs.not_below(-claim.threshold, -share, -low)
        p_values = float(p_if_false), float(p_if_true)
    # Mistakes are corrected in the mean over models.
    several = found.runs >= over_runs.FEWEST_FOR_MOST
    of_mean: dict[str, Any] = {'population': ANY_FINETUNING} if several else {}
    return verdict.verdict_on(
        claim, found, f'corrected {what}', p_values=p_values, interval=corrected, **of_mean
    )


def cls_attends_most_to_sep(from_cls: Mapping[str, Runs]) -> Verdict:
    """Test LAST_CLS in the last layer.

    The estimate is the attention to [SEP] minus that to another type of token, above 0 for every
    type if the claim holds; it is of the type least in favour of the claim. Types in fewer than 20
    examples are left out if at least two remain.
    Types go by their names (`statistics.cls_to`): '[SEP]' and at least one other.
    """
    from_cls, rare, numbers = _frequent(from_cls, at_least_kept=2)
    others = [name for name in from_cls if name != '[SEP]']
    tables = [from_cls[name] for name in ('[SEP]', *others)]
    signs = np.hstack([np.ones((len(others), 1)), -np.eye(len(others))])
    last = np.eye(len(verdict.as_runs(tables[0])[0].mean))[-1]
    found = verdict.on_layers(claims.LAST_CLS, np.multiply.outer(signs, last), *tables)
    return verdict.verdict_on(
        claims.LAST_CLS,
        found,
        f'attention of [CLS] to [SEP] minus that to {others[found.least]}',
        more=rare,
        **numbers,
    )


def _mean_of(where: slice, layers: int) -> np.ndarray:
    """Return the weights of layers whose sum is the mean of some of them."""
    weights = np.zeros(layers)
    weights[where] = 1 / len(weights[where])
    return weights


def _frequent(
    tables: Mapping[str, Runs], *, at_least_kept: int = 1
) -> tuple[Mapping[str, Runs], str, dict[str, Any]]:
    """Return the tables of what is frequent enough, and a sentence on the rest."""
    counts = {name: verdict.as_runs(runs)[0].count for name, runs in tables.items()}
    rare = {name: count for name, count in counts.items() if count < over_runs.FEWEST}
    if not rare or len(counts) - len(rare) < at_least_kept:
        return tables, '', {}
    named = ', '.join(f'{name} ({round(float(count))})' for name, count in rare.items())
    kept = {name: runs for name, runs in tables.items() if name not in rare}
    return kept, ' Left out as too rare: {rare}.', {'rare': named}


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
    last = np.eye(len(verdict.as_runs(entropy)[0].mean))[-1]
    weights = np.multiply.outer([[1, -claims.BROADLY]], last)
    found = verdict.on_layers(claims.BROAD_CLS, weights, entropy, uniform)
    of_cls, even = np.mean(
        [[table.mean[-1].mean() for table in verdict.as_runs(of)] for of in (entropy, uniform)],
        axis=1,
    )
    return verdict.verdict_on(
        claims.BROAD_CLS,
        found,
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
    at_sep, elsewhere = (each.mean.mean(axis=1, dtype=np.float64) for each in (sep, others))
    # Gradients may be far smaller than what rounding leaves of a share of attention.
    error = (sep.standard_error + others.standard_error).mean(axis=1, dtype=np.float64)
    drop = (1 - at_sep / elsewhere)[where], (error / elsewhere)[where]
    found = over_runs.contrasts([drop], min(sep.count, others.count))
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
    claim = claims.SEP_MOVES_LITTLE
    heads = weights.mean > claim.threshold
    if not heads.any():
        why = 'None of {heads} heads gives [SEP] more than half of its attention.'
        return verdict.nothing_to_test(claim, why, weights.count, heads=heads.size)
    mean, error = norms.mean[heads].mean(dtype='float64'), verdict.error_of(norms)[heads].mean()
    found = over_runs.contrasts([(claim.threshold - mean, error)], norms.count)
    what = f'share of norms from [SEP] in the {counted(heads.sum(), "head")} that give it most'
    return verdict.verdict_on(claim, found, what)


def _in_middle_layers(claim: Claim, tables: Runs, what: str) -> Verdict:
    layers = len(verdict.as_runs(tables)[0].mean)
    where = layers_between(6, 10, layers)
    found = verdict.on_layers(claim, _mean_of(where, layers)[None, None], tables)
    named = verdict.layers_named(where.start + 1, where.stop)
    return verdict.verdict_on(claim, found, f'{what} in {named}')
