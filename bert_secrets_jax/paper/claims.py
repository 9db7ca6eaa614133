"""Which claims of the paper hold for a model: each a test, with its evidence.

A claim holds where the data refute its contrary at 5 %, does not hold where they refute the claim
itself at 5 %, and is undecided at this sample size otherwise: neither error is made more often than
once in twenty. Examples are the sample, so that a verdict is about this model on such texts, and
not about fine-tuning it again.

Tables of heads hold no covariances. The standard deviation of a mean or a difference over heads and
layers is at most the mean or the sum of the single ones, however these depend on each other; tests
take that bound. They find less than paired ones would, and nothing that those would not.

Shapes: L layers, N heads, M contrasts, K masks.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from bert_secrets_jax.ablation.significance import Assessment, holm, weighted_scores
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import NullTest

HOLDS, DOES_NOT_HOLD, UNDECIDED = 'holds', 'does not hold', 'undecided'
NOT_MEASURED = 'not measured'

LEVEL = 0.05
# Whether an effect is exactly 0 no data can tell; below these it is of no practical size. Half a
# point of a score: the paper's gains of single heads are 0.1 to 1.2 points.
PRACTICAL_GAIN = 0.005
# A share of attention: the paper's two frame heads have 0.20.
PRACTICAL_SHARE = 0.05
# The same of the mean over the heads of many layers, where the paper's smallest is 0.05.
PRACTICAL_TREND = 0.02
# "Negligible" beside something: less than this part of it.
NEGLIGIBLE = 0.25

# In fewer examples, which therefore decide nothing, Student's t finds too much in skewed values,
# and a bootstrap in correlations.
_FEWEST = 20
_FEWEST_FOR_CORRELATIONS = 50
# Means in float32: less than this apart, they are the same.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says, in a sentence that a test can decide, and where it says so."""

    text: str
    source: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of a claim: HOLDS, DOES_NOT_HOLD, UNDECIDED or NOT_MEASURED, and why."""

    claim: Claim
    verdict: str
    evidence: str


LAST_LAYERS = Claim(
    'Fine-tuning changes the attention of the last two layers most.',
    'section 4.3, Figure 5: all tasks but QQP',
)
CLS_THEN_SEP = Claim(
    'Attention moves from [CLS] in early layers to [SEP] in later ones: from the first half of the '
    f'layers to the second, [CLS] loses and [SEP] gains, more than {PRACTICAL_TREND:g} each.',
    'section 4.4, Figure 6: all tasks',
)
VERTICAL = Claim(
    'Vertical patterns are attention to [CLS] and [SEP]: heads whose maps are mostly vertical give '
    'these more than half of their attention, on average.',
    'section 4.4',
)
FEATURES = Claim(
    'Attention to linguistic features is negligible beside that to [CLS] and [SEP]: less than '
    f'{NEGLIGIBLE:g} of it, mean over heads.',
    'section 4.4',
)
LAST_CLS = Claim(
    'In the last layer, [CLS] attends to [SEP] more than to any other type of token.',
    'section 4.5, Figure 7: all tasks but STS-B, RTE and QNLI',
)
FRAMES = Claim(
    'Some heads attend from frame elements to their target, beyond chance and position.',
    'section 4.2, Figure 3: two of 144 heads',
)
FRAME_HEADS = Claim(
    'The two heads that attend most along frame links are not needed: disabling either one costs '
    f'less than {100 * PRACTICAL_GAIN:g} points.',
    'the discussion',
)
VERB_SUBJECT = Claim(
    'Heads that attend most between verb and subject look at a position, not at the relation: at '
    f'the same distances elsewhere they give as much, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
)
NOUN_PRONOUN = Claim(
    'Heads that attend most between noun and pronoun look at a position, not at the relation: at '
    f'the same distances elsewhere they give as much, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
)
PRETRAINING = Claim(
    'Fine-tuning from pre-trained weights scores higher than from random ones.',
    'section 4.3, Table 1: all tasks',
)
HEAD_HELPS = Claim('There are heads that help when disabled.', 'section 4.6, Figure 8: all tasks')
LAYER_HELPS = Claim(
    'A whole layer may help when disabled.', 'section 4.6, Figure 9: RTE, layer 1, +3.2 points'
)


def last_layers_change_most(similarity: HeadTable) -> Verdict:
    """Test LAST_LAYERS: both last layers are less similar than every other one.

    Args:
      similarity: cosine of the maps before and after fine-tuning (`statistics.cosine`).
    """
    mean, error = _by_layer(similarity)
    layers = len(mean)
    if layers < 3:
        return Verdict(LAST_LAYERS, UNDECIDED, f'The model has {layers} layers, no others.')
    unit = np.eye(layers)
    last, other = unit[-2:], unit[:-2]
    weights = (other[None] - last[:, None]).reshape(-1, layers)
    difference, bound = _contrasts(weights, mean, error)
    verdict = _all_above(difference, bound, similarity.count)
    nearest = int(np.argmin(_t(difference, bound)))
    which, against = layers - 2 + nearest // (layers - 2), nearest % (layers - 2)
    return Verdict(
        LAST_LAYERS,
        verdict,
        f'Similarity is {mean[-2]:.3f} in layer {layers - 1} and {mean[-1]:.3f} in layer {layers}; '
        f'of the others it is lowest in layer {mean[:-2].argmin() + 1}, {mean[:-2].min():.3f}. '
        f'Layer {against + 1} less layer {which + 1}: '
        f'{_interval(difference[nearest], bound[nearest], similarity.count)}, '
        f'{similarity.count:.0f} examples.',
    )


def attention_moves_from_cls_to_sep(cls: HeadTable, sep: HeadTable) -> Verdict:
    """Test CLS_THEN_SEP: [CLS] gets less in the second half of the layers, and [SEP] more.

    With an odd number of layers the middle one is in neither half.

    Args:
      cls, sep: attention to [CLS] and to [SEP] (`statistics.to_cls`, `statistics.to_sep`).
    """
    layers = len(cls.mean)
    half = layers // 2
    if not half:
        return Verdict(CLS_THEN_SEP, UNDECIDED, 'The model has a single layer.')
    rise = np.zeros(layers)
    rise[:half], rise[-half:] = -1 / half, 1 / half
    parts = [
        _contrasts(sign * rise[None], *_by_layer(table)) for sign, table in ((-1, cls), (1, sep))
    ]
    difference, bound = (np.concatenate(column) for column in zip(*parts, strict=True))
    words = [
        f'{name} gets {table.mean[:half].mean():.3f} in layers 1 to {half} and '
        f'{table.mean[-half:].mean():.3f} in {layers - half + 1} to {layers} '
        f'(change {_interval(sign * difference[row], bound[row], table.count)})'
        for row, (name, table, sign) in enumerate((('[CLS]', cls, -1), ('[SEP]', sep, 1)))
    ]
    return Verdict(
        CLS_THEN_SEP,
        _all_above(difference - PRACTICAL_TREND, bound, cls.count),
        f'{"; ".join(words)}; {cls.count:.0f} examples.',
    )


def vertical_patterns_are_special(vertical: np.ndarray, special: HeadTable) -> Verdict:
    """Test VERTICAL on the heads of which more than half of the maps are vertical.

    Args:
      vertical: [L, N] share of a head's maps that are vertical.
      special: attention to [CLS] and all [SEP] together (`statistics.to_special`).
    """
    if vertical.shape != special.mean.shape:
        raise ValueError(
            f'Shares of vertical maps are {list(vertical.shape)}, and the model has '
            f'{list(special.mean.shape)} heads.'
        )
    heads = vertical > 0.5
    if not heads.any():
        return Verdict(VERTICAL, UNDECIDED, 'No head has mostly vertical maps.')
    mean, error = special.mean[heads].mean(), _error(special)[heads].mean()
    verdict = _decide(_p(mean - 0.5, error, special.count), _p(0.5 - mean, error, special.count))
    rest = f', the others {special.mean[~heads].mean():.3f}' if (~heads).any() else ''
    return Verdict(
        VERTICAL,
        verdict,
        f'{heads.sum()} of {heads.size} heads are mostly vertical and give [CLS] and all [SEP] '
        f'together {_interval(mean, error, special.count)} of their attention{rest}; '
        f'{special.count:.0f} examples.',
    )


def features_are_negligible(
    cls: HeadTable, sep: HeadTable, features: Mapping[str, HeadTable]
) -> Verdict:
    """Test FEATURES: each type of word gets less than NEGLIGIBLE of [CLS] and [SEP] together.

    Args:
      cls, sep: attention to [CLS] and to [SEP].
      features: attention to each linguistic feature (`statistics.attention_to`), at least one.
    """
    whole = lambda table: (table.mean.mean(), _error(table).mean())
    features, rare = _frequent(features)
    special, error = (a + b for a, b in zip(whole(cls), whole(sep), strict=True))
    means, errors = np.array([whole(table) for table in features.values()]).T
    below = NEGLIGIBLE * special - means
    count = min(table.count for table in features.values())
    most = int(np.argmax(means))
    name = list(features)[most]
    return Verdict(
        FEATURES,
        _all_above(below, NEGLIGIBLE * error + errors, count),
        f'[CLS] and the greatest [SEP] get {special:.3f} together; of the features {name} gets '
        f'most, {_interval(means[most], errors[most], features[name].count)}, '
        f'{means[most] / special:.2f} of it. The rarest feature is in {count:.0f} examples.{rare}',
    )


def cls_attends_most_to_sep(from_cls: Mapping[str, HeadTable]) -> Verdict:
    """Test LAST_CLS in the last layer.

    Args:
      from_cls: attention of [CLS] to each type of token (`statistics.cls_to`), '[SEP]' and at least
        one other.
    """
    from_cls, rare = _frequent(from_cls, at_least=2)
    means, errors = np.array(
        [[values[-1].mean() for values in (t.mean, _error(t))] for t in from_cls.values()]
    ).T
    names = list(from_cls)
    sep = names.index('[SEP]')
    others = [index for index in range(len(names)) if index != sep]
    count = min(table.count for table in from_cls.values())
    most = max(others, key=lambda index: means[index])
    return Verdict(
        LAST_CLS,
        _all_above(means[sep] - means[others], errors[sep] + errors[others], count),
        f'[SEP] gets {means[sep]:.3f}; of the others {names[most]} gets most, {means[most]:.3f} '
        f'(difference {_interval(means[sep] - means[most], errors[sep] + errors[most], count)}). '
        f'The rarest type is in {count:.0f} examples.{rare}',
    )


def heads_follow_links(
    score: HeadTable, nulls: Mapping[str, NullTest], excess: Mapping[str, HeadTable]
) -> Verdict:
    """Test FRAMES: whether any head is above all kinds of random links.

    It does not hold where every head is less than PRACTICAL_SHARE above one kind of random links;
    which one may be chosen by the data, and is corrected for (Bonferroni).

    Args:
      score: attention along the links (`statistics.attention_of_links`).
      nulls: the same of random links, by their kind.
      excess: what the links get beyond these, by the same kinds.
    """
    real = np.all([null.familywise <= LEVEL for null in nulls.values()], axis=0)
    means, errors = (np.stack(of) for of in zip(*map(_moments, excess.values()), strict=True))
    p_of_more = len(means) * _p(PRACTICAL_SHARE - means, errors, score.count).min(axis=0)
    beyond = means.min(axis=0)
    best = np.unravel_index(np.argmax(np.where(real, beyond + 1, beyond)), beyond.shape)
    kinds = ', '.join(f'{kind} {null.mean[best]:.3f}' for kind, null in nulls.items())
    return Verdict(
        FRAMES,
        HOLDS if real.any() else _decide(np.nan, p_of_more.max()),
        f'{real.sum()} of {real.size} heads are above all random links (corrected for all heads). '
        f'Farthest above is {_head(best)}: {score.mean[best]:.3f} (random links: {kinds}); '
        f'{score.count:.0f} examples.',
    )


def position_explains(claim: Claim, links: Mapping[str, tuple[HeadTable, HeadTable]]) -> Verdict:
    """Test VERB_SUBJECT or NOUN_PRONOUN: the head with the highest score, in each direction.

    Args:
      claim: one of the two.
      links: by direction, attention along the links, and what they get beyond the same links moved
        elsewhere (NaN where these can be moved nowhere, which decides nothing).
    """
    excess, errors, counts, words, heads = [], [], [], [], 0
    for direction, (score, beyond) in links.items():
        top = np.unravel_index(score.mean.argmax(), score.mean.shape)
        mean, error = (of[top] for of in _moments(beyond))
        excess.append(mean)
        errors.append(error)
        counts.append(score.count)
        heads += score.mean.size
        words.append(
            f'{direction}: {_head(top)} {score.mean[top]:.3f}, elsewhere '
            f'{score.mean[top] - mean:.3f} (difference {_interval(mean, error, score.count)})'
        )
    # The head was chosen among all on the same examples: that it is above counts all of them.
    verdict = _all_above(
        PRACTICAL_SHARE - np.array(excess), np.array(errors), min(counts), chosen_among=heads
    )
    return Verdict(claim, verdict, f'{"; ".join(words)}; {min(counts):.0f} examples.')


def pretraining_helps(pretrained: Sequence[float], random: Sequence[float]) -> Verdict:
    """Test PRETRAINING on the scores of runs (Welch's test): seeds are the sample here.

    Args:
      pretrained, random: score of each run from pre-trained and from random weights.
    """
    groups = [np.asarray(scores, np.float64) for scores in (pretrained, random)]
    means = [scores.mean() for scores in groups]
    evidence = (
        f'{100 * means[0]:.1f} against {100 * means[1]:.1f} on average '
        f'({len(groups[0])} and {len(groups[1])} runs).'
    )
    if min(map(len, groups)) < 3:
        return Verdict(PRETRAINING, UNDECIDED, f'{evidence} A test needs three runs of each.')
    variances = np.array([scores.var(ddof=1) / len(scores) for scores in groups]) + _ROUNDING**2
    error = np.sqrt(variances.sum())
    freedom = variances.sum() ** 2 / sum(
        variance**2 / (len(scores) - 1) for variance, scores in zip(variances, groups, strict=True)
    )
    p = scipy.stats.t.sf((means[0] - means[1]) / error, freedom)
    return Verdict(PRETRAINING, _decide(p, 1 - p), f'{evidence} p = {2 * min(p, 1 - p):.2g}.')


def some_mask_helps(
    claim: Claim, found: Assessment, names: Sequence[str], *, unseen: float
) -> Verdict:
    """Test HEAD_HELPS or LAYER_HELPS.

    It holds where any mask raises the score significantly after Holm's correction, and does not
    where no interval reaches a gain of PRACTICAL_GAIN: if one had that gain, its own interval alone
    would be as low with less than 5 %.

    Args:
      claim: one of the two.
      found: each mask against the intact model.
      names: [K] of the masks.
      unseen: `unseen_change` of these examples.
    """
    helps = (found.holm <= LEVEL) & (found.difference > 0)
    most = np.where(np.isnan(found.high), np.inf, found.high) + unseen
    if helps.any():
        verdict = HOLDS
    else:
        verdict = DOES_NOT_HOLD if np.all(most < PRACTICAL_GAIN) else UNDECIDED
    shown = helps if helps.any() else ~np.isnan(found.difference)
    best = int(np.argmax(np.where(shown, found.difference, -np.inf)))
    evidence = (
        f'{helps.sum()} of {len(names)} raise the score significantly (Holm). '
        f'{"Best of these" if helps.any() else "Best"} to lose is '
        f'{_effect(found, best, names[best])}'
    )
    if not helps.any():
        reach = 'none gains more than' if verdict == DOES_NOT_HOLD else 'not excluded: a gain of'
        evidence += f'; {reach} {_points(most.max())}'
    return Verdict(claim, verdict, f'{evidence}.')


def heads_are_not_needed(
    found: Assessment, heads: Sequence[int], names: Sequence[str], *, unseen: float
) -> Verdict:
    """Test FRAME_HEADS: losing either head costs less than PRACTICAL_GAIN.

    Args:
      found: each head's mask against the intact model.
      heads: indices into it, chosen without looking at it.
      names: [K] of the masks.
      unseen: `unseen_change` of these examples.
    """
    heads = list(heads)
    low = np.where(np.isnan(found.low), -np.inf, found.low)[heads] - unseen
    # That one costs as much is shown for the one by its interval, and for either by a correction.
    high = np.where(np.isnan(found.high), np.inf, found.high)[heads] + unseen
    worse = (holm(found.p_value[heads]) <= LEVEL) & (high < -PRACTICAL_GAIN)
    if np.all(low > -PRACTICAL_GAIN):
        verdict = HOLDS
    else:
        verdict = DOES_NOT_HOLD if worse.any() else UNDECIDED
    effects = '; '.join(_effect(found, head, names[head]) for head in heads)
    return Verdict(
        FRAME_HEADS,
        verdict,
        f'{effects}; not excluded: a loss of {_points(-min(low.min(), 0))}.',
    )


def unseen_change(metric: str, baseline: np.ndarray, labels: np.ndarray) -> float:
    """Return how much a score may change through examples of a kind that the sample lacks.

    What occurs in none of E examples may, with 5 %, still occur in 3 of E (the rule of three); a
    bootstrap repeats what it has and knows nothing of that. So: what three more examples change
    that one model has right and the other wrong. Correlations are moved by every example: 0, but
    infinite in so few examples that their intervals are too narrow.

    Args:
      metric: one of `significance.METRICS`.
      baseline: [E] predictions of the intact model.
      labels: [E].
    """
    if metric not in ('accuracy', 'f1'):
        return 0.0 if len(labels) >= _FEWEST_FOR_CORRELATIONS else np.inf
    extended = lambda classes, of_three: np.concatenate([classes, np.full(3, of_three)])
    both = np.stack([extended(baseline, 1), extended(baseline, 0)])
    scores = weighted_scores(metric, both, extended(labels, 1), np.ones((1, len(labels) + 3)))
    return float(scores[0, 0] - scores[0, 1])


def in_all_runs(verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return one verdict on several runs: theirs where they agree, else undecided.

    Args:
      verdicts: on the same claim, by name of the run.
    """
    found = Counter(each.verdict for each in verdicts.values())
    counts = ', '.join(f'{verdict} in {count}' for verdict, count in found.items())
    lead = f'Of {len(verdicts)} runs: {counts}. ' if len(verdicts) > 1 else ''
    name, first = next(iter(verdicts.items()))
    return Verdict(
        first.claim,
        first.verdict if len(found) == 1 else UNDECIDED,
        f'{lead}{name}: {first.evidence}',
    )


def _by_layer(table: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Mean over heads [L], and a bound of its standard error [L]."""
    return table.mean.mean(axis=1, dtype=np.float64), _error(table).mean(axis=1)


def _frequent(
    tables: Mapping[str, HeadTable], *, at_least: int = 1
) -> tuple[Mapping[str, HeadTable], str]:
    """Leave out what too few examples have to tell, if so many others remain, and say so."""
    kept = {name: table for name, table in tables.items() if table.count >= _FEWEST}
    if len(kept) < at_least:
        return tables, ''
    rare = ', '.join(f'{name} ({tables[name].count:.0f})' for name in tables if name not in kept)
    return kept, f' Left out as too rare: {rare}.' if rare else ''


def _moments(table: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    return table.mean, _error(table)


def _error(table: HeadTable) -> np.ndarray:
    """[L, N] standard error; what float32 leaves of an exact 0 is none."""
    return table.standard_error.astype(np.float64) + _ROUNDING


def _contrasts(weights, mean, error) -> tuple[np.ndarray, np.ndarray]:
    """Weighted sums [M] of layers, weights [M, L], and a bound of their standard errors [M]."""
    return weights @ mean, np.abs(weights) @ error


def _t(difference, error):
    return difference / error


def _p(difference, error, count):
    """One-sided p-value of a difference that is not above 0; NaN in too few examples."""
    if count < _FEWEST:
        return np.full(np.shape(difference), np.nan)
    return scipy.stats.t.sf(_t(difference, error), count - 1)


def _all_above(difference, error, count, *, chosen_among: int | None = None) -> str:
    """Verdict on the claim that all of M differences are above 0.

    That it holds needs no correction: its contrary is refuted only if each difference is above 0
    (intersection-union test, Berger 1982). That it does not hold is shown by any one of them, and
    corrected for their number (Bonferroni), or for that of those they were chosen among.
    """
    above, below = _p(difference, error, count), _p(-difference, error, count)
    # What is not known (NaN) keeps the claim from holding, not from being refuted by another.
    return _decide(np.max(above), np.fmin.reduce(below) * (chosen_among or len(below)))


def _decide(p_of_contrary, p_of_claim) -> str:
    # NaN is neither.
    if p_of_contrary <= LEVEL:
        return HOLDS
    return DOES_NOT_HOLD if p_of_claim <= LEVEL else UNDECIDED


def _interval(difference, error, count) -> str:
    """Say a number with its 95 % interval, at least as wide as it must be."""
    if count < 2:
        return f'{difference:z.3f}'
    return f'{difference:z.3f} ± {scipy.stats.t.ppf(0.975, count - 1) * error:.3f}'


def _effect(found: Assessment, index: int, name: str) -> str:
    return (
        f'{name}: {100 * found.difference[index]:+.2f} points ({100 * found.low[index]:+.2f} to '
        f'{100 * found.high[index]:+.2f}, p = {found.p_value[index]:.2g}, corrected '
        f'{found.holm[index]:.2g})'
    )


def _points(change) -> str:
    return f'{100 * change:.2f} points' if np.isfinite(change) else 'any size'


def _head(index) -> str:
    return f'L{index[0] + 1}-H{index[1] + 1}'
