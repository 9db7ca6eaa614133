"""Claims about patterns, and about attention to kinds of tokens."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Runs, Verdict
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.verdict import ANY_FINETUNING, MOST_FINETUNINGS

# "Negligible" compared with something: less than this part of it.
NEGLIGIBLE = 0.25
# "Mostly" vertical, and "more than half" of the attention.
HALF = 0.5
# "Predominantly, if not exclusively": this share of the heads at least.
NEARLY_ALL = 0.9
# The greatest share in the paper, that of QQP, and what two classifiers may disagree on.
MOST = 0.61 + 0.05

VERTICAL = Claim(
    f'At least {100 * NEARLY_ALL:g} % of the heads whose maps are mostly vertical give [CLS] and '
    '[SEP] more than half of their attention.',
    'Kovaleva et al. 2019, section 4.4',
    bound='They say "predominantly, if not exclusively". Half and nine in ten are our numbers.',
    limits='What the classifier takes for vertical by mistake.',
    short='Heads with vertical maps look at [CLS] and [SEP]',
    section='patterns',
    unit='share of attention',
    threshold=HALF,
)
FEATURES = Claim(
    'On average over heads, no linguistic feature receives as much as '
    f'{NEGLIGIBLE:g} of the attention to [CLS] and [SEP].',
    'Kovaleva et al. 2019, section 4.4',
    bound='They say "negligible". A quarter is ours: one could see more in their Figure 6.',
    limits='That no head attends to a feature: it is the mean over all heads.',
    short='Attention to linguistic features is negligible',
    section='features',
    unit='ratio',
    threshold=NEGLIGIBLE,
    side='less',
)
LAST_CLS = Claim(
    'In the last layer, [CLS] attends to [SEP] more than to any other type of token.',
    'Kovaleva et al. 2019, section 4.5, Figure 7: all tasks but STS-B, RTE and QNLI',
    bound='Any difference counts, as in Figure 7.',
    limits='What [CLS] takes from there, and types that were not annotated.',
    short='In the last layer, [CLS] attends most to [SEP]',
    section='cls_tokens',
    unit='share of attention',
)
FEW_HETEROGENEOUS = Claim(
    'Block and heterogeneous maps, which may hold what a task needs, are less than '
    f'{100 * MOST:g} % of all.',
    'Kovaleva et al. 2019, section 4.1, Figure 2: 32 % on MRPC to 61 % on QQP',
    bound='Their greatest share, 61 %, and 5 % for maps that two classifiers disagree on.',
    limits='What the classifier mistakes in models of another kind than all labelled ones.',
    short='Few maps are block or heterogeneous',
    section='patterns',
    unit='share of maps',
    threshold=MOST,
    side='less',
)


def vertical_patterns_are_special(
    vertical: np.ndarray | Sequence[np.ndarray], special: Runs
) -> Verdict:
    """Test VERTICAL on the heads of which more than half of the maps are vertical.

    The estimate is the attention to special tokens of the head that decides: in order of their t,
    the last of the NEARLY_ALL that are to be above HALF. Its interval is of this head alone.

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
    heads, count = np.mean(shares, axis=0, dtype=np.float64) > HALF, runs[0].count
    if not heads.any():
        return verdict.nothing_to_test(VERTICAL, 'No head has mostly vertical maps.', count)
    found = verdict.contrasts(
        [(run.mean[heads] - HALF, verdict.error_of(run)[heads]) for run in runs], count
    )
    needed = math.ceil(NEARLY_ALL * len(found.difference))
    others = len(found.difference) - needed + 1
    p_values = (
        verdict.at_least(found.above, needed, found.by_sign[0]),
        verdict.at_least(found.below, others, found.by_sign[1]),
    )
    if count < verdict.FEWEST:
        p_values = math.nan, math.nan
    order = np.argsort(-found.difference / found.error, kind='stable')
    deciding = int(order[needed - 1])
    interval = found.typical(deciding, offset=HALF)
    head = head_name(*np.argwhere(heads)[deciding])
    above = (found.difference > 0).sum()
    return verdict.verdict_on(
        VERTICAL,
        found,
        f'attention of {head} to [CLS] and all [SEP]',
        '{above} of {vertical_heads} heads with mostly vertical maps give [CLS] and [SEP] more '
        'than half; the claim needs {needed}. By that count {head} decides, and gives '
        f'{verdict.with_interval(VERTICAL, interval)}.',
        p_values=p_values,
        interval=interval,
        numbers={'vertical_heads': heads.sum(), 'above': above, 'needed': needed, 'head': head},
    )


