"""Claims about disabling heads and layers, and about what can go.

Shapes: M masks, K tasks, S fine-tunings, R draws of random orders or dimensions.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses.verdicts import claims, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Verdict
from bert_secrets_jax.pruning.outliers import FEWEST_DRAWS, rank_p
from bert_secrets_jax.runs.result import Interval
from bert_secrets_jax.runs.verdict import MOST_FINETUNINGS, THESE_MODELS
from bert_secrets_jax.stats import over_runs
from bert_secrets_jax.stats.effects import Effects as Effects
from bert_secrets_jax.stats.influence import MeanEffect
from bert_secrets_jax.stats.over_runs import Contrasts
from bert_secrets_jax.stats.significance import FEWEST_FOR_CORRELATIONS
from bert_secrets_jax.stats.significance import unseen_change as unseen_change
from bert_secrets_jax.stats.student import p_above, reach


def some_mask_helps(claim: Claim, effects: Effects) -> Verdict:
    """Test HEAD_HELPS or LAYER_HELPS.

    It holds where a mask raises the score by more than PRACTICAL_GAIN, after the correction for all
    masks (`Effects.p_beyond`). It does not hold where every mask is shown to gain less:
    a mask with that gain has so low an interval with a probability below 5 %. So of the two, one at
    most comes out. Where even the interval of a mask that changes nothing reaches that gain, the
    contrary could not come out, and what does not hold is not decidable.

    The estimate is the greatest difference from the intact model, among the gains that are shown if
    there are any. Its interval is of this mask alone, although it is chosen. Of several
    fine-tunings, it is the median, and the sign test has to agree.
    """
    each, masks, high = _over(effects), len(effects.names), _interval(effects)[1]
    middle = effects.difference if each is None else np.median(each, axis=0)
    gains = np.where(effects.difference > 0, effects.p_beyond, 1.0)
    gains = np.fmax(gains, _shown(effects, 1, claims.PRACTICAL_GAIN, masks))
    helps = gains <= verdict.LEVEL
    shown = helps if helps.any() else ~np.isnan(middle)
    best = int(np.argmax(np.where(shown, middle, -np.inf)))
    part = 'layer' if claim == claims.LAYER_HELPS else 'head'
    numbers = {'masks': masks, 'helpful': helps.sum()}
    words = (
        f'For {{helpful}} of {{masks:{part}|{part}s}}, disabling it raises the score by more than '
        '{threshold:g} points. '
    )
    if np.isfinite(high.max()) and not helps.any():
        numbers['reach'] = 100 * high.max()
        words += 'No interval goes beyond {reach:+z.2f} points. '
    p_values = float(np.nanmin(gains)), float(_shown(effects, -1, claims.PRACTICAL_GAIN).max())
    widest = int(np.argmax(high))
    return _on_mask(claim, p_values, effects, best, widest=widest, words=words, numbers=numbers)


def heads_are_not_needed(effects: Effects, heads: Sequence[int]) -> Verdict:
    """Test FRAME_HEADS: losing either head costs less than PRACTICAL_GAIN.

    The estimate is the difference of a head from the intact model in points, which is above the
    threshold -PRACTICAL_GAIN for both heads if the claim holds, and below it for one of them if it
    does not. It is of the head that is shown to be needed, or else of the one whose interval
    reaches lowest; of several fine-tunings it is the median, and the sign test has to agree. Where
    even the interval of a head that changes nothing reaches the threshold, the claim could not come
    out as holding, and what is not shown to be needed is not decidable.
    The indices of the heads are chosen without looking at their effects.
    """
    heads = list(heads)
    needed = _shown(effects, -1, -claims.PRACTICAL_GAIN, len(heads))[heads]
    idle = _shown(effects, 1, -claims.PRACTICAL_GAIN)[heads]
    shown = needed <= verdict.LEVEL
    shown = shown | ~shown.any()
    low = _interval(effects)[0][heads]
    head = heads[int(np.argmin(np.where(shown, low, np.inf)))]
    p_values = float(idle.max()), float(needed.min())
    return _on_mask(claims.FRAME_HEADS, p_values, effects, head, widest=head)


def _over(effects: Effects) -> np.ndarray | None:
    """Return the difference [S, M] in each fine-tuning; None where a verdict is on one model."""
    if effects.seeds is None or len(effects.seeds.difference) < over_runs.FEWEST_FOR_MOST:
        return None
    return effects.seeds.difference


def _shown(effects: Effects, side: int, bound: float, tests: int = 1) -> np.ndarray:
    """Return the p-values [M] that a difference is not above (1), or not below (-1), a bound.

    They are corrected for so many tests. Of several fine-tunings, most have to agree (`by_sign`).
    """
    each, (low, high) = _over(effects), _interval(effects)
    freedom = np.inf if each is None else len(each) - 1
    middle, end = np.nan_to_num(effects.difference), low if side > 0 else high
    p = over_runs.not_below(-side * bound, -side * middle, -side * end, freedom)
    p = np.minimum(tests * p, 1.0)
    if each is None:
        return p
    error = (high - low) / 2 / reach(freedom)
    return np.maximum(p, over_runs.by_sign(side * (each - bound), error))


def _on_mask(
    claim: Claim,
    p_values: tuple[float, float],
    effects: Effects,
    index: int,
    *,
    widest: int,
    words: str = '',
    numbers: Mapping[str, object] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict that one mask decides; the interval of the widest reaches farthest."""
    each, population, name = _over(effects), effects.population, effects.names[index]
    low, high = (end[index] for end in _interval(effects))
    interval = effects.difference[index], low, high
    left_open, values = _left_open(effects, widest)
    if np.isnan(interval[0]):
        # It is unknown where the effect is undefined.
        interval = np.nan, np.nan, np.nan
        words += 'Without {name} the score is undefined.'
    else:
        if each is not None:
            error = (high - low) / 2 / reach(len(each) - 1)
            interval = over_runs.median_of(each[:, index], error)
            population, values['runs'] = MOST_FINETUNINGS, len(each)
        interval = 100 * interval[0], 100 * interval[1], 100 * interval[2]
        words += 'Disabling {name} changes the score by {number}.'
        words += verdict.MEDIAN * (each is not None)
    return verdict.verdict_of(
        claim,
        p_values,
        interval,
        words + left_open,
        what=f'score without {name} minus the score of the intact model',
        otherwise=verdict.TOO_FEW if effects.unseen >= claims.PRACTICAL_GAIN else verdict.UNDECIDED,
        **{'name': name, **numbers, **values},
        sample=effects.sample,
        sample_of=effects.sample_of,
        population=population,
    )


