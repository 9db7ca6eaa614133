"""Which heads make two texts alike: cosines of embeddings without each head or layer.

Source: Reimers and Gurevych 2019, section 4: the rank correlation of cosines with people's scores.

Shapes: M masks, L layers, N heads, E pairs.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.effects import LEVEL, Effects, Outcome
from bert_secrets_jax.ablation.masks import describe, with_intact
from bert_secrets_jax.ablation.similarity import (
    CORRELATIONS,
    SIDES,
    assess_similarities,
    similarities,
)
from bert_secrets_jax.analyses import effects, marks
from bert_secrets_jax.analyses.ablation import instead, named_masks
from bert_secrets_jax.analyses.models import check_varied
from bert_secrets_jax.brief import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.model.weights import Pretrained, check_pretrained
from bert_secrets_jax.runs.result import Finding, Result, Subject, drawn

SOURCE = 'cosine similarity, Reimers and Gurevych 2019, section 4'
_WHERE = {
    'both': 'for both texts',
    'one': 'for one text (the mean of either)',
    'first': 'for the first text alone',
    'second': 'for the second text alone',
}
_COLUMNS = {
    'cosine': 'value',
    **effects.INTERVAL,
    'p_value': 'p_value',
    'p_max_t': 'corrected',
    'detectable': 'detectable',
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Similarity(Result):
    """The effect of disabling each head and each layer on the cosines of pairs of texts.

    Attributes:
      baseline, sides: As in `similarity`.
      shape: The numbers of layers and heads.
      outcomes: By the name of the set of masks, the effects by outcome, as
        `ablation.similarity.assess_similarities` returns them.
      kinds: By the name of the set, the effects on the mean cosine of the pairs of each kind.
    """

    subject: Subject
    baseline: str
    sides: str
    shape: tuple[int, int]
    outcomes: Mapping[str, Mapping[str, Effects]]
    kinds: Mapping[str, Mapping[str, Effects]]

    title: ClassVar[str] = 'Heads that make texts alike'

    def frames(self):
        frames = {}
        for name, outcomes in self.outcomes.items():
            frames[name] = effects.frame_of_outcomes(outcomes, name)
            if kinds := self.kinds[name]:
                without = effects.WITHOUT.get(name, 'each set')
                caption = f'Mean cosine of pairs of each kind without {without}, and its change.'
                frames[f'{name}_kinds'] = effects.frame_of(kinds, _COLUMNS, caption, 'kind')
        return frames

    def figures(self):
        drawings = {
            name: functools.partial(draw_leading, name=name)
            for name in self.outcomes
            if name in effects.WITHOUT
        }
        kinds = {'heads_kinds': _draw_kinds} if self.kinds.get('heads') else {}
        return drawn(self, **drawings, **kinds)

    def findings(self):
        firsts = (next(iter(each.values())) for each in (self.outcomes, self.kinds))
        found = intact_findings([each for first in firsts for each in first.values()], SOURCE)
        for name, outcomes in self.outcomes.items():
            for outcome, each in outcomes.items():
                scored = outcome in CORRELATIONS
                label = f'{name}, {outcome}'
                found += effects.findings_of(each, name, source=SOURCE, name=label, extremes=scored)
                if not scored:
                    found += _extremes(each, label)
            for kind, each in self.kinds[name].items():
                label = f'{name}, {kind}'
                found.append(effects.count_of(each, name, source=SOURCE, name=label))
        return found

    def notes(self):
        return [
            f'Heads are disabled {_WHERE[self.sides]}. {instead(self.baseline)}',
            'Pairs count as independent: texts that stand in several make intervals too narrow.',
        ]

    def head_notes(self):
        return effect_notes(self.outcomes, self.shape)

    def head_marks(self):
        of_heads = self.outcomes.get('heads', {})
        if CORRELATIONS[0] not in of_heads:
            return []
        leading = of_heads[CORRELATIONS[0]]
        return marks.mark_effects(leading, self.shape, rank=marks.SIMILARITY)


def similarity(
    pretrained: Pretrained,
    pairs: Sequence[Text],
    *,
    gold: Sequence[float | int] | np.ndarray | None = None,
    kinds: Sequence[str] | None = None,
    sides: str = 'both',
    masks: str | Sequence[str] | Mapping[str, np.ndarray] = ('heads', 'layers'),
    baseline: str = 'uniform',
    seed: int = 0,
    compute: Compute = Compute(),
    subject: Subject | None = None,
) -> Similarity:
    """Disable heads and layers one at a time, and measure how the cosines of pairs change.

    No labels are needed. A head takes about half a pass over the texts (see `bs.similarities`).

    Args:
      pretrained: A model that says how it pools, such as one of sentence-transformers, or what
        `bs.with_pooling` returns.
      pairs: Pairs of strings, or `Example`s of two texts, such as `bs.similarity_sample()`.
      gold: [E] A score of each pair, such as those of STS-B. None takes the labels of the
        examples, if these are numbers without names of classes.
      kinds: [E] The name of the kind of each pair, at least two of each. None takes the classes of
        the examples, if they have any.
      sides: The texts for which heads are disabled: 'both', 'first', 'second', or 'one', the mean
        of the last two.
      masks, baseline: As in `ablation`; the mean of 'mean' is that over the texts.
      seed: The seed of the bootstrap and, for 'resample', of the draw of other texts.
      compute, subject: As in `ablation`; texts are cut as the model asks for, or shorter.

    Raises:
      TypeError: The model is not a `Pretrained`, or texts do not come in pairs.
      ValueError: The model does not say how it pools; an argument is unknown, or does not fit the
        model or the pairs; scores are all alike; or there are fewer than two pairs.
    """
    check_pretrained(pretrained)
    check_name('sides', sides, SIDES[:-1])
    examples = as_examples(pairs)
    labels = [each.label for each in examples if each.label is not None]
    if len(labels) == len(examples):
        if kinds is None and all(each.classes for each in examples):
            both = zip(examples, labels, strict=True)
            kinds = [each.classes[int(label)] for each, label in both]
        elif gold is None and not any(each.classes for each in examples):
            gold = labels
    scores = None if gold is None else np.asarray(gold, np.float64)
    for name, given in (('gold', gold), ('kinds', kinds)):
        if given is not None and len(given) != len(examples):
            raise ValueError(f'There are {len(given)} {name} for {len(examples)} pairs.')
    if scores is not None:
        check_varied('spearman', scores, 'the pairs')
    of_kinds = {kind: np.array(kinds) == kind for kind in dict.fromkeys(kinds or ())}
    for kind, members in of_kinds.items():
        if members.sum() < 2:
            raise ValueError(f'An interval needs two pairs of a kind; of {kind!r} there is one.')
    chosen = named_masks(masks, pretrained.config)
    outcomes, by_kind = {}, {}
    how = {'sides': sides, 'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    for name, each in chosen.items():
        cosines = similarities(pretrained, examples, with_intact(each), **how)
        names = [describe(mask) for mask in each]
        outcomes[name] = assess_similarities(cosines, names=names, gold=scores, seed=seed)
        by_kind[name] = {
            kind: dataclasses.replace(effect, outcome=_of_kind(effect.outcome, kind))
            for kind, members in of_kinds.items()
            for effect in [
                assess_similarities(cosines[:, members], names=names, seed=seed)['cosine']
            ]
        }
    shape = next(iter(chosen.values())).shape[1:]
    return Similarity(subject or Subject(), baseline, sides, shape, outcomes, by_kind)


def _of_kind(outcome: Outcome, kind: str) -> Outcome:
    return dataclasses.replace(outcome, name=f'{outcome.name} of pairs ({kind})')


def _extremes(each: Effects, label: str) -> Iterator[Finding]:
    """Yield the greatest change in either direction; sizes have one."""
    up = 'moved most' if each.outcome.counts_from else 'raised most'
    for which, index in (
        ('lowered most', each.difference.argmin()),
        (up, each.difference.argmax()),
    ):
        if each.difference[index] * (-1 if which == 'lowered most' else 1) > 0:
            name = f'{label}: {which} without it'
            yield effects.effect_of(each, int(index), name=name, source=SOURCE)


def intact_findings(each: Iterable[Effects], source: str) -> list[Finding]:
    """Return the outcomes of the intact model, where they are not 0 by their definition."""
    return [
        effects.intact_of(one, name=f'{effects.title_of(one)} with all heads', source=source)
        for one in each
        if not one.outcome.counts_from
    ]


def effect_notes(
    outcomes: Mapping[str, Mapping[str, Effects]], shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Return the effect of each head on every outcome in words [L, N], if heads were disabled."""
    return {
        f'{effects.title_of(each)} without it': effects.notes_of(each, shape)
        for each in outcomes.get('heads', {}).values()
    }


def draw_leading(result: Any, name: str) -> plots.Figure:
    """Draw the effects on the first of a result's `outcomes`."""
    outcome, leading = next(iter(result.outcomes[name].items()))
    return effects.draw_effects(
        name,
        leading,
        result.shape,
        f'Change of {effects.title_of(leading)} without {effects.WITHOUT[name]}.',
        plots.Source(name, 'difference', outcome, times=leading.outcome.scale),
    )


def _draw_kinds(result: Similarity):
    kinds = result.kinds['heads']

    def grids(values: str) -> dict[str, np.ndarray]:
        return {
            kind: np.reshape(getattr(each, values), result.shape) for kind, each in kinds.items()
        }

    return plots.head_grids(
        grids('difference'),
        label='change of the mean cosine',
        differences=True,
        marked={kind: each <= LEVEL for kind, each in grids('corrected').items()},
    ).captioned(
        'Change of the mean cosine of pairs of each kind without each head. Circles: more than '
        'chance.',
        {kind: plots.Source('heads_kinds', 'difference', kind) for kind in kinds},
    )
