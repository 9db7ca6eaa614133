"""Worlds in which each claim is just true, just false, or clearly so; and builders of their data.

A world draws what a test of the claim reads, with a margin: how far its decisive part is on the
side where the claim is true.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.stats

from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.analyses import verdicts as claims
from bert_secrets_jax.measure.links import LinkTest, NullTest
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.names import head_name
from bert_secrets_jax.patterns.classifier import load_classifier
from bert_secrets_jax.patterns.correct import corrected
from bert_secrets_jax.pruning.curves import curve_of, lead_over_random
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.influence import mean_effect
from bert_secrets_jax.stats.intervals import Counted, score_limits
from bert_secrets_jax.stats.seeds import assess_means_over_seeds


@dataclasses.dataclass(frozen=True)
class World:
    """Draws the verdict of a claim, clearly true at a margin and clearly false at its negative."""

    draw: Callable[[np.random.Generator, float], claims.Verdict]
    clear: float
    draws: int = 200

    def rate(self, verdict: str, margin: float, draws: int) -> float:
        """Return how often a verdict comes out."""
        rng = np.random.default_rng(0)
        return np.mean([self.draw(rng, margin).verdict == verdict for _ in range(draws)])


def table(values) -> HeadTable:
    """Return the table of values [E, L, N]."""
    return HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), float(len(values)))


def drawn(rng, means, *, scatter=0.05, examples=40) -> HeadTable:
    """Return a table of heads [L, N] with these means; heads of an example vary together."""
    means = np.asarray(means, np.float64)
    shared, own = rng.normal(size=(examples, 1, 1)), rng.normal(size=(examples, *means.shape))
    # As skewed as shares of attention are, with variance 1.
    shared, own = (
        (np.exp(0.5 * each) - np.exp(0.125)) / np.sqrt((np.exp(0.25) - 1) * np.exp(0.25))
        for each in (shared, own)
    )
    return table(means + scatter * (0.8 * shared + 0.6 * own))


def of_layers(rng, means, *, heads=3, **settings) -> HeadTable:
    return drawn(rng, np.repeat(np.asarray(means)[:, None], heads, axis=1), **settings)


def null(score, mean=np.nan, p=1e-3, *, excess=None) -> NullTest:
    """Compare a score with places that have this mean, or that it exceeds so; NaN is no place."""
    mean = np.broadcast_to(mean, score.mean.shape) if excess is None else score.mean - excess.mean
    if excess is None:
        excess = HeadTable(score.mean - mean, score.variance, score.count)
    p = np.where(np.isnan(mean), np.nan, p)
    return NullTest(
        score=score.mean, mean=mean, percentile_99=mean, excess=excess, p=p, familywise=p,
        links=int(score.count), possible=9.0,
    )  # fmt: skip


def link_test(score, **nulls) -> LinkTest:
    return LinkTest(score, np.zeros((1, 1, 3), np.int32), nulls)


def effects_of(
    difference, low, high, p_value=None, corrected=None, *, unseen=0.0, examples=500, heads=12
) -> claims.Effects:
    """Return effects of heads, as many in each layer, whose intervals are wider by the unseen."""
    p_value = np.ones(len(difference)) if p_value is None else np.asarray(p_value)
    return claims.Effects(
        names=[head_name(*divmod(index, heads)) for index in range(len(difference))],
        difference=np.asarray(difference),
        low=np.asarray(low) - unseen,
        high=np.asarray(high) + unseen,
        p_value=p_value,
        corrected=p_value if corrected is None else np.asarray(corrected),
        unseen=unseen,
        sample=examples,
    )


def over_seeds(values) -> claims.Effects:
    """Return effects of masks over seeds, of what texts of a score gain [S, M, E]."""
    none = np.ones(values.shape[1])
    alone = [effects_of(each, each - 1, each + 1, none) for each in values.mean(axis=2)]
    return assess_means_over_seeds(alone, values - values.mean(axis=2, keepdims=True))


def last_layers(rng, margin, seeds=1):
    """The last layer is clearly changed most, and the one before by the margin more than counts.

    Seeds differ by more than examples do; the margin is that of their mean.
    """
    lead = claims.LAST_LAYERS.threshold + margin
    own = 0.05 * rng.normal(size=seeds) * (seeds > 1)
    return claims.last_layers_change_most(
        [of_layers(rng, [0.9, 0.8, 0.8 - lead + each, 0.4]) for each in own]
    )


def cls_then_sep(rng, margin):
    """[SEP] and [CLS] change as they should, and the lead of [SEP] in the end decides."""
    lead = claims.CLS_THEN_SEP.threshold + margin
    cls = of_layers(rng, [0.6, 0.6, 0.3, 0.3])
    return claims.attention_moves_from_cls_to_sep(
        cls, of_layers(rng, [0.05, 0.05, 0.3 + lead, 0.3 + lead])
    )


def vertical(rng, margin):
    """Eight of ten heads are above half, and one of the other two is by the margin."""
    means = np.full((2, 6), 0.8)
    means[1, 2:4] = 0.5 + margin, 0.2
    shares = np.where(np.arange(12).reshape(2, 6) < 10, 0.9, 0.1)
    return claims.vertical_patterns_are_special(shares, drawn(rng, means))


def features(rng, margin):
    """One of two features is negligible by the margin."""
    cls, sep = drawn(rng, np.full((2, 3), 0.2)), drawn(rng, np.full((2, 3), 0.2))
    least = claims.FEATURES.threshold * 0.4 - margin
    found = {'noun': drawn(rng, np.full((2, 3), 0.01), scatter=0.01)}
    found['verb'] = drawn(rng, np.full((2, 3), least), scatter=0.01)
    return claims.features_are_negligible(cls, sep, found)


def last_cls(rng, margin):
    types = {'[SEP]': 0.3, 'noun': 0.1, 'verb': 0.3 - margin}
    return claims.cls_attends_most_to_sep(
        {name: drawn(rng, np.full((2, 3), mean)) for name, mean in types.items()}
    )


def few_heterogeneous(rng, margin, seeds=1):
    """Maps of a class or not, on each example; fine-tunings differ."""

    def classes():
        other = 0.05 * rng.normal() * (seeds > 1)
        shares = {
            'block': 0.06,
            'heterogeneous': claims.FEW_HETEROGENEOUS.threshold - margin - 0.06 + other,
        }
        maps = {name: rng.random((200, 2, 3)) < share for name, share in shares.items()}
        return {name: table(each.astype(np.float64)) for name, each in maps.items()}

    runs = [classes() for _ in range(seeds)]
    return claims.few_are_heterogeneous({name: [run[name] for run in runs] for name in runs[0]})


def few_heterogeneous_mistaken(rng, margin):
    """A model that the classifier does not know, and mistakes as it may."""
    upper = claims.FEW_HETEROGENEOUS.threshold - margin
    shares = np.array([0.6 * (1 - upper), 0.2 * (1 - upper), 0.2 * (1 - upper), 0.06, upper - 0.06])
    confusions = load_classifier().confusions
    rates = confusions.sum(axis=0) + 0.2
    # About as alike as the labelled models are.
    rates = rng.standard_gamma(25 * rates / rates.sum(axis=1, keepdims=True))
    found = shares @ (rates / rates.sum(axis=1, keepdims=True))
    maps = rng.multinomial(1, found, (200, 2, 3))
    right = corrected(maps.mean(axis=(0, 1, 2)), confusions, size=1200, draws=100)
    return claims.few_are_heterogeneous(
        {'block': table(maps[..., 3]), 'heterogeneous': table(maps[..., 4])},
        corrected=right.together([3, 4]),
    )


def links(rng, best, *kinds):
    """A head that attends most, and is so far above the places of each kind; others are not."""
    score = drawn(rng, [[0.4, 0.1, 0.1, 0.1]], scatter=0.001)
    excess = [drawn(rng, [[each, 0.0, 0.0, 0.0]], examples=80) for each in best]
    nulls = {kind: null(score, excess=each) for kind, each in zip(kinds, excess, strict=True)}
    return link_test(score, **nulls)


def frames(rng, margin):
    """A head clearly above one kind of places, and above another by the margin."""
    excess = 0.2, claims.FRAMES.threshold + margin
    return claims.heads_follow_links(links(rng, excess, 'moved', 'positions'))


def position(rng, margin):
    """As far from both kinds of places as to be just explained by them, or just not."""
    excess = (claims.FRAMES.threshold - margin,) * 2
    found = {'a to b': links(rng, excess, 'moved', 'positions')}
    return claims.position_explains(claims.VERB_SUBJECT, found)


def pretraining(rng, margin):
    return claims.pretraining_helps(
        (0.8 + margin + 0.02 * rng.normal(size=5)).tolist(),
        (0.8 + 0.05 * rng.normal(size=5)).tolist(),
    )


def gains(rng, margin, seeds):
    """Accuracies of three tasks whose gain is within the paper's error by the margin."""
    one = claims.finetuning_gains({'MRPC': claims.Gain([0.5], [0.9], 400, False, 0.4)})
    gain, found = 0.3 + one.threshold / 100 - margin, {}
    for task in ('MRPC', 'RTE', 'QNLI'):
        spread = 0.02 * rng.normal(size=seeds) * (seeds > 1)
        before = rng.binomial(2000, 0.4, seeds) / 2000
        after = rng.binomial(2000, np.clip(0.4 + gain + spread, 0, 1)) / 2000
        found[task] = claims.Gain(before.tolist(), after.tolist(), 2000, False, 0.3)
    return claims.finetuning_gains(found)


