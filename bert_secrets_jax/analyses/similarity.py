"""Which heads make two texts alike: cosines of embeddings without each head or layer.

Source: Reimers and Gurevych 2019, section 4: the rank correlation of cosines with people's scores.

Shapes: M masks, L layers, N heads, E pairs.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation import embeddings
from bert_secrets_jax.ablation.embeddings import COSINE, assess_similarities
from bert_secrets_jax.ablation.masks import describe, with_intact
from bert_secrets_jax.analyses.common import disabling
from bert_secrets_jax.analyses.common.disabling import EmbeddingEffects, MaskSets
from bert_secrets_jax.analyses.common.inputs import check_several, check_varied
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough, check_lengths, check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import drawn
from bert_secrets_jax.stats.effects import Effects
from bert_secrets_jax.stats.student import LEVEL

SOURCE = 'cosine similarity, Reimers and Gurevych 2019, section 4'
_WHERE = {
    'both': 'for both texts',
    'one': 'for one text (the mean of either)',
    'first': 'for the first text alone',
    'second': 'for the second text alone',
}
_KIND = 'cosine, '


class Similarity(EmbeddingEffects):
    """The effect of disabling each head and each layer on the cosines of pairs of texts.

    Outcomes are those of `ablation.embeddings.assess_similarities`, and the mean cosine of the
    pairs of each kind.
    """

    title = 'Heads that make texts alike'
    source: ClassVar[str] = SOURCE

    def figures(self):
        found = super().figures()
        return found | drawn(self, heads_kinds=_draw_kinds) if self._kinds else found

    @property
    def _kinds(self) -> dict[str, Effects]:
        """The effects of heads on the pairs of each kind, by its name."""
        heads = self.outcomes.get('heads', {})
        return {k.removeprefix(_KIND): v for k, v in heads.items() if k.startswith(_KIND)}

    def notes(self):
        return [
            f'Heads are disabled {_WHERE[self.sides]}. {disabling.instead(self.baseline)}',
            'Pairs count as independent: texts that stand in several make intervals too narrow.',
        ]

    def head_marks(self):
        scored = embeddings.CORRELATIONS[0] in self.outcomes.get('heads', ())
        return super().head_marks() if scored else []


@analysis(
    question='which heads make two texts alike, and which tell negations apart',
    group='What matters',
    time='1 min',
    reads=('ablation.baseline',),
    inputs={'pretrained': 'embedder', 'baseline': 'ablation.baseline'},
    cost=lambda given: disabling.embedded_cost(given, 'pairs'),
)
def similarity(
    pretrained: Pretrained,
    pairs: Sequence[Text],
    *,
    gold: Sequence[float | int] | np.ndarray | None = None,
    kinds: Sequence[str] | None = None,
    sides: str = 'both',
    masks: MaskSets = ('heads', 'layers'),
    baseline: str = 'uniform',
    seed: int = 0,
    compute: Compute | None = None,
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
      compute: As in `ablation`; None reads texts as long as the model does.

    Raises:
      TypeError: The model is not a `Pretrained`, or texts do not come in pairs.
      ValueError: The model does not say how it pools; an argument is unknown, or does not fit the
        model or the pairs; scores are all alike; or there are fewer than two pairs.
    """
    check_name('sides', sides, embeddings.SIDES[:-1])
    examples = as_examples(pairs)
    labels = [each.label for each in examples if each.label is not None]
    if len(labels) == len(examples):
        both = zip(examples, labels, strict=True)
        named = [each.classes[int(label)] if each.classes else '' for each, label in both]
        if kinds is None and all(named):
            kinds = named
        elif gold is None and not any(named):
            gold = labels
    for name, given in (('gold', gold), ('kinds', kinds)):
        check_lengths(**{name: examples if given is None else given, 'pairs': examples})
    scores = None if gold is None else np.asarray(gold, np.float64)
    if scores is not None:
        broken = np.flatnonzero(~np.isfinite(scores))
        if len(broken):
            raise ValueError(f'The score of {examples[broken[0]].place} is no finite number.')
        check_varied('spearman', scores, 'the pairs')
    of_kinds = {kind: np.array(kinds) == kind for kind in dict.fromkeys(kinds or ())}
    for kind, members in of_kinds.items():
        check_enough(f'pairs of the kind {kind!r}', np.flatnonzero(members), 2, ' for an interval')
    check_several(examples)
    chosen, outcomes = disabling.named_masks(masks, pretrained.config), {}
    how = {'sides': sides, 'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    for name, each in chosen.items():
        cosines = embeddings.similarities(pretrained, examples, with_intact(each), **how)
        about = {'names': [describe(mask) for mask in each], 'seed': seed}
        outcomes[name] = assess_similarities(cosines, gold=scores, **about)
        for kind, members in of_kinds.items():
            found = assess_similarities(cosines[:, members], **about)['cosine']
            outcome = dataclasses.replace(COSINE, name=f'{COSINE.name} of pairs ({kind})')
            outcomes[name][_KIND + kind] = dataclasses.replace(found, outcome=outcome)
    shape = next(iter(chosen.values())).shape[1:]
    found = Similarity(baseline, sides, shape, outcomes)
    return found.with_frames(disabling.outcome_frames(outcomes))


def _draw_kinds(result: Similarity):
    each = result._kinds
    red = min(one.red for one in each.values())
    return plots.head_grids(
        {kind: np.reshape(one.difference, result.shape) for kind, one in each.items()},
        label='change of the mean cosine',
        limits=(red, -red),
        differences=True,
        marked={
            kind: np.reshape(one.corrected <= LEVEL, result.shape) for kind, one in each.items()
        },
    ).captioned(
        'Change of the mean cosine of pairs of each kind without each head. Circles: more than '
        'chance.',
        {kind: plots.Source('heads', 'difference', _KIND + kind) for kind in each},
    )
