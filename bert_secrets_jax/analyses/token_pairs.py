"""Which pairs of tokens make two texts similar, compared with what deleting them does.

Shapes: P pairs of texts, T and S tokens of the two texts of a pair.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.integrated import STEPS, Steps
from bert_secrets_jax.contributions.token_pairs import PairedTokens, paired_layer, paired_tokens
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.ranges import CountOrZero
from bert_secrets_jax.runs.result import Result, framed, measured
from bert_secrets_jax.stats.scores import quietly
from bert_secrets_jax.stats.student import mean_interval

SOURCE = 'Moeller et al. 2024, section 2'
# Contributions that miss the similarity by more than this are not its parts.
MOST_ERROR = 0.01
# In shorter texts there is nothing to rank.
_FEWEST = 3
_BOTH = 'interaction by deletion'
_ABOUT = {'sample_of': 'pairs of texts', 'source': SOURCE}
# The means over pairs of texts, and their sentences.
_MEANS = {
    f'agreement with the {_BOTH}': 'Contributions rank pairs of tokens as deletion does by '
    '{estimate:.2f}.',
    'contribution of two tokens alike, less that of others': 'Two tokens alike add {estimate:.2g} '
    'more to the {unit} than others do.',
}


class TokenPairs(Result):
    """The contributions of pairs of tokens to similarities, and what deleting them does.

    Attributes:
      pairs: The pairs of texts.
      layer: The number of layers below the hidden states that are paired.
      similarity: 'cosine' or 'dot'.
    """

    title = 'Which tokens make two texts similar'

    pairs: tuple[PairedTokens, ...]
    layer: int
    similarity: str

    @functools.cached_property
    def measures(self) -> Mapping[str, Float[np.ndarray, ' P']]:
        """By name, a number of each pair of texts; NaN where it does not apply."""
        of_pairs = list(map(_measures, self.pairs))
        return {name: np.array([each[name] for each in of_pairs]) for name in of_pairs[0]}

    def _draw_token_pairs(self):
        pair = self.pairs[0]
        matrices = {'contribution': pair.contributions, _BOTH: pair.interactions}
        return plots.interaction_matrix(
            matrices, pair.tokens[0], columns=pair.tokens[1], label=self.similarity
        ).captioned(
            'The first pair of texts: one down, the other across. Right: what deleting two tokens '
            'does beyond deleting each.'
        )

    def _say_warning(self):
        error = np.abs(self.measures['error'])
        worst = error / np.maximum(np.abs(self.measures['similarity']), 1)
        if not (worst > MOST_ERROR).any():
            return None
        return measured(
            'contributions do not sum to the similarity',
            error[worst.argmax()],
            unit=self.similarity,
            sample=len(worst),
            warning=True,
            template='Contributions miss a similarity by {estimate:.2g}: take more steps, '
            'or a later layer than {layer}.',
            layer=self.layer,
            **_ABOUT,
        )

    def _say_means(self):
        values, found = self.measures, []
        agreement = values['agreement'], "Spearman's rank correlation"
        alike = values['same_token'] - values['other_tokens'], self.similarity
        for (name, template), (each, unit) in zip(_MEANS.items(), (agreement, alike), strict=True):
            known = each[~np.isnan(each)]
            if len(known):
                said = {'unit': unit, 'sample': len(known), 'null': 0.0, 'template': template}
                found.append(measured(name, np.array(mean_interval(known)), **said, **_ABOUT))
        return found

    def notes(self):
        return [
            'Without some tokens, a text may be unlike any that the model has seen.',
            'The reference has [PAD] for all tokens but special ones. Contributions are about what '
            'texts have beyond it.',
            'Deep states hold the meaning of their neighbours, too.',
        ]


def _measures(pair: PairedTokens) -> dict[str, float]:
    inside = np.outer(~pair.special[0], ~pair.special[1])
    contributions, interactions = pair.contributions[inside], pair.interactions[inside]
    agreement = np.nan
    if min(int((~each).sum()) for each in pair.special) >= _FEWEST:
        agreement = paper.spearman(contributions, interactions)
    alike = np.equal.outer(*(np.array(each, object) for each in pair.tokens))[inside].astype(bool)
    return {
        'similarity': pair.similarity,
        'reference': pair.reference,
        'contributions': float(pair.contributions.sum()),
        'error': pair.error,
        'special_tokens': float(pair.contributions[~inside].sum()),
        'same_token': float(quietly(np.mean, contributions[alike])),
        'other_tokens': float(quietly(np.mean, contributions[~alike])),
        'agreement': agreement,
    }


def _cost(given) -> float:
    tokens, share = given.tokens('pairs'), given.share('pairs', given['token_pairs.max_examples'])
    # Each token once for each step, through the layers above, and once deleted.
    steps = 2 * min(2 / given.layers, 1) * given['token_pairs.steps']
    return share * tokens / len(given.value('pairs')) * (1 + steps) * tokens


@analysis(
    question='which pairs of tokens make two texts similar, compared with deleting them',
    group='What matters',
    report='name',
    settings={
        'max_examples': {
            'help': 'The tokens of so many of the pairs of texts are paired; 0 is all. On a '
            'CPU, a pair takes seconds.',
            'default': 10,
            'range': [0, 10_000_000],
            'smoke': 2,
        },
        'steps': {
            'help': 'Points on the path of integrated Jacobians.',
            'default': 32,
            'range': [1, 10_000],
            'smoke': 4,
        },
    },
    inputs={'pretrained': 'embedder', 'texts': 'pairs'},
    cost=_cost,
)
def token_pairs(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    layer: int | None = None,
    steps: Steps = STEPS,
    similarity: str = 'cosine',
    pooling: str | Pooling | None = None,
    max_examples: CountOrZero = 0,
    shown: CountOrZero = 5,
    compute: Compute | None = None,
) -> TokenPairs:
    """Say which pairs of tokens make texts similar, and compare that with deleting them.

    Args:
      pretrained: An encoder of texts.
      texts: Pairs of texts: pairs of strings, or `Example`s.
      layer, steps, similarity: As in `bs.paired_tokens`.
      pooling, compute: As in `bs.embed`.
      max_examples: The number of pairs, the first ones, that are looked at; 0 is all. On a CPU, a
        pair takes seconds.
      shown: The number of pairs, the first ones, whose tokens are in a frame.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: An argument is unknown or out of range, there are no pairs, or the model has lost
        heads or does not say how it pools.
    """
    examples = as_examples(texts)[: max_examples or None]
    pairs = [(each.text_a, each.text_b) for each in examples if each.text_b is not None]
    if len(pairs) < max(len(examples), 1):
        raise ValueError('Similarities are of pairs of texts, such as [(one, other)].')
    how = {'layer': layer, 'steps': steps, 'similarity': similarity, 'pooling': pooling}
    found = tuple(paired_tokens(pretrained, pairs, **how, compute=compute))
    result = TokenPairs(found, paired_layer(pretrained, layer), similarity)
    return labelled(result, shown)


def labelled(found: TokenPairs, shown: int) -> TokenPairs:
    """Return the result with its tables: pairs of texts, and pairs of tokens of the first ones."""
    tokens = [
        (
            number, one + 1, pair.tokens[0][one], other + 1, pair.tokens[1][other],
            *(float(each[one, other]) for each in grids),
        )
        for number, pair in enumerate(found.pairs[:shown], 1)
        for grids in [np.broadcast_arrays(
            pair.contributions, pair.interactions, pair.without_first[:, None],
            pair.without_second, pair.without_both,
        )]
        for one, other in np.ndindex(pair.contributions.shape)
    ]  # fmt: skip
    return found.with_frames({
        'texts': table(
            'Each pair of texts: contributions and reference sum to the similarity, up to the '
            'error. Agreement is a rank correlation.',
            pair=np.arange(1, len(found.pairs) + 1),
            **found.measures,
        ),
        'tokens': framed(
            (
                'pair', 'place_a', 'token_a', 'place_b', 'token_b', 'contribution',
                'interaction', 'without_a', 'without_b', 'without_both',
            ),
            tokens,
            'Pairs of tokens: the contribution, and the similarity without them. Interaction: '
            'what deleting both does beyond deleting each.',
        ),
    })  # fmt: skip