def answered(rng, gains, losses, examples) -> claims.Effects:
    """Effects on accuracy of masks [M] that mend and spoil these shares, as `assess` has them."""
    gained, lost = (rng.binomial(examples, np.asarray(each)) for each in (gains, losses))
    difference, changed = (gained - lost) / examples, gained + lost
    counts = np.stack([0 * gained, gained, lost, examples - changed], axis=1).astype(float)
    kinds = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])
    low, high = score_limits(Counted('accuracy', counts, kinds, 2), below=0.025, above=0.025)
    p_value = np.minimum(2 * scipy.stats.binom.cdf(np.minimum(gained, lost), changed, 0.5), 1)
    # For accuracy, `unseen_change` depends on the number of examples alone; the intervals have it.
    found = effects_of(difference, low, high, p_value, significance.holm(p_value))
    unseen = scipy.stats.norm.isf(0.025) ** 2 / examples
    return dataclasses.replace(found, unseen=unseen, sample=examples)


def mask_helps(rng, margin):
    """The margin is what a head gains beyond half a point; others do nothing."""
    gain, loss = max(claims.PRACTICAL_GAIN + margin, 0), max(-claims.PRACTICAL_GAIN - margin, 0)
    found = (0.001, 0.001 + gain, 0.001), (0.001, 0.001 + loss, 0.001)
    return claims.some_mask_helps(claims.HEAD_HELPS, answered(rng, *found, 3000))