def on_average(runs: Sequence[MeanEffect]) -> Contrasts:
    """Return the effect of losing a random head in points, over fine-tunings on the same texts."""
    pairs = [(100 * run.difference, 100 * run.error + over_runs.ROUNDING) for run in runs]
    return over_runs.contrasts(pairs, float(runs[0].examples))


def a_random_head_helps(average: MeanEffect | Sequence[MeanEffect], *, heads: int) -> Verdict:
    """Test RANDOM_HEAD_HELPS.

    The estimate is the difference from the intact model, on average over heads, in points. It is
    above the threshold 0 if the claim holds, and below if it does not.
    """
    runs = [average] if isinstance(average, MeanEffect) else average
    found, changed = on_average(runs), min(run.changed for run in runs)
    p_values, words, more = over_runs.all_above(found), '', ''
    interval = found.typical(0)
    if np.isnan(found.difference[0]):
        words = 'The score is undefined without any of the {heads} heads.'
        interval = math.nan, math.nan, math.nan
    elif changed < over_runs.FEWEST:
        p_values = math.nan, math.nan
        if found.examples >= over_runs.FEWEST:
            more = ' Predictions change on {changed:example|examples}; a test needs {needed}.'
    return verdict.verdict_on(
        claims.RANDOM_HEAD_HELPS,
        found,
        'mean change of the score without a head',
        words,
        more=more,
        p_values=p_values,
        interval=interval,
        heads=heads,
        changed=changed,
        needed=over_runs.FEWEST,
    )