def features_are_negligible(cls: Runs, sep: Runs, features: Mapping[str, Runs]) -> Verdict:
    """Test FEATURES: each type of word gets less than NEGLIGIBLE of [CLS] and [SEP] together.

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
    found = verdict.contrasts(
        [
            (NEGLIGIBLE * special - means, NEGLIGIBLE * error + errors)
            for (special, error), (means, errors) in zip(wholes, parts, strict=True)
        ],
        count,
    )
    part = verdict.contrasts([run[:, found.least] for run in parts], count)
    interval = _ratio(part, verdict.contrasts(wholes, count))
    return verdict.verdict_on(
        FEATURES,
        found,
        f'attention to {list(features)[found.least]} divided by that to [CLS] and [SEP]',
        verdict.decisive(FEATURES, interval) + rare,
        interval=interval,
        numbers=numbers,
    )


def few_are_heterogeneous(
    classes: Mapping[str, Runs], *, corrected: tuple[float, float, float] | None = None
) -> Verdict:
    """Test FEW_HETEROGENEOUS: the share of block and heterogeneous maps together is below MOST.

    Args:
      classes: The shares of the maps of each head in these classes, by the names of the classes.
      corrected: The share of both and its 95 % interval, corrected for what the classifier mistakes
        (`Patterns.correct`), which decides; None takes the share as it is.
    """
    tables = [verdict.as_runs(each) for each in classes.values()]
    per_run = [(MOST - share, error) for share, error in _sums(*tables)]
    found = verdict.contrasts(per_run, tables[0][0].count)
    what, p_values = f'share of maps that are {" or ".join(classes)}', verdict.all_above(found)
    if corrected is None:
        return verdict.verdict_on(FEW_HETEROGENEOUS, found, what)
    if not np.isnan(p_values).any():
        share, low, high = corrected
        p_values = (
            verdict.capped(float(verdict.not_below(MOST, share, high))),
            verdict.capped(float(verdict.not_below(-MOST, -share, -low))),
        )
    return verdict.verdict_on(
        FEW_HETEROGENEOUS,
        found,
        f'corrected {what}',
        p_values=p_values,
        interval=corrected,
        # Mistakes are corrected in the mean over models.
        **{'population': ANY_FINETUNING} if found.population == MOST_FINETUNINGS else {},
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
    found = verdict.contrasts(
        zip(
            np.transpose([np.subtract(means['[SEP]'], means[name]) for name in others]),
            np.transpose([np.add(errors['[SEP]'], errors[name]) for name in others]),
            strict=True,
        ),
        min(runs[0].count for runs in from_cls.values()),
    )
    return verdict.verdict_on(
        LAST_CLS,
        found,
        f'attention of [CLS] to [SEP] minus that to {others[found.least]}',
        verdict.decisive(LAST_CLS, found.typical(found.least)) + rare,
        numbers=numbers,
    )


def _sums(*tables: list[HeadTable]) -> list[tuple[float, float]]:
    """Return for each run the sum of the means of some tables, and a bound of its error."""
    runs = zip(*tables, strict=True)
    return [tuple(np.sum([verdict.whole_model(table) for table in run], axis=0)) for run in runs]


def _frequent(
    tables: Mapping[str, list[HeadTable]], *, at_least_kept: int = 1
) -> tuple[Mapping[str, list[HeadTable]], str, dict[str, object]]:
    """Return the tables of what is frequent enough, and a sentence on the rest."""
    kept = {name: runs for name, runs in tables.items() if runs[0].count >= verdict.FEWEST}
    if len(kept) < at_least_kept:
        return tables, '', {}
    rare = [
        f'{name} ({round(float(runs[0].count))})'
        for name, runs in tables.items()
        if name not in kept
    ]
    sentence = ' Left out as too rare: {rare}.' * bool(rare)
    return kept, sentence, {'rare': ', '.join(rare)} if rare else {}


def _ratio(part: Contrasts, total_of: Contrasts) -> tuple[float, float, float]:
    """Return a ratio of positive numbers and its 95 % interval after Fieller.

    He tests part - ratio * whole against 0, here with the bound of that difference's error.
    """
    reach = verdict.margin(min(part.freedom[0], total_of.freedom[0]))
    (value,), (error,) = part.difference, part.error
    (total,), (total_error,) = total_of.difference, total_of.error
    least, most = value - reach * error, value + reach * error
    greatest_total, least_total = total + reach * total_error, total - reach * total_error
    high = np.inf if least_total <= 0 else np.maximum(most, 0) / least_total
    low = float(np.maximum(least, 0) / greatest_total)
    if part.runs < verdict.FEWEST_FOR_MOST or np.isinf(high):
        return float(value / total), low, float(high)
    median, low, high = verdict.median_of(
        (part.each / total_of.each)[:, 0], (high - low) / 2 / reach
    )
    return median, max(low, 0.0), high