def frame_heads(rng, margin):
    loss = max(claims.PRACTICAL_GAIN - margin, 0)
    return claims.heads_are_not_needed(
        answered(rng, (0.002, 0.002), (0.002, 0.002 + loss), 5000), [0, 1]
    )


def random_head(rng, margin):
    """Heads differ among themselves; on average they do what the margin says."""
    each = np.array([-0.01, 0.0, 0.01]) + margin
    mended, spoilt = 0.02 + np.maximum(each, 0), 0.02 + np.maximum(-each, 0)
    examples = 400
    labels, right = rng.integers(0, 2, examples), rng.random(examples) < 0.8
    draws = rng.random((3, examples))
    after = np.where(right, draws >= spoilt[:, None] / 0.8, draws < mended[:, None] / 0.2)
    data = np.where(after, labels, 1 - labels), np.where(right, labels, 1 - labels), labels
    average = mean_effect('f1', *data)
    return claims.a_random_head_helps(average, heads=3)


def same_heads(rng, margin):
    """In one task, the second head is needed by the margin more than a third one."""

    def task(losses):
        losses, error = np.asarray(losses), 0.01
        shared = error * rng.normal()
        found = -losses + 0.6 * shared + 0.8 * error * rng.normal(size=len(losses))
        return effects_of(found, found - 1.96 * error, found + 1.96 * error)

    losses = {'STS-B': [0.5, 0.4, 0.0], 'RTE': [0.5, 0.2 + margin, 0.2]}
    return claims.same_heads_are_needed({each: task(losses[each] + 8 * [0.0]) for each in losses})


def sep_half(rng, margin):
    """The third to fifth of six layers have the margin more than half as their mean."""
    middle = claims.SEP_MOVES_LITTLE.threshold + margin
    means = [0.9, 0.1, middle + 0.2, middle - 0.2, middle, 0.9]
    return claims.heads_look_at_sep(of_layers(rng, means))