def same_heads_are_needed(effects: Mapping[str, Effects]) -> Verdict:
    """Test SAME_HEADS on two tasks: whether the two heads that each needs most are the same.

    It holds where the same two heads cost significantly more than every other head in both tasks.
    The heads are chosen by the data, and the p-values doubled for that (Hung and Fithian 2019). It
    does not hold where some head is shown to be one of the two most needed in one task, and two
    others to be needed more than it in the other task (Benjamini and Heller 2008; Bonferroni over
    heads). Differences between heads have the sum of their errors, whatever the dependence.

    The estimate is the loss by one of the two heads minus the loss by another head, in points. It
    is above the threshold 0 for all such pairs in both tasks if the claim holds; of all pairs it is
    the one that is least in favour of the claim.

    Raises:
      ValueError: There are not two tasks, or their heads differ.
    """
    if len(effects) != 2 or len({tuple(each.names) for each in effects.values()}) > 1:
        raise ValueError(
            'Needed heads are compared between two tasks of models with the same heads.'
        )
    each, tasks = list(effects.values()), list(effects)
    names, sample = each[0].names, min(effect.sample for effect in each)
    losses = -np.nan_to_num([effect.difference for effect in each], nan=np.inf)  # [K, M]
    errors = np.stack([_error(effect) for effect in each])
    standard = np.nan_to_num(losses / errors, nan=-np.inf, neginf=-np.inf)
    with np.errstate(invalid='ignore'):
        lead = losses[:, :, None] - losses[:, None, :]
    bound = errors[:, :, None] + errors[:, None, :]
    t = np.nan_to_num(lead / bound, nan=0.0)  # [K, M, M]
    p_lead = np.where(np.eye(len(names), dtype=bool), 1.0, p_above(t))
    chosen = np.argsort(-standard.sum(axis=0), kind='stable')[:2]
    others = np.setdiff1d(np.arange(len(names)), chosen)
    pairs = t[:, chosen][:, :, others]
    p_if_false = 2 * p_lead[:, chosen][:, :, others].max()
    p_if_true = min(
        max(
            over_runs.at_least(p_lead[here, head], len(names) - 2),
            over_runs.at_least(p_lead[there, :, head], 2),
        )
        for here, there in ((0, 1), (1, 0))
        for head in range(len(names))
    )
    task, one, other = np.unravel_index(pairs.argmin(), pairs.shape)
    one, other = chosen[one], others[other]
    estimate, half = lead[task, one, other], over_runs.REACH * bound[task, one, other]
    interval = 100 * estimate, 100 * (estimate - half), 100 * (estimate + half)
    numbers = {'task': tasks[task], 'one': names[one], 'other': names[other]}
    tops = np.argsort(-losses, kind='stable')[:, :2]
    for place, (name, (first, second)) in enumerate(zip(tasks, tops, strict=True), start=1):
        numbers[f'task_{place}'] = name
        numbers |= {f'first_{place}': names[first], f'second_{place}': names[second]}
    return verdict.verdict_of(
        claims.SAME_HEADS,
        (p_if_false, 2 * len(names) * p_if_true),
        interval,
        '{task_1} needs {first_1} and {second_1} most, {task_2} {first_2} and {second_2}: '
        '{shared} of them {shared:|is|are} shared. On {task}, losing {one} instead of {other} '
        'costs {number}.',
        what=f'loss without {names[one]} minus loss without {names[other]} on {tasks[task]}',
        population=THESE_MODELS,
        sample=sample,
        sample_of=each[0].sample_of,
        shared=len(np.intersect1d(*tops)),
        **numbers,
    )


