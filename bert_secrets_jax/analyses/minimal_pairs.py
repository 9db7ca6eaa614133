"""Minimal pairs: whether a model prefers the better of two texts, and which heads make it do so.

A masked LM scores a text by its pseudo-log-likelihood, a classifier by the log-probability of one
class, an embedding by its cosine with a third text. A pair is told right if the good text has the
higher score. How much higher it is, is what heads are judged by: a difference changes with each
head, where few answers do.

Shapes: P pairs, F phenomena, M masks, L layers, N heads.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float, Int, Shaped

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.embeddings import similarities
from bert_secrets_jax.ablation.masked_lm import FEW, assess_losses, masked_lm_losses
from bert_secrets_jax.ablation.masks import describe, single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common import effects, marks
from bert_secrets_jax.analyses.common.disabling import instead
from bert_secrets_jax.analyses.common.inputs import Models, if_not_learnt, one_model
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough, check_name, check_rules
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.pairs import MinimalPair, pairs_sample, read_pairs
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.metrics import interval
from bert_secrets_jax.finetune.outcome import p_learnt
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.pruning.shapley import coalitions, draw_permutations, shapley_of
from bert_secrets_jax.runs.call import INPUTS, Call, an_input, call
from bert_secrets_jax.runs.result import Figures, Result, drawn, framed, how_many, measured, noted
from bert_secrets_jax.stats.agreement import agreement, reliability, without_noise
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.correlations import RankAgreement, rank_agreement
from bert_secrets_jax.stats.effects import Agreement, Effects, Outcome
from bert_secrets_jax.stats.student import LEVEL

SOURCE = 'Warstadt et al. 2020, section 3'
# The name of all pairs, which no phenomenon can have.
ALL = ''
_NEEDED = 'heads that some phenomenon needs'
_COLUMNS = {'preference': 'value', **effects.TESTED}


@dataclasses.dataclass(frozen=True)
class Told:
    """How many pairs are told right, and what may make them unlike the others.

    Attributes:
      right, pairs: The number of pairs whose good text has the higher score, and of all pairs.
      lengths_differ: The number whose texts have different numbers of wordpieces.
      unknown: The number with [UNK] in either text.
      alike: The number whose texts have the same wordpieces, which no model can tell apart.
    """

    right: int
    pairs: int
    lengths_differ: int
    unknown: int
    alike: int

    @property
    def accuracy(self) -> Float[np.ndarray, '3']:
        """The share of pairs that are told right, with its 95 % interval (Wilson 1927)."""
        share = self.right / self.pairs
        return np.array([share, *interval('accuracy', {'accuracy': share}, self.pairs)])

    @property
    def p_chance(self) -> float:
        """The one-sided p-value of an accuracy of at most one half (binomial test)."""
        return p_learnt(self.right / self.pairs, 0.5, self.pairs)


class MinimalPairs(Result):
    """Which of two texts a model prefers, by phenomenon, and the effect of each head on that.

    The preference of a pair is the score of its good text less that of its bad one.

    Attributes:
      scored_by: The score of a text, such as 'pseudo-log-likelihood'.
      baseline: The behaviour of a disabled head, as in `ablation`.
      shape: The numbers of layers and heads.
      told: The counts by phenomenon, and first those of `ALL` pairs.
      effects: The effect of disabling each head on the mean preference, by the same names. P-values
        are corrected for all heads, within each phenomenon.
      reliability: For each phenomenon, the rank correlation to expect of the effects on other pairs
        (see `stats.agreement.reliability`).
      shared: By the names of two phenomena, the rank correlation of heads' effects on them.
      agreement: The mean of these correlations, with an interval over phenomena.
      shapley: By the names of `told`, the Shapley value [L, N] of each head in the accuracy, and
        its standard error over permutations [2, L, N]; empty if it was not asked for.
    """

    title = 'Minimal pairs'

    scored_by: str
    baseline: str
    shape: tuple[int, int]
    told: Mapping[str, Told]
    effects: Mapping[str, Effects]
    reliability: Mapping[str, float]
    shared: Mapping[tuple[str, str], RankAgreement]
    agreement: Agreement
    shapley: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def needed(self) -> Shaped[np.ndarray, 'F M']:
        """Whether each phenomenon needs each head, corrected for all heads and all phenomena."""
        each = [self.effects[name] for name in self.reliability]
        return np.stack([(len(each) * one.corrected <= LEVEL) & (one.gain < 0) for one in each])

    def figures(self):
        caption = 'Change of the preference for good texts without each head, over all pairs.'
        heads = 'heads', self.effects[ALL], self.shape, caption, ALL
        draw = functools.partial(effects.draw_effects, *heads)
        return drawn(self, accuracy=_draw_accuracy) | Figures({'heads': draw})

    def findings(self):
        whole = self.told[ALL]
        fields = {'source': SOURCE, 'sample': whole.pairs, 'sample_of': 'pairs'}
        right = measured(
            'pairs told right',
            100 * whole.accuracy,
            unit='% of pairs',
            template='{estimate:.1f} % of {sample:pair|pairs} are told right ({low:.1f} % to '
            '{high:.1f} %; guessing: half).',
            **fields,
        )
        learnt, needed = whole.p_chance <= LEVEL, np.asarray(self.needed.any(axis=0))
        test = 'accuracy', float(whole.accuracy[0]), 0.5, whole.p_chance
        return [
            *if_not_learnt('the model', test, whole.pairs),
            right,
            *effects.findings_of(self.effects[ALL], 'heads', source=SOURCE, extremes=learnt),
            *[how_many(_NEEDED, needed, **fields)] * (len(self.reliability) > 1),
        ]

    def notes(self):
        whole, least = self.told[ALL], min(each.pairs for each in self.told.values())
        return [
            f'Texts are scored by {self.scored_by}. {instead(self.baseline)}',
            f'Of {whole.pairs} pairs: {whole.lengths_differ} of unlike numbers of wordpieces, '
            f'{whole.unknown} with unknown words, {whole.alike} with the same wordpieces in both '
            'texts (told wrong).',
            *noted({'With few pairs, intervals are slightly too narrow.': least < FEW}),
        ]

    def head_marks(self):
        what = 'the preference in minimal pairs'
        return marks.mark_effects(self.effects[ALL], self.shape, rank=marks.MASKED_LM, what=what)


def _needs(given) -> str:
    """The embedded ones are English; without an anchor, an embedding prefers no text."""
    file, label = given['minimal_pairs.file'], given['minimal_pairs.label']
    if file and given['minimal_pairs.anchor']:
        return INPUTS['embedder'].missing(given)
    missing = INPUTS['model' if label else 'masked_lm'].missing(given)
    if missing and not label:
        missing += ', or a classifier and the class of good texts (setting minimal_pairs.label)'
    if missing or file:
        return missing
    if not given.foreign() and given.knows('minimal pairs', lambda: _good(pairs_sample())):
        return ''
    return 'minimal pairs that suit texts and tokenizer (setting minimal_pairs.file)'


@an_input(
    missing=_needs,
    label=lambda given: given.named_by('minimal_pairs.file', 'the example minimal pairs'),
)
def good_and_bad(given) -> Call:
    """Return the minimal pairs of the settings, or the embedded ones."""
    if not given['minimal_pairs.file']:
        return call(pairs_sample)
    names = {name: given[f'minimal_pairs.{name}'] for name in ('good', 'bad', 'phenomenon')}
    names['anchor'] = given['minimal_pairs.anchor'] or None
    return call(read_pairs, given['minimal_pairs.file'], **names, bad_rows=given['data.bad_rows'])


def _good(pairs: Sequence[MinimalPair]) -> list[Example]:
    return [Example(pair.good) for pair in pairs]


def _cost(given) -> float:
    # A masked LM is asked for each wordpiece but [CLS] and [SEP], other models once.
    once = given['minimal_pairs.label'] or given['minimal_pairs.anchor']
    pairs, tokens = given.value('good_and_bad'), given.tokens('good_and_bad', _good)
    pieces = 1 if once else tokens / len(pairs) - 2
    return 2 * pieces * (1 + given.HEAD * given.heads) * tokens


@analysis(
    question='whether the better of two texts is preferred, and by which heads',
    group='What matters',
    report='name',
    settings={
        'file': {
            'path': True,
            'help': 'Minimal pairs of your own (.tsv, .csv or .jsonl), and the names of their '
            "columns; '' is the embedded ones.",
            'default': '',
        },
        'good': {'default': 'good'},
        'bad': {'default': 'bad'},
        'phenomenon': {'default': 'phenomenon'},
        'anchor': {
            'help': 'The column of a third text: an embedding then prefers the text that is closer '
            'to it.',
            'default': '',
        },
        'label': {
            'help': 'The class that good texts have, if a classifier scores them, such as '
            "'acceptable'; '' asks the masked LM.",
            'default': '',
        },
    },
    reads=('minimal_pairs.', 'ablation.baseline'),
    inputs={
        'pretrained': lambda given: given.input(
            'model' if given['minimal_pairs.label'] else 'pretrained'
        ),
        'pairs': 'good_and_bad',
        'label': lambda given: given['minimal_pairs.label'] or None,
        'baseline': 'ablation.baseline',
    },
    cost=_cost,
)
def minimal_pairs(
    pretrained: Models,
    pairs: Sequence[MinimalPair] | None = None,
    *,
    label: str | int | None = None,
    rest_of_word: bool = True,
    baseline: str = 'uniform',
    permutations: int = 0,
    seed: int = 0,
    compute: Compute = Compute(),
) -> MinimalPairs:
    """Score both texts of minimal pairs, with all heads and without each of them.

    Args:
      pretrained: A model with the head of a masked LM, or a classifier of texts; one that says how
        it pools if all pairs have an anchor. Of several, the first is used.
      pairs: The minimal pairs, such as those of `bs.read_pairs`; None takes the embedded ones.
      label: The class of a classifier that good texts should be more likely to be in: its name, or
        its number from 0. Others take none.
      rest_of_word: Whether a masked LM is not shown the rest of a word whose beginning it is asked
        for (see `Masking`). False gives the score of Salazar et al. 2020, True that of Kauf and
        Ivanova 2023.
      baseline: As in `ablation`; the mean of 'mean' is that over all texts of the pairs.
      permutations: The number of permutations for Shapley values, as in `bs.shapley_values`; 0
        leaves them out.
      seed: The seed of resamples, permutations and, for 'resample', of the draw of other texts.
      compute: As in `ablation`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown, the model can score no texts, or a phenomenon has fewer
        than two pairs.
    """
    check_baseline(baseline)
    pretrained = one_model(pretrained)
    pairs, config = pairs_sample() if pairs is None else list(pairs), pretrained.config
    of, anchored = _places(pairs), [bool(pair.anchor) for pair in pairs]
    if any(anchored) and (label is not None or not all(anchored)):
        raise ValueError('Give all pairs an anchor, and no label; or no pair an anchor.')
    label = None if all(anchored) else _class_of(config, label)
    shape = config.num_hidden_layers, config.num_attention_heads
    masks, orders = with_intact(single_heads(config)), np.empty((0, 0), int)
    names, several = [describe(mask) for mask in masks[1:]], len(masks)
    if permutations:
        orders = draw_permutations(shape[0] * shape[1], permutations, seed=seed)
        masks = np.concatenate([masks, coalitions(orders, shape)])
    texts = [
        Example(getattr(pair, side), id=f'{pair.id or row}/{side}', where=pair.where)
        for side in ('good', 'bad')
        for row, pair in enumerate(pairs)
    ]
    how = {'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    if all(anchored):
        anchors = [pair.anchor for pair in pairs] * 2
        both = [(one, each.text_a) for one, each in zip(anchors, texts, strict=True)]
        scores = similarities(pretrained, both, masks, **how).astype(np.float64)
        scored_by = 'the cosine with a third text'
    elif label is None:
        masking = Masking(one_at_a_time=True, rest_of_word=rest_of_word)
        scores = -masked_lm_losses(pretrained, texts, masks, masking=masking, **how).losses
        scored_by = 'pseudo-log-likelihood' + ', without the rest of a word' * rest_of_word
    else:
        logits = sweep_examples(pretrained, texts, masks, **how).logits
        scores = scipy.special.log_softmax(logits.astype(np.float64), axis=-1)[..., label]
        scored_by = f'the log-probability of {config.label_names[label]!r}'
    preference = scores[:, : len(pairs)] - scores[:, len(pairs) :]  # [M, P]
    counted = _counted(pretrained, texts, preference[0] > 0, compute.max_length)
    shapley = {}
    for name, chosen in of.items() if permutations else ():
        right = (preference[several:, chosen] > 0).astype(float)
        found = shapley_of(right, orders, shape)
        shapley[name] = np.stack([found.values, found.errors])
    result = MinimalPairs(
        scored_by=scored_by,
        baseline=baseline,
        shape=shape,
        told={
            name: Told(int(right), len(chosen), *map(int, others))
            for name, chosen in of.items()
            for right, *others in [counted[:, chosen].sum(axis=1)]
        },
        **assess_preference(
            preference[:several],
            of,
            names=names,
            seed=seed,
            unit='cosine' if all(anchored) else 'nats',
        ),
        shapley=shapley,
    )
    return labelled(result)


def _places(pairs: Sequence[MinimalPair]) -> dict[str, Int[np.ndarray, ' p']]:
    """Return the numbers of all pairs, and of those of each phenomenon as they come."""
    check_enough('minimal pairs', pairs)
    named = np.array([pair.phenomenon for pair in pairs], dtype=object)
    of = {name: np.flatnonzero(named == name) for name in dict.fromkeys(named)}
    for name, rows in of.items():
        mend = ' for an interval: leave it out, or give more'
        check_enough(f'pairs of {name!r}', rows, 2, mend)
    return {ALL: np.arange(len(pairs)), **of}


def _class_of(config: BertConfig, label: str | int | None) -> int | None:
    """Return the number of a class; None for a masked LM, which has none."""
    if config.head == MASKED_LM:
        if label is not None:
            raise ValueError(f'{label=} is for classifiers, and this is a masked LM.')
        return None
    names = config.label_names
    check_rules(
        (
            not config.labels_inputs or config.num_labels < 2 or config.multi_label,
            f'The model ({config.summary}) scores no texts: give a masked LM, a classifier of '
            'texts and the label of good ones, or pairs with an anchor for an embedding.',
        ),
        (label is None, f'Give label=, the class of good texts: one of {", ".join(names)}.'),
    )
    check_name('label', label, names if isinstance(label, str) else range(len(names)))
    return names.index(label) if isinstance(label, str) else label


def _counted(
    pretrained: Pretrained, texts: Sequence[Example], right: np.ndarray, max_length: int | None
) -> Shaped[np.ndarray, '4 P']:
    """Return for each pair whether it is right, of unlike lengths, with [UNK], or both alike."""
    encoded = tokenize(pretrained.tokenizer, texts, max_length=max_length)
    lengths, ids = encoded.lengths.reshape(2, -1), encoded.input_ids
    unknown = (encoded.text >= 0) & (ids == pretrained.tokenizer.unk_token_id)
    both = ids.reshape(2, len(right), -1)
    unlike = lengths[0] != lengths[1]
    alike = ~unlike & (both[0] == both[1]).all(axis=1)
    # Rounding could tell apart what is the same.
    return np.stack([right & ~alike, unlike, unknown.any(axis=1).reshape(2, -1).any(axis=0), alike])


def assess_preference(
    preference: Float[np.ndarray, 'M P'],
    of: Mapping[str, Int[np.ndarray, ' p']],
    *,
    names: Sequence[str],
    seed: int,
    unit: str = 'nats',
) -> dict[str, Any]:
    """Return the effects of masks on the preference, and what phenomena share, as in the result.

    The first mask is the intact model. `of` has the places of all pairs, then of each phenomenon.
    """
    outcome = Outcome('the preference', unit, scale=1.0, digits=3)
    how = {'names': names, 'outcome': outcome, 'sample_of': 'pairs', 'seed': seed}
    found, changes = {}, {}
    for name, chosen in of.items():
        intact, *without = preference[:, chosen]
        found[name] = assess_losses(np.stack(without), intact, **how)
        changes[name] = (np.stack(without) - intact).T
    del changes[ALL]
    return {
        'effects': found,
        'reliability': {name: reliability(each, seed=seed) for name, each in changes.items()},
        'shared': {
            (one, other): rank_agreement(changes[one], changes[other], paired=False)
            for one, other in itertools.combinations(changes, 2)
        },
        'agreement': agreement(np.stack([found[name].difference for name in changes])),
    }


def _draw_accuracy(result: MinimalPairs):
    accuracy = 100 * np.array([result.told[name].accuracy for name in result.reliability])
    return plots.points_by_row(
        list(result.reliability), {'told right': tuple(accuracy.T)}, label='% of pairs'
    ).captioned('The share of pairs that are told right, with 95 % intervals. Guessing: half.')


def labelled(found: MinimalPairs) -> MinimalPairs:
    """Return the result with its tables: of phenomena, of heads, and of what phenomena share."""
    unit, names = found.effects[ALL].outcome.unit, list(found.reliability)
    caption = f'Mean preference ({unit}) for the good text without each head; without a name: '
    caption += 'of all pairs. P-values are corrected for all heads, within each phenomenon.'
    heads = effects.frame_of(found.effects, _COLUMNS, caption, 'phenomenon')
    heads['learnt'] = found.told[ALL].p_chance <= LEVEL
    if found.shapley:
        values = 100 * np.stack([*found.shapley.values()], axis=1).reshape(2, -1)
        heads['shapley_points'], heads['shapley_standard_error'] = values
        colours = heads.attrs['colours']
        columns = {**colours.columns, 'shapley_points': ['shapley_standard_error']}
        heads.attrs['colours'] = dataclasses.replace(colours, columns=columns)
    told = [found.told[name] for name in names]
    accuracy, low, high = np.transpose([each.accuracy for each in told])
    _, pairs, *others = zip(*map(dataclasses.astuple, told), strict=True)
    phenomena = table(
        f'The share of pairs that are told right, and the mean preference ({unit}).',
        phenomenon=names,
        pairs=pairs,
        accuracy=accuracy,
        low=low,
        high=high,
        p_holm=holm(np.array([each.p_chance for each in told])),
        preference=[found.effects[name].intact for name in names],
        reliability=[*found.reliability.values()],
        **dict(zip(('lengths_differ', 'unknown', 'alike'), others, strict=True)),
    )
    frames = {'phenomena': phenomena, 'heads': heads}
    if found.shared:
        columns = 'phenomenon_a', 'phenomenon_b', 'rank_correlation', 'low', 'high'
        rows = [
            (*pair, *dataclasses.astuple(each), without_noise(each.rank, *reliable))
            for pair, each in found.shared.items()
            for reliable in [[found.reliability[name] for name in pair]]
        ]
        caption = "Rank correlations of heads' effects on two phenomena, with intervals over "
        caption += 'pairs; and their mean, over phenomena (Fekete and Bjerva 2025).'
        mean = found.agreement.rank, found.agreement.rank_low, found.agreement.rank_high
        columns += 'without_noise', 'mean', 'mean_low', 'mean_high'
        frames['shared'] = framed(columns, [(*row, *mean) for row in rows], caption)
    return found.with_frames(frames)