def sep_to_sep(rng, margin):
    near = claims.SEP_TO_SEP.threshold + margin
    means = [0.1, 0.1, near, near + 0.05, near - 0.05, 0.1]
    return claims.sep_looks_at_sep(of_layers(rng, means, scatter=0.02))


def broad_cls(rng, margin):
    """Texts of various lengths: even attention, and that of [CLS] in the last layer."""
    lengths = np.log(rng.integers(40, 129, (60, 1, 1)))
    even = table(np.broadcast_to(lengths, (60, 2, 3)))
    means = claims.BROADLY * lengths + np.array([[-1.0], [margin]])
    return claims.cls_looks_broadly(table(means + 0.3 * rng.normal(size=(60, 2, 3))), even)


def no_op(rng, margin):
    """From the second of three layers on; the last layer decides. Gradients are skewed."""
    sep, others = np.array([2.0, 0.4, 1 - margin]), np.ones(3)
    gradients = {
        name: of_layers(rng, 1e-3 * means, scatter=2e-4, examples=60)
        for name, means in (('[SEP]', sep), ('other tokens', others))
    }
    return claims.sep_is_a_no_op(gradients, loss='the loss of the masked LM')


def moves_little(rng, margin):
    """Five heads clearly attend to [SEP]; the mean of their shares of norms is by the margin."""
    weights = drawn(rng, np.where(np.arange(12).reshape(3, 4) < 5, 0.8, 0.1))
    shares = np.full((3, 4), 0.9)
    shares[weights.mean > claims.SEP_MOVES_LITTLE.threshold] = (
        0.5 - margin + np.array([0.2, 0.1, 0, -0.1, -0.2])
    )
    return claims.sep_moves_little(weights, drawn(rng, shares))


def probes(rng, margin, claim, threshold, seeds):
    """Sentences are easy or hard for both probes, and seeds differ; the margin is in points."""
    words = rng.integers(1, 12, 60)
    easy = 0.1 * rng.normal(size=60)
    own = 0.02 * rng.normal(size=(2, seeds, 1)) * (seeds > 1)
    lead = (threshold + margin) / 100
    chance = np.clip(np.array([0.45 + lead, 0.45])[:, None, None] + easy + own, 0, 1)
    right, other = rng.binomial(words, chance).astype(np.float32)
    return claims.probe_leads(claim, words.astype(np.float32), right, other)


def outlier_losses(rng, excess, random, texts=60):
    """Losses of texts without the outliers, whose mean excess is given, and beside random sets."""
    hidden = rng.integers(1, 20, texts)
    intact = rng.gamma(2.0, 1.0, texts) * hidden

    def without(change):
        noise = 0.3 * np.sqrt(hidden) * (rng.exponential(1.0, texts) - 1)
        return intact + hidden * change + noise

    of_random = np.array([without(change) for change in random])
    of_outliers = without(excess)[None]
    effects = assess_losses(of_outliers, intact, hidden)
    beyond = assess_losses(of_outliers, of_random.mean(axis=0), hidden)
    return claims.outliers_are_needed(
        float(effects.difference[0]),
        (of_random - intact).sum(axis=1) / hidden.sum(),
        tuple(float(getattr(beyond, name)[0]) for name in ('difference', 'low', 'high')),
        outliers=2,
        texts=texts,
    )


def outliers_needed(rng, margin):
    """Random dimensions do nothing on average; the outliers do the margin more than counts."""
    return outlier_losses(
        rng, claims.OUTLIERS_NEEDED.threshold + margin, 0.02 * rng.normal(size=39)
    )


def gain_of(rng, mean, texts=60):
    """Return the gain of a head over an offset: the mean over texts, its error, their number."""
    values = rng.normal(mean, 0.4, texts)
    return float(values.mean()), float(values.std(ddof=1) / texts**0.5), texts


def relation_heads(rng, margin):
    """Two of six relations have a head and three have none; the margin is that of the sixth."""
    means = {
        'a': 0.6,
        'b': 0.6,
        'c': claims.RELATION_HEADS.threshold + margin,
        **dict.fromkeys('def', -0.3),
    }
    return claims.relations_have_heads({name: gain_of(rng, mean) for name, mean in means.items()})


def no_head_for_all(rng, margin):
    return claims.no_head_for_all(*gain_of(rng, claims.RELATION_HEADS.threshold - margin))