def _interval(effects: Effects) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends [M] of the intervals with all that they have to allow for.

    They are infinite for an undefined effect, and for a correlation of too few examples.
    """
    known = ~np.isnan(effects.low) & np.isfinite(effects.unseen)
    return np.where(known, effects.low, -np.inf), np.where(known, effects.high, np.inf)


def _error(effects: Effects) -> np.ndarray:
    """Return the standard error [M] that the longer side of the interval stands for."""
    low, high = _interval(effects)
    difference = np.nan_to_num(effects.difference)
    longer = np.maximum(difference - low, high - difference)
    return np.maximum(longer, 1e-12) / over_runs.REACH


def _left_open(effects: Effects, index: int) -> tuple[str, dict[str, object]]:
    """Return the sentence on how many examples would tell PRACTICAL_GAIN, and its fields.

    An interval from the examples shrinks with the root of their number, `unseen` with the number.
    """
    if np.isinf(effects.unseen):
        words = ' An interval of a correlation takes {enough} examples or more.'
        return words, {'enough': FEWEST_FOR_CORRELATIONS}
    error = _error(effects)[index]
    if effects.unseen < claims.PRACTICAL_GAIN or not np.isfinite(error):
        return '', {}
    spread = max(over_runs.REACH * error - effects.unseen, 0) * math.sqrt(effects.sample)
    rare = effects.unseen * (effects.sample + over_runs.REACH**2)
    twice = 2 * claims.PRACTICAL_GAIN
    root = (spread + math.sqrt(spread**2 + 2 * twice * rare)) / twice
    words = (
        ' {sample} {sample_of} are too few to tell {practical:g} points; about {enough:,} would do.'
    )
    return words, {'practical': 100 * claims.PRACTICAL_GAIN, 'enough': math.ceil(root**2)}


def heads_can_go(
    change: Interval, each: Float[np.ndarray, ' S'], *, kept: int, heads: int, examples: int
) -> Verdict:
    """Test HEADS_CAN_GO on the change of the score with so many of the heads kept.

    The change has the ends of its 95 % interval. `each` is that of each fine-tuning [S]: several
    are a sample.
    """
    claim, points = claims.HEADS_CAN_GO, 100 * np.array(change)
    found = over_runs.contrast_of(points, above=claim.threshold, each=100 * each, examples=examples)
    what = f'change of the score with {kept} of {heads} heads left'
    return verdict.verdict_on(claim, found, what, sample=examples, sample_of='examples')


def order_tells(
    lead: Interval,
    ordered: Float[np.ndarray, ' S'],
    random: Float[np.ndarray, 'S R'],
    *,
    examples: int,
) -> Verdict:
    """Test ORDER_TELLS.

    The estimate is the lead over the mean of random orders. Examples (and fine-tunings) are its
    sample, and so are the random orders. That it is above 0 is not enough: half of all orders that
    tell nothing are above the mean. So fewer than one in twenty random orders may do as well, which
    the rank among them tests; and for the contrary, fewer than one in twenty may do as badly.

    Args:
      lead: The score in this order less the mean of random ones, and its 95 % interval.
      ordered, random: The change of the score in this order [S], and in each random one [S, R], of
        each fine-tuning.
    """
    draws, each = random.shape[1], ordered - random.mean(axis=1)
    if draws < FEWEST_DRAWS:
        needs = f'pruning in at least {FEWEST_DRAWS} random orders'
        return verdict.not_measured(claims.ORDER_TELLS, needs)
    own, others = float(ordered.mean()), random.mean(axis=0)
    found = over_runs.contrast_of(
        100 * np.array(lead), each=100 * each, examples=examples, random=100 * others
    )
    p_if_false, p_if_true = over_runs.all_above(found)
    return verdict.verdict_on(
        claims.ORDER_TELLS,
        found,
        'score in this order minus that in random ones',
        'The score is {number} above that in random orders. As good as this order: {as_well} of '
        '{draws} random ones.',
        # An unknown p-value (NaN) stays unknown.
        p_values=(
            np.maximum(p_if_false, rank_p(own, others)),
            np.maximum(p_if_true, rank_p(-own, -others)),
        ),
        draws=draws,
        as_well=(others >= own).sum(),
        sample=examples,
        sample_of='examples',
    )


def outliers_are_needed(
    together: float, random: Float[np.ndarray, ' R'], beyond: Interval, *, outliers: int, texts: int
) -> Verdict:
    """Test OUTLIERS_NEEDED.

    The estimate is what the outliers do beyond the mean of random sets. Texts are its sample, and
    so are the random sets, as there are many more of them. That it is above the threshold is not
    enough: most random sets may do nothing and a few may do as much. So fewer than one in twenty
    sets may do as much as the outliers, which the rank among them tests.

    Args:
      together: The change of the loss without all outliers, in nats per hidden wordpiece.
      random: [R] The change without each of at least two sets of random dimensions.
      beyond: The loss without the outliers less the mean of the losses without random sets, and the
        ends of its 95 % interval over texts, by Student's t.
    """
    claim = claims.OUTLIERS_NEEDED
    found = over_runs.contrast_of(beyond, above=claim.threshold, examples=texts, random=random)
    p_if_false, p_if_true = over_runs.all_above(found)
    return verdict.verdict_on(
        claim,
        found,
        'loss without the outliers minus that without random dimensions',
        'Without the {outliers:outlier|outliers}, the loss is {number} nats above that without '
        'random dimensions. The claim needs more than {threshold:g}. As harmful: {as_much} of '
        '{draws} random sets.',
        p_values=(np.maximum(p_if_false, rank_p(together, random)), p_if_true),
        outliers=outliers,
        draws=len(random),
        as_much=(random >= together).sum(),
    )
