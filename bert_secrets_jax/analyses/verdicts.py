"""Which claims of the paper hold for a model: each claim has a test that gives a verdict.

A claim holds where the data refute its contrary at 5 %, does not hold where they refute the claim
itself at 5 %, and is undecided at this sample size otherwise: neither error is made more often than
once in twenty. The examples are the sample, so a verdict is about this model on such texts, and not
about fine-tuning it again.

Tables of heads hold no covariances. The standard deviation of a mean or a difference over heads and
layers is at most the mean or the sum of the single ones, however these depend on each other, and
the tests take that bound. They are conservative compared with paired tests.

Where a claim has several parts, such as a difference for every pair of layers, the estimate of its
verdict is the part that is least in favour of the claim, in standard errors.

Shapes: L layers, N heads, M masks, E examples.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from bert_secrets_jax.ablation.significance import Assessment, holm, weighted_scores
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import MOVED, POSITIONS, LinkTest
from bert_secrets_jax.names import head_name

HOLDS, DOES_NOT_HOLD, UNDECIDED = 'holds', 'does not hold', 'undecided'
NOT_MEASURED = 'not measured'

LEVEL = 0.05
# No data can tell whether an effect is exactly 0; below these bounds it has no practical size.
# Half a point of a score: the paper's gains of single heads are 0.1 to 1.2 points.
PRACTICAL_GAIN = 0.005
# A share of attention: the paper's two frame heads have 0.20.
PRACTICAL_SHARE = 0.05
# A share of attention as a mean over the heads of many layers: the paper's smallest is 0.05.
PRACTICAL_TREND = 0.02
# "Negligible" beside something: less than this part of it.
NEGLIGIBLE = 0.25
# "Mostly" vertical, and "more than half" of the attention.
HALF = 0.5

# Fewer examples decide nothing: with so few, Student's t finds too much in skewed values, and a
# bootstrap in correlations.
_FEWEST = 20
_FEWEST_FOR_CORRELATIONS = 50
_FEWEST_RUNS = 3
# Means in float32: less than this apart, they are the same.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper, in a sentence that a test can decide.

    Attributes:
      text: The sentence.
      source: The section and the figure of the paper with the statement, and the tasks it is about.
    """

    text: str
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of the test of a claim, with the numbers that explain it.

    All fields are text, numbers and mappings of these, so that a verdict can be stored.

    Attributes:
      claim: The claim.
      verdict: The outcome: HOLDS, DOES_NOT_HOLD, UNDECIDED or NOT_MEASURED.
      template: The sentence of `evidence`, with names of fields in braces in place of their values.
        It has no digit of its own.
      what: The noun phrase that names the estimate.
      estimate: The number that decides; NaN where there is none.
      low, high: The ends of the estimate's interval, of 95 % or wider; NaN where there is none.
      unit: The unit of the estimate, its interval and the threshold.
      threshold: The number that the estimate is compared with. The test says on which side of it
        the claim holds.
      sample: The size of the sample.
      sample_of: The unit of the sample, 'examples' or 'runs'.
      numbers: All other numbers and names in the sentence, by their names.
    """

    claim: Claim
    verdict: str
    template: str
    what: str = ''
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ''
    threshold: float = math.nan
    sample: int = 0
    sample_of: str = 'examples'
    numbers: Mapping[str, float | int | str] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> dict[str, float | int | str]:
        """All values that the sentence may show, by their names in the template."""
        own = ('what', 'estimate', 'low', 'high', 'unit', 'threshold', 'sample', 'sample_of')
        return dict(self.numbers) | {name: getattr(self, name) for name in own}

    @property
    def evidence(self) -> str:
        """The sentence that explains the verdict, made from the fields alone."""
        return self.template.format(**self.fields)


LAST_LAYERS = Claim(
    'Fine-tuning changes the attention of the last two layers most.',
    'section 4.3, Figure 5: all tasks but QQP',
)
CLS_THEN_SEP = Claim(
    'Attention moves from [CLS] in early layers to [SEP] in later ones: from the first half of the '
    f'layers to the second, [CLS] loses and [SEP] gains more than {PRACTICAL_TREND:g} each.',
    'section 4.4, Figure 6: all tasks',
)
VERTICAL = Claim(
    'Vertical patterns are attention to [CLS] and [SEP]: heads whose maps are mostly vertical give '
    'these two more than half of their attention, on average.',
    'section 4.4',
)
FEATURES = Claim(
    'Attention to linguistic features is negligible beside that to [CLS] and [SEP]: each feature '
    f'receives less than {NEGLIGIBLE:g} of it, as a mean over heads.',
    'section 4.4',
)
LAST_CLS = Claim(
    'In the last layer, [CLS] attends to [SEP] more than to any other type of token.',
    'section 4.5, Figure 7: all tasks but STS-B, RTE and QNLI',
)
FRAMES = Claim(
    'Some heads attend from frame elements to their target, beyond chance, position and word '
    'class.',
    'section 4.2, Figure 3: two of 144 heads',
)
FRAME_HEADS = Claim(
    'The two heads that attend most along frame links are not needed: disabling either one costs '
    f'less than {100 * PRACTICAL_GAIN:g} points.',
    'the discussion',
)
VERB_SUBJECT = Claim(
    'Heads that attend most between verb and subject look at a position, not at the relation: at '
    'the same distances elsewhere, or at the same positions of other texts, they give as much '
    f'attention, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
)
NOUN_PRONOUN = Claim(
    'Heads that attend most between noun and pronoun look at a position, not at the relation: at '
    'the same distances elsewhere, or at the same positions of other texts, they give as much '
    f'attention, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
)
PRETRAINING = Claim(
    'Fine-tuning from pre-trained weights scores higher than fine-tuning from random ones.',
    'section 4.3, Table 1: all tasks',
)
HEAD_HELPS = Claim(
    'There are heads whose disabling raises the score.', 'section 4.6, Figure 8: all tasks'
)
LAYER_HELPS = Claim(
    'Disabling a whole layer may raise the score.',
    'section 4.6, Figure 9: RTE, layer 1, +3.2 points',
)


def not_measured(claim: Claim, needs: str) -> Verdict:
    """Return the verdict on a claim whose test lacks its data.

    Args:
      claim: The claim.
      needs: The data that its test needs, as a noun phrase: 'an analysis of relations'.
    """
    return Verdict(
        claim=claim, verdict=NOT_MEASURED, template='Needs {needs}.', numbers={'needs': needs}
    )


def last_layers_change_most(similarity: HeadTable) -> Verdict:
    """Test LAST_LAYERS: both last layers are less similar than every other one.

    The estimate is the similarity of another layer minus that of one of the last two, which is
    above the threshold 0 for every such pair if the claim holds; of all pairs it is the one that is
    least in favour of the claim.

    Args:
      similarity: The cosine similarity of the maps before and after fine-tuning
        (`statistics.cosine`).
    """
    mean, error = _by_layer(similarity)
    layers, count = len(mean), similarity.count
    if layers < 3:
        return Verdict(
            claim=LAST_LAYERS,
            verdict=UNDECIDED,
            template=f'The model has {_counted("layers", layers, "layer")} and no others to '
            'compare the last two with.',
            sample=_whole(count),
            numbers={'layers': layers},
        )
    unit = np.eye(layers)
    last, other = unit[-2:], unit[:-2]
    weights = (other[None] - last[:, None]).reshape(-1, layers)
    difference, bound = _contrasts(weights, mean, error)
    decisive = _least(difference, bound)
    interval = _around(difference[decisive], bound[decisive], count)
    which, against = layers - 2 + decisive // (layers - 2), decisive % (layers - 2)
    return _verdict(
        LAST_LAYERS,
        _all_above(difference, bound, count),
        'Similarity is {next_to_last:.3f} in layer {next_to_last_layer} and {last:.3f} in layer '
        '{last_layer}; among the other layers it is lowest in layer {lowest_layer}, {lowest:.3f}. '
        'Least in favour of the claim is the {what}: '
        f'{{estimate:z.3f}}{_between(interval)}, in {_counted("sample", count, "example")}.',
        interval,
        what=f'similarity of layer {against + 1} minus that of layer {which + 1}',
        unit='cosine similarity',
        threshold=0.0,
        sample=count,
        numbers={
            'next_to_last': mean[-2],
            'next_to_last_layer': layers - 1,
            'last': mean[-1],
            'last_layer': layers,
            'lowest_layer': mean[:-2].argmin() + 1,
            'lowest': mean[:-2].min(),
        },
    )


def attention_moves_from_cls_to_sep(cls: HeadTable, sep: HeadTable) -> Verdict:
    """Test CLS_THEN_SEP: [CLS] gets less in the second half of the layers, and [SEP] more.

    With an odd number of layers the middle one is in neither half. The estimate is the loss of
    [CLS] or the gain of [SEP], whichever is less in favour of the claim; both are above the
    threshold PRACTICAL_TREND if the claim holds.

    Args:
      cls: The attention to [CLS] (`statistics.to_cls`).
      sep: The attention to [SEP] (`statistics.to_sep`).
    """
    layers, count = len(cls.mean), cls.count
    half = layers // 2
    if not half:
        return Verdict(
            claim=CLS_THEN_SEP,
            verdict=UNDECIDED,
            template='The model has a single layer.',
            sample=_whole(count),
        )
    rise = np.zeros(layers)
    rise[:half], rise[-half:] = -1 / half, 1 / half
    lost, lost_error = _contrasts(-rise[None], *_by_layer(cls))
    gained, gained_error = _contrasts(rise[None], *_by_layer(sep))
    change = np.concatenate([lost, gained])
    bound = np.concatenate([lost_error, gained_error])
    decisive = _least(change - PRACTICAL_TREND, bound)
    interval = _around(change[decisive], bound[decisive], count)
    return _verdict(
        CLS_THEN_SEP,
        _all_above(change - PRACTICAL_TREND, bound, count),
        'From {early} to {late}, attention to [CLS] goes from {cls_early:.3f} to {cls_late:.3f} '
        'and attention to [SEP] from {sep_early:.3f} to {sep_late:.3f}. Less in favour of the '
        f'claim is the {{what}}: {{estimate:z.3f}}{_between(interval)}, where more than '
        f'{{threshold:g}} is claimed, in {_counted("sample", count, "example")}.',
        interval,
        what=('loss of [CLS]', 'gain of [SEP]')[decisive],
        unit='share of attention',
        threshold=PRACTICAL_TREND,
        sample=count,
        numbers={
            'early': _layers(1, half),
            'late': _layers(layers - half + 1, layers),
            'cls_early': cls.mean[:half].mean(),
            'cls_late': cls.mean[-half:].mean(),
            'sep_early': sep.mean[:half].mean(),
            'sep_late': sep.mean[-half:].mean(),
        },
    )


def vertical_patterns_are_special(vertical: np.ndarray, special: HeadTable) -> Verdict:
    """Test VERTICAL on the heads of which more than half of the maps are vertical.

    The estimate is their mean attention to special tokens, which is above the threshold HALF if the
    claim holds.

    Args:
      vertical: The share of each head's maps that are vertical [L, N].
      special: The attention to [CLS] and all [SEP] together (`statistics.to_special`).

    Raises:
      ValueError: The two have different numbers of layers or heads.
    """
    if vertical.shape != special.mean.shape:
        raise ValueError(
            f'Shares of vertical maps are {list(vertical.shape)}, and the model has '
            f'{list(special.mean.shape)} heads.'
        )
    heads, count = vertical > HALF, special.count
    if not heads.any():
        return Verdict(
            claim=VERTICAL,
            verdict=UNDECIDED,
            template='No head has mostly vertical maps.',
            sample=_whole(count),
        )
    mean, error = special.mean[heads].mean(), _error(special)[heads].mean()
    interval = _around(mean, error, count)
    numbers = {'vertical_heads': heads.sum(), 'heads': heads.size}
    rest = ''
    if not heads.all():
        numbers['others'] = special.mean[~heads].mean()
        rest = '; the other heads give them {others:.3f}'
    return _verdict(
        VERTICAL,
        _decide(_p(mean - HALF, error, count), _p(HALF - mean, error, count)),
        f'{_of_all("vertical_heads", int(heads.sum()), "has", "have")} mostly vertical maps. On '
        f'average, these give {{estimate:.3f}}{_between(interval)} of their attention to [CLS] and '
        f'all [SEP] together{rest}. This is measured in {_counted("sample", count, "example")}.',
        interval,
        what='attention to [CLS] and all [SEP] of heads with mostly vertical maps',
        unit='share of attention',
        threshold=HALF,
        sample=count,
        numbers=numbers,
    )


def features_are_negligible(
    cls: HeadTable, sep: HeadTable, features: Mapping[str, HeadTable]
) -> Verdict:
    """Test FEATURES: each type of word gets less than NEGLIGIBLE of [CLS] and [SEP] together.

    The estimate is the attention to a feature divided by that to [CLS] and [SEP] together, which is
    below the threshold NEGLIGIBLE for every feature if the claim holds; of all features it is the
    one that is least in favour of the claim. Its interval is Fieller's, and agrees with the test.
    Features in fewer than 20 examples are left out if any other remains.

    Args:
      cls: The attention to [CLS].
      sep: The attention to [SEP].
      features: The attention to each linguistic feature by its name (`statistics.attention_to`), at
        least one.
    """
    features, rare, numbers = _frequent(features)
    (of_cls, cls_error), (of_sep, sep_error) = _whole_model(cls), _whole_model(sep)
    special, error = of_cls + of_sep, cls_error + sep_error
    means, errors = np.array([_whole_model(table) for table in features.values()]).T
    below, bound = NEGLIGIBLE * special - means, NEGLIGIBLE * error + errors
    count = min(table.count for table in features.values())
    decisive = _least(below, bound)
    interval = _ratio(means[decisive], errors[decisive], special, error, count)
    return _verdict(
        FEATURES,
        _all_above(below, bound, count),
        '[CLS] and the greatest [SEP] together receive {special:.3f} of the attention. Least in '
        'favour of the claim is the feature {feature}: it receives {received:.3f}, which is '
        f'{{estimate:.2f}}{_between(interval, "z.2f")} of that, where less than {{threshold:g}} is '
        f'claimed. The rarest feature is in {_counted("sample", count, "example")}.{rare}',
        interval,
        what=f'attention to {list(features)[decisive]} divided by that to [CLS] and [SEP]',
        unit='ratio',
        threshold=NEGLIGIBLE,
        sample=count,
        numbers=numbers
        | {
            'special': special,
            'feature': list(features)[decisive],
            'received': means[decisive],
        },
    )


def cls_attends_most_to_sep(from_cls: Mapping[str, HeadTable]) -> Verdict:
    """Test LAST_CLS in the last layer.

    The estimate is the attention to [SEP] minus that to another type of token, which is above the
    threshold 0 for every type if the claim holds; of all types it is the one that is least in
    favour of the claim. Types in fewer than 20 examples are left out if at least two types remain.

    Args:
      from_cls: The attention of [CLS] to each type of token by its name (`statistics.cls_to`):
        '[SEP]' and at least one other.
    """
    from_cls, rare, numbers = _frequent(from_cls, at_least=2)
    means = {name: table.mean[-1].mean() for name, table in from_cls.items()}
    errors = {name: _error(table)[-1].mean() for name, table in from_cls.items()}
    others = [name for name in from_cls if name != '[SEP]']
    difference = np.array([means['[SEP]'] - means[name] for name in others])
    bound = np.array([errors['[SEP]'] + errors[name] for name in others])
    count = min(table.count for table in from_cls.values())
    decisive = _least(difference, bound)
    interval = _around(difference[decisive], bound[decisive], count)
    return _verdict(
        LAST_CLS,
        _all_above(difference, bound, count),
        'In the last layer, [CLS] gives {sep:.3f} of its attention to [SEP]. Least in favour of '
        'the claim is the type of token {other}: it receives {received:.3f}, and '
        f'the difference is {{estimate:z.3f}}{_between(interval)}. The rarest type is in '
        f'{_counted("sample", count, "example")}.{rare}',
        interval,
        what=f'attention of [CLS] to [SEP] minus that to {others[decisive]}',
        unit='share of attention',
        threshold=0.0,
        sample=count,
        numbers=numbers
        | {
            'sep': means['[SEP]'],
            'other': others[decisive],
            'received': means[others[decisive]],
        },
    )


def heads_follow_links(test: LinkTest) -> Verdict:
    """Test FRAMES: whether any head is above all kinds of places where the links could stand.

    It does not hold where every head is less than PRACTICAL_SHARE above one kind of places; the
    data may choose which kind, and the test corrects for that (Bonferroni).

    The estimate is the attention of a head along the links minus that at the places of the kind
    where this is least. The head is the one that is farthest above its places, among those that
    are significantly above all kinds if there are any. The estimate is above the threshold 0 if the
    claim holds. Its interval is of this head alone, although it is chosen.

    Args:
      test: The attention along the links, compared with places.
    """
    real, score, nulls = test.real, test.table, test.nulls
    means = np.stack([null.excess.mean for null in nulls.values()])
    p_of_more = np.stack([_p_of_more(null.excess) for null in nulls.values()])
    p_of_more = len(means) * np.fmin.reduce(p_of_more, axis=0)
    verdict = HOLDS if real.any() else _decide(np.nan, p_of_more.max())
    known = np.where(np.isnan(means), np.inf, means)
    beyond = known.min(axis=0)
    order = np.where(real, beyond + 1, np.where(np.isinf(beyond), -np.inf, beyond))
    best = np.unravel_index(order.argmax(), order.shape)
    nearest = int(np.argmin(known[(slice(None), *best)]))
    kind = list(nulls)[nearest]
    excess = nulls[kind].excess
    interval = _around(excess.mean[best], _error(excess)[best], excess.count)
    pieces, numbers = [], {}
    for index, (name, null) in enumerate(nulls.items(), start=1):
        if np.isnan(null.mean[best]):
            piece, shown = _numbered('no such places ({kind})', index, {'kind': name})
        else:
            piece, shown = _numbered(
                '{random:.3f} ({kind})', index, {'random': null.mean[best], 'kind': name}
            )
        pieces.append(piece)
        numbers |= shown
    negligible, least = '', ''
    if np.isfinite(beyond[best]):
        least = f' Its smallest difference is {{estimate:z.3f}}{_between(interval)}.'
    if verdict == DOES_NOT_HOLD:
        numbers['practical'] = PRACTICAL_SHARE
        negligible = ' No head is {practical:g} or more above one of these.'
    return _verdict(
        FRAMES,
        verdict,
        f'{_of_all("real_heads", int(real.sum()), "attends", "attend")} more along the links than '
        f'at all other kinds of places (each corrected for all heads).{negligible} The farthest '
        'above them is {head}: {score:.3f} along the links, and at places '
        f'{", ".join(pieces)}.{least} '
        f'This is measured in {_counted("sample", score.count, "example")}.',
        interval,
        what=f'attention of {_head(best)} along the links minus that at other places ({kind})',
        unit='share of attention',
        threshold=0.0,
        sample=score.count,
        numbers=numbers
        | {
            'heads': real.size,
            'real_heads': real.sum(),
            'head': _head(best),
            'score': score.mean[best],
        },
    )


def _p_of_more(excess: HeadTable) -> np.ndarray:
    """Return the p-values [L, N] of an excess of PRACTICAL_SHARE or more."""
    return _p(PRACTICAL_SHARE - excess.mean, _error(excess), excess.count)


def position_explains(claim: Claim, tests: Mapping[str, LinkTest]) -> Verdict:
    """Test VERB_SUBJECT or NOUN_PRONOUN: the head with the highest score, in each direction.

    The estimate is the attention of such a head along the links minus that at the same distances
    elsewhere, or minus that at the same positions of other inputs, whichever is less. It is below
    the threshold PRACTICAL_SHARE in each direction if the claim holds; it is of the direction that
    is least in favour of the claim. The interval is of this head alone, although it is chosen.

    Args:
      claim: One of the two claims.
      tests: The attention along the links compared with places, by direction. Links without such
        places decide nothing.
    """
    p_holds, p_fails, least, errors, names, counts, heads = [], [], [], [], [], [], 0
    pieces, numbers = [], {}
    for index, (direction, test) in enumerate(tests.items(), start=1):
        top = test.top
        shown = {'direction': direction, 'head': _head(top), 'score': test.table.mean[top]}
        words, found = [], {}
        for kind in (MOVED, POSITIONS):
            null = test.nulls.get(kind)
            if null is None or np.isnan(null.mean[top]):
                words.append(f'with no place {_PLACES[kind]}')
                continue
            found[kind] = null.excess
            words.append(f'{{{kind}:.3f}} {_PLACES[kind]}')
            shown[kind] = test.table.mean[top] - null.excess.mean[top]
        piece, shown = _numbered(
            f'From {{direction}}, {{head}} attends most: {{score:.3f}} along the links, '
            f'{" and ".join(words)}.',
            index,
            shown,
        )
        pieces.append(piece)
        numbers |= shown
        heads += test.table.mean.size
        counts.append(test.table.count)
        names.append(f'{_head(top)} from {direction}')
        each = [(table.mean[top], _error(table)[top], table.count) for table in found.values()] or [
            (np.nan, np.nan, test.table.count)
        ]
        # One kind of places that is as good is enough for the claim; the data choose which.
        p_holds.append(len(each) * np.min([_p(PRACTICAL_SHARE - m, e, n) for m, e, n in each]))
        p_fails.append(np.max([_p(m - PRACTICAL_SHARE, e, n) for m, e, n in each]))
        mean, error, _ = min(each)
        least.append(mean)
        errors.append(error)
    count = min(counts)
    # The heads were chosen among all on the same examples, so their being above is corrected.
    verdict = _decide(np.max(p_holds), np.fmin.reduce(p_fails) * heads)
    excess, errors = np.array(least), np.array(errors)
    words = ' '.join(pieces)
    decisive = _least(PRACTICAL_SHARE - excess, errors)
    interval = _around(excess[decisive], errors[decisive], count)
    if np.isnan(excess[decisive]):
        words += f' This is measured in {_counted("sample", count, "example")}.'
    else:
        words += (
            f' The difference that is least in favour of the claim is {{estimate:z.3f}}'
            f'{_between(interval)}, where less than {{threshold:g}} is claimed, in '
            f'{_counted("sample", count, "example")}.'
        )
    return _verdict(
        claim,
        verdict,
        words,
        interval,
        what=f'attention of {names[decisive]} along the links minus that elsewhere',
        unit='share of attention',
        threshold=PRACTICAL_SHARE,
        sample=count,
        numbers=numbers,
    )


_PLACES = {
    MOVED: 'at the same distances elsewhere',
    POSITIONS: 'at the same positions of other inputs',
}


def pretraining_helps(pretrained: Sequence[float], random: Sequence[float]) -> Verdict:
    """Test PRETRAINING on the scores of runs (Welch's test): seeds are the sample here.

    The estimate is the difference of the mean scores, which is above the threshold 0 if the claim
    holds.

    Args:
      pretrained: The score of each run from pre-trained weights, between 0 and 1.
      random: The score of each run from random weights.
    """
    groups = [np.asarray(scores, np.float64) for scores in (pretrained, random)]
    counts = [len(scores) for scores in groups]
    means = [100 * scores.mean() for scores in groups]
    difference = means[0] - means[1]
    words = (
        'Fine-tuning from pre-trained weights scores {pretrained:.1f} on average '
        f'({_counted("pretrained_runs", counts[0], "run")}) and from random weights '
        f'{{random:.1f}} ({_counted("random_runs", counts[1], "run")})'
    )
    numbers = {
        'pretrained': means[0],
        'pretrained_runs': counts[0],
        'random': means[1],
        'random_runs': counts[1],
    }
    verdict, interval = UNDECIDED, (difference, np.nan, np.nan)
    if min(counts) < _FEWEST_RUNS:
        words += '. A test needs {needed} runs of each.'
        numbers['needed'] = _FEWEST_RUNS
    else:
        # Runs that never leave the majority class do not vary, so `_ROUNDING` is added. In points.
        variances = np.array([scores.var(ddof=1) / len(scores) for scores in groups])
        variances = 100**2 * (variances + _ROUNDING**2)
        error = np.sqrt(variances.sum())
        freedom = variances.sum() ** 2 / np.sum(variances**2 / (np.array(counts) - 1))
        p = scipy.stats.t.sf(difference / error, freedom)
        verdict = _decide(p, 1 - p)
        margin = scipy.stats.t.ppf(1 - LEVEL / 2, freedom) * error
        interval = (difference, difference - margin, difference + margin)
        words += (
            ', a difference of {estimate:+z.1f} points ({low:+z.1f} to {high:+z.1f}, '
            'p = {p_value:.2g}).'
        )
        numbers['p_value'] = 2 * min(p, 1 - p)
    return _verdict(
        PRETRAINING,
        verdict,
        words,
        interval,
        what='mean score from pre-trained weights minus that from random weights',
        unit='points',
        threshold=0.0,
        sample=sum(counts),
        sample_of='runs',
        numbers=numbers,
    )


def some_mask_helps(
    claim: Claim, found: Assessment, names: Sequence[str], *, unseen: float, examples: int
) -> Verdict:
    """Test HEAD_HELPS or LAYER_HELPS.

    It holds where any mask raises the score significantly after Holm's correction, and does not
    where no interval reaches a gain of PRACTICAL_GAIN: a mask with that gain has so low an interval
    with a probability below 5 %.

    The estimate is the greatest difference from the intact model, among the significant gains if
    there are any. It is above the threshold 0 if the claim holds. Its interval is the bootstrap's,
    widened by `unseen` on either side; it is of this mask alone, although it is chosen.

    Args:
      claim: One of the two claims.
      found: The comparison of each mask with the intact model.
      names: The name of each mask [M].
      unseen: The result of `unseen_change` for these examples.
      examples: The number of examples.
    """
    low, high = _widened(found, unseen)
    helps = (found.holm <= LEVEL) & (found.difference > 0)
    if helps.any():
        verdict = HOLDS
    else:
        verdict = DOES_NOT_HOLD if np.all(high < PRACTICAL_GAIN) else UNDECIDED
    shown = helps if helps.any() else ~np.isnan(found.difference)
    best = int(np.argmax(np.where(shown, found.difference, -np.inf)))
    numbers = {'masks': len(names), 'helpful': helps.sum()}
    part = 'layer' if claim == LAYER_HELPS else 'head'
    words = (
        f'Of {_counted("masks", len(names), part)} disabled one at a time, {{helpful}} '
        f'{"raises" if helps.sum() == 1 else "raise"} the score significantly (Holm). '
    )
    if np.isnan(found.difference[best]):
        words += 'The score is undefined without any of them.'
    else:
        effect, values = _effect(found, best, names[best], low, high)
        # The estimate and its interval are fields of their own.
        numbers |= {name: values[name] for name in ('name', 'p_value', 'corrected')}
        words += f'{"Best of these" if helps.any() else "Best"} to lose is {{name}}: {effect}.'
    if not helps.any():
        if not np.isfinite(high.max()):
            words += ' A gain of any size is not excluded.'
        else:
            numbers['reach'] = 100 * high.max()
            words += (
                ' None gains more than {reach:.2f} points.'
                if verdict == DOES_NOT_HOLD
                else ' A gain of up to {reach:.2f} points is not excluded.'
            )
    widened, values = _widening(unseen)
    return _verdict(
        claim,
        verdict,
        words + widened,
        _in_points(found, best, low, high),
        what=f'score without {names[best]} minus the score of the intact model',
        unit='points',
        threshold=0.0,
        sample=examples,
        numbers=numbers | values,
    )


def heads_are_not_needed(
    found: Assessment,
    heads: Sequence[int],
    names: Sequence[str],
    *,
    unseen: float,
    examples: int,
) -> Verdict:
    """Test FRAME_HEADS: losing either head costs less than PRACTICAL_GAIN.

    The estimate is the difference of a head from the intact model in points, which is above the
    threshold -PRACTICAL_GAIN for both heads if the claim holds. It is of the head that is shown to
    be needed, or else of the one whose interval reaches lowest. Its interval is the bootstrap's,
    widened by `unseen` on either side.

    Args:
      found: The comparison of each head's mask with the intact model.
      heads: The indices of the heads in `found`, chosen without looking at it.
      names: The name of each mask [M].
      unseen: The result of `unseen_change` for these examples.
      examples: The number of examples.
    """
    heads = list(heads)
    low, high = _widened(found, unseen)
    # Its own interval shows that a head costs as much; Holm corrects for testing both heads.
    worse = (holm(found.p_value[heads]) <= LEVEL) & (high[heads] < -PRACTICAL_GAIN)
    if np.all(low[heads] > -PRACTICAL_GAIN):
        verdict = HOLDS
    else:
        verdict = DOES_NOT_HOLD if worse.any() else UNDECIDED
    needed = np.where(worse, low[heads], np.inf) if worse.any() else low[heads]
    decisive = heads[int(np.argmin(needed))]
    pieces, numbers = [], {}
    for index, head in enumerate(heads, start=1):
        if np.isnan(found.difference[head]):
            piece, values = 'Without {name} the score is undefined.', {'name': names[head]}
        else:
            effect, values = _effect(found, head, names[head], low, high)
            piece = f'Disabling {{name}} changes the score by {effect}.'
        piece, values = _numbered(piece, index, values)
        pieces.append(piece)
        numbers |= values
    words = ' '.join(pieces)
    if np.isfinite(low[heads].min()):
        numbers['reach'] = 100 * -min(low[heads].min(), 0)
        words += ' A loss of up to {reach:.2f} points is not excluded.'
    else:
        words += ' A loss of any size is not excluded.'
    widened, values = _widening(unseen)
    return _verdict(
        FRAME_HEADS,
        verdict,
        words + widened,
        _in_points(found, decisive, low, high),
        what=f'score without {names[decisive]} minus the score of the intact model',
        unit='points',
        threshold=-100 * PRACTICAL_GAIN,
        sample=examples,
        numbers=numbers | values,
    )


def unseen_change(metric: str, baseline: np.ndarray, labels: np.ndarray) -> float:
    """Return how much a score may change through examples of a kind that the sample lacks.

    A kind that occurs in none of E examples can, at 5 %, still be as frequent as 3 in E (the rule
    of three); a bootstrap only repeats the examples that it has, and misses it. The result is the
    change of the score by three more examples that one model has right and the other wrong.
    Correlations are moved by every example: for them it is 0, but infinite below 50 examples, where
    their intervals are too narrow.

    Args:
      metric: One of `significance.METRICS`.
      baseline: The predictions of the intact model [E].
      labels: The true labels [E].
    """
    if metric not in ('accuracy', 'f1'):
        return 0.0 if len(labels) >= _FEWEST_FOR_CORRELATIONS else np.inf
    three = np.ones(3, np.int64)
    right, wrong = np.concatenate([baseline, three]), np.concatenate([baseline, 0 * three])
    scores = weighted_scores(
        metric,
        np.stack([right, wrong]),
        np.concatenate([labels, three]),
        np.ones((1, len(labels) + 3)),
    )
    return float(scores[0, 0] - scores[0, 1])


def in_all_runs(verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return one verdict on several runs: their verdict where they agree, else UNDECIDED.

    Its numbers and its sentence are those of the first run, after a summary of the verdicts where
    there are several.

    Args:
      verdicts: The verdicts on the same claim, by the name of the run.
    """
    found = Counter(each.verdict for each in verdicts.values())
    phrases = {UNDECIDED: 'is undecided', NOT_MEASURED: 'is not measured'}
    name, first = next(iter(verdicts.items()))
    numbers, lead = {'run': name}, ''
    if len(verdicts) > 1:
        pieces = []
        for index, (verdict, count) in enumerate(found.items(), start=1):
            piece, shown = _numbered(
                '{outcome} in {runs_with}',
                index,
                {'outcome': phrases.get(verdict, verdict), 'runs_with': count},
            )
            pieces.append(piece)
            numbers |= shown
        lead = f'Of {{runs}} runs, the claim {" and ".join(pieces)}. '
        numbers['runs'] = len(verdicts)
    return dataclasses.replace(
        first,
        verdict=first.verdict if len(found) == 1 else UNDECIDED,
        template=f'{lead}{{run}}: {first.template}',
        numbers=dict(first.numbers) | numbers,
    )


def _verdict(
    claim: Claim,
    verdict: str,
    template: str,
    interval: tuple[float, float, float],
    *,
    sample: float | int,
    numbers: Mapping[str, object],
    **fields: float | str,
) -> Verdict:
    """Return a verdict of Python's own numbers; the interval is (estimate, low, high)."""
    estimate, low, high = map(float, interval)
    return Verdict(
        claim=claim,
        verdict=verdict,
        template=template,
        estimate=estimate,
        low=low,
        high=high,
        sample=_whole(sample),
        numbers={
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in numbers.items()
        },
        **fields,
    )


def _by_layer(table: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over heads [L], and a bound of its standard error [L]."""
    return table.mean.mean(axis=1, dtype=np.float64), _error(table).mean(axis=1)


def _whole_model(table: HeadTable) -> tuple[float, float]:
    """Return the mean over all heads, and a bound of its standard error."""
    return float(table.mean.mean()), float(_error(table).mean())


def _frequent(
    tables: Mapping[str, HeadTable], *, at_least: int = 1
) -> tuple[Mapping[str, HeadTable], str, dict[str, object]]:
    """Leave out what too few examples have to tell, if so many others remain.

    Returns:
      What is kept, and the sentence that names the rest with its numbers.
    """
    kept = {name: table for name, table in tables.items() if table.count >= _FEWEST}
    if len(kept) < at_least:
        return tables, '', {}
    pieces, numbers = [], {}
    for index, name in enumerate((name for name in tables if name not in kept), start=1):
        values = {'rare': name, 'rare_count': _whole(tables[name].count)}
        piece, values = _numbered('{rare} ({rare_count})', index, values)
        pieces.append(piece)
        numbers |= values
    return kept, f' Left out as too rare: {", ".join(pieces)}.' if pieces else '', numbers


def _error(table: HeadTable) -> np.ndarray:
    """Return standard errors [L, N]; what float32 leaves of an exact 0 is none."""
    return table.standard_error.astype(np.float64) + _ROUNDING


def _contrasts(weights, mean, error) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of layers, one for each row of the weights, and a bound of their errors."""
    return weights @ mean, np.abs(weights) @ error


def _least(difference: np.ndarray, error: np.ndarray) -> int:
    """Return which difference is smallest in standard errors, or as it is without these."""
    for values in (difference / error, difference):
        if not np.isnan(values).all():
            return int(np.nanargmin(values))
    return 0


def _p(difference, error, count):
    """Return the one-sided p-value of a difference that is not above 0; NaN in few examples."""
    if count < _FEWEST:
        return np.full(np.shape(difference), np.nan)
    return scipy.stats.t.sf(difference / error, count - 1)


def _all_above(difference, error, count, *, chosen_among: int | None = None) -> str:
    """Return the verdict on the claim that all differences are above 0.

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


def _margin(count) -> float:
    """Return how many standard errors a 95 % interval reaches; NaN for a single example."""
    return float(scipy.stats.t.ppf(1 - LEVEL / 2, count - 1)) if count >= 2 else np.nan


def _around(estimate, error, count) -> tuple[float, float, float]:
    """Return an estimate with its 95 % interval, at least as wide as it must be."""
    half = _margin(count) * error
    return float(estimate), float(estimate - half), float(estimate + half)


def _ratio(part, part_error, whole, whole_error, count) -> tuple[float, float, float]:
    """Return a ratio of positive numbers and its 95 % interval.

    After Fieller, who tests part - ratio * whole against 0 for every ratio; here with the bound of
    the error of that difference.
    """
    margin = _margin(count)
    least, most = part - margin * part_error, part + margin * part_error
    greatest_whole, least_whole = whole + margin * whole_error, whole - margin * whole_error
    high = np.inf if least_whole <= 0 else most / least_whole
    return part / whole, np.maximum(least, 0) / greatest_whole, high


def _between(interval: tuple[float, float, float], spec: str = 'z.3f') -> str:
    """Return the part of a template that shows an interval."""
    _, low, high = interval
    if np.isnan(low):
        return ''
    return (
        f' ({{low:{spec}}} or more)' if np.isinf(high) else f' ({{low:{spec}}} to {{high:{spec}}})'
    )


def _widened(found: Assessment, unseen: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals, widened; those of what is undefined reach everywhere."""
    low = np.where(np.isnan(found.low), -np.inf, found.low) - unseen
    high = np.where(np.isnan(found.high), np.inf, found.high) + unseen
    return low, high


def _widening(unseen: float) -> tuple[str, dict[str, object]]:
    if not unseen:
        return '', {}
    if np.isinf(unseen):
        return ' The examples are too few for the interval of a correlation.', {}
    words = ' Intervals are widened by {unseen:.2f} points for what the examples may lack.'
    return words, {'unseen': 100 * unseen}


def _effect(
    found: Assessment, index: int, name: str, low: np.ndarray, high: np.ndarray
) -> tuple[str, dict[str, object]]:
    """Return the part of a template that shows what disabling does, and its fields."""
    estimate, least, most = _in_points(found, index, low, high)
    between = '' if np.isinf(least) else '{low:+z.2f} to {high:+z.2f}, '
    words = '{estimate:+z.2f} points (' + between + 'p = {p_value:.2g}, {corrected:.2g} '
    return words + 'after correction)', {
        'name': name,
        'estimate': estimate,
        'low': least,
        'high': most,
        'p_value': found.p_value[index],
        'corrected': found.holm[index],
    }


def _in_points(
    found: Assessment, index: int, low: np.ndarray, high: np.ndarray
) -> tuple[float, float, float]:
    """Return a difference and its interval in points; NaN where it is undefined."""
    estimate = 100 * found.difference[index]
    if np.isnan(estimate):
        return np.nan, np.nan, np.nan
    return estimate, 100 * low[index], 100 * high[index]


def _numbered(
    template: str, index: int, values: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """Return one of several alike parts of a template, with a number after the fields' names."""
    template = re.sub(r'\{(\w+)', rf'{{\g<1>_{index}', template)
    return template, {f'{name}_{index}': value for name, value in values.items()}


def _of_all(field: str, count: int, singular: str, plural: str) -> str:
    """Return the part of a template that says what so many of all heads do."""
    return f'Of {{heads}} heads, {{{field}}} {singular if count == 1 else plural}'


def _counted(field: str, count: float | int, noun: str) -> str:
    """Return the part of a template that counts something, in the singular or the plural."""
    return f'{{{field}}} {noun}' if _whole(count) == 1 else f'{{{field}}} {noun}s'


def _whole(count: float | int) -> int:
    return round(float(count))


def _head(index: tuple) -> str:
    return head_name(int(index[0]), int(index[1]))


def _layers(first: int, last: int) -> str:
    return f'layer {first}' if first == last else f'layers {first} to {last}'