def changed(rng, right, loss):
    """Whether each example [S, E] is still right: mostly so, and less often by a loss."""
    to_wrong, to_right = 0.1 + np.asarray(loss), 0.1 / (1 - right.mean())
    chance = np.where(right == 1, 1 - to_wrong / right.mean(), to_right)
    return (rng.random(right.shape) < np.clip(chance, 0, 1)).astype(int)


def of_seeds(rng, seeds):
    """Whether each example [S, E] is right, and how much more or less each seed loses [S, 1]."""
    right = (rng.random((seeds, 400)) < rng.beta(6, 1.5, 400)).astype(int)
    return right, 0.01 * rng.normal(size=(seeds, 1)) * (seeds > 1)


def can_go(rng, margin, seeds):
    """Fine-tunings lose about as much as is noticeable, some more and some less."""
    right, own = of_seeds(rng, seeds)
    masked = changed(rng, right, claims.NOTICEABLE - margin + own)
    curve = curve_of('accuracy', masked[:, None, None], right, np.ones(400, int))
    change = tuple(float(each[0]) for each in (curve.difference, curve.low, curve.high))
    return claims.heads_can_go(change, curve.draws[:, 0, 0], kept=86, heads=144, examples=400)


def order(rng, margin, seeds):
    """Random orders differ; the margin is what another order has over their mean."""
    right, own = of_seeds(rng, seeds)
    return order_among_random(rng, right, 0.05 - margin + own)


def order_among_random(rng, right, loss):
    """The verdict on an order of masks with this loss, beside twenty random ones."""
    losses = [loss, *(0.05 + 0.02 * rng.normal(size=20))]
    # Three masks of each.
    found = [np.stack([changed(rng, right, each) for _ in range(3)], axis=1) for each in losses]
    ordered, random = found[0], np.stack(found[1:], axis=1)
    lead = lead_over_random('accuracy', ordered, random, np.ones(400, int))
    changes = (each.mean(axis=(-2, -1)) for each in (ordered, random))
    return claims.order_tells(lead, *changes, examples=400)


_WORDS = {'claim': claims.PROBE_BEYOND_WORDS, 'threshold': claims.PROBE_BEYOND_WORDS.threshold}
_RANDOM = {
    'claim': claims.ATTENTION_BEYOND_RANDOM,
    'threshold': claims.ATTENTION_BEYOND_RANDOM.threshold,
}
WORLDS = {
    'last layers': World(last_layers, 0.1),
    'last layers, seeds': World(partial(last_layers, seeds=5), 0.2),
    '[CLS], then [SEP]': World(cls_then_sep, 0.06),
    'vertical': World(vertical, 0.1),
    'features': World(features, 0.08),
    'last [CLS]': World(last_cls, 0.1),
    'few heterogeneous': World(few_heterogeneous, 0.3),
    'few heterogeneous, seeds': World(partial(few_heterogeneous, seeds=5), 0.3),
    'few heterogeneous, mistaken': World(few_heterogeneous_mistaken, 0.3, draws=100),
    'frames': World(frames, 0.05),
    'position': World(position, 0.05),
    'pre-training': World(pretraining, 0.2),
    'gains': World(partial(gains, seeds=1), 0.06),
    'gains, seeds': World(partial(gains, seeds=5), 0.06),
    'mask helps': World(mask_helps, 0.02),
    'frame heads': World(frame_heads, 0.01),
    'random head': World(random_head, 0.03, draws=100),
    'relation heads': World(relation_heads, 0.25),
    'no head for all': World(no_head_for_all, 0.25),
    'probe beyond words': World(partial(probes, **_WORDS, seeds=3), 20.0),
    'probe beyond words, a seed': World(partial(probes, **_WORDS, seeds=1), 20.0),
    'attention beyond random': World(partial(probes, **_RANDOM, seeds=4), 20.0),
    'outliers': World(outliers_needed, 0.3, draws=100),
    'same heads': World(same_heads, 0.15),
    'half on [SEP]': World(sep_half, 0.06),
    '[SEP] to [SEP]': World(sep_to_sep, 0.03),
    'broad [CLS]': World(broad_cls, 0.4),
    'no-op': World(no_op, 0.3),
    '[SEP] moves little': World(moves_little, 0.06),
    'heads can go': World(partial(can_go, seeds=1), 0.09),
    'heads can go, seeds': World(partial(can_go, seeds=5), 0.09),
    'order tells': World(partial(order, seeds=1), 0.1),
    'order tells, seeds': World(partial(order, seeds=5), 0.1),
}
