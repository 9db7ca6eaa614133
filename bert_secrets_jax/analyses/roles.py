"""Roles of heads, and whether the heads with a role are those that stay (Voita et al. 2019).

Shapes: L layers, N heads, R relations, E examples, T tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common.inputs import TextSettings, encoded_of, in_one_pass
from bert_secrets_jax.analyses.common.tables import (
    Grid,
    Tables,
    Which,
    greatest,
    grids_frame,
    table,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import (
    CONFIDENCE,
    GREATEST_AT_NEXT,
    GREATEST_AT_PREVIOUS,
    Described,
    named,
)
from bert_secrets_jax.measure.statistics import greatest_at
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.call import INPUTS, Call
from bert_secrets_jax.runs.result import Result, framed, given_by, how_many, noted
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.student import LEVEL, reach

SOURCE = 'Voita et al. 2019, sections 5 and 6'
POSITIONAL, SYNTACTIC, RARE = 'positional', 'syntactic', 'rare token'
ROLES = (POSITIONAL, SYNTACTIC, RARE)
RAREST, TWO_RAREST = 'rarest', 'two rarest'
_RAREST = {RAREST: 'the rarest token', TWO_RAREST: 'one of the two rarest tokens'}
# The share of tokens from which on a head is positional, how far a syntactic one is above the best
# offset, and the share from which on it points to the rarest token, as published.
LEAST_POSITIONAL, LEAST_GAIN, LEAST_RARE = 0.9, 0.1, 0.5
_ROUNDS = 10_000
_LONGER = (
    'Heads with a role stay longer than others of their layer in {estimate} {unit} of pruning.'
)


class Roles(Result):
    """The role of each head.

    Attributes:
      tables: The tables of how often the greatest attention of a token is at the previous, the
        next, the rarest, or one of the two rarest tokens; and of confidence.
      chance: The share of the ordinary (not special) tokens of an example that are the rarest, and
        among the two rarest.
      relations: The R relations between words, and the way along each; empty if none were measured.
      gains: [2, R, L, N] How much more often a head finds the other word than the best offset does,
        in the two parts of the treebank.
      stays: [L, N] How long each head is left in pruning, by the name of the order, or in how many
        runs its gate stays open ('gates').
      pruned_finetuned: Whether heads were pruned in fine-tunings of the model with these roles.
    """

    title = 'Roles of heads'

    tables: Tables
    chance: tuple[float, float]
    relations: tuple[str, ...]
    gains: Float[np.ndarray, '2 R L N']
    stays: Mapping[str, Grid]
    pruned_finetuned: bool = True

    @property
    def of_heads(self) -> dict[str, Which]:
        """Whether each head has a role, by the name of the role. It may have several."""
        neighbours = [self.tables[name].mean for name in (GREATEST_AT_PREVIOUS, GREATEST_AT_NEXT)]
        rarest = self.tables[RAREST]
        # In few texts most words are seen once, and are all the rarest: half of the tokens is
        # little. A head must point to them more often than chance, of all heads (Šidák).
        level = 1 - (1 - LEVEL) ** (1 / rarest.mean.size)
        half = reach(max(rarest.count - 1, 1), level) * rarest.standard_error
        beyond = (rarest.mean - half > self.chance[0]) & (rarest.count > 1)
        return {
            POSITIONAL: np.maximum(*neighbours) >= LEAST_POSITIONAL,
            # Without relations, none is above.
            SYNTACTIC: self._gain.max(axis=0, initial=-1) >= LEAST_GAIN,
            RARE: (rarest.mean >= LEAST_RARE) & beyond,
        }

    @property
    def _gain(self) -> Float[np.ndarray, 'R L N']:
        """The gains that hold in both parts of the treebank."""
        return np.nan_to_num(self.gains, nan=-1).min(axis=0)

    @property
    def _any_role(self) -> Which:
        return np.logical_or.reduce([*self.of_heads.values()])

    def _draw_roles(self):
        return plots.head_grids(
            {title: self.tables[name].mean for title, (name, _) in _DRAWN.items()},
            label='share',
            limits=(0.0, 1.0),
            marked={title: self.of_heads[role] for title, (_, role) in _DRAWN.items()},
        ).captioned(
            'How often a token attends most to a neighbour or the rarest token. Circles: heads '
            'that have the role.',
            {title: plots.Source('heads', _MEASURED[name]) for title, (name, _) in _DRAWN.items()},
        )

    def findings(self):
        roles, fields = self.of_heads, {'source': SOURCE}
        found = how_many(
            'heads with a role',
            self._any_role,
            template='{estimate} {unit} {estimate:|has|have} a role: {positional} positional, '
            '{syntactic} syntactic, {rare token} for rare tokens.',
            numbers={name: int(each.sum()) for name, each in roles.items()},
            sample=int(self.tables[CONFIDENCE].count),
            **fields,
        )
        if not self.stays:
            return [found]
        stays = self.labelled['stays'].frame().dropna(subset='p_value')
        if stays.empty:
            return [found]
        longest, p_values = stays[['share_longer', 'p_value']].to_numpy().T
        longer = (longest > 0) & (holm(p_values) <= LEVEL)
        fields |= {'sample': self._any_role.size, 'sample_of': 'heads'}
        name = 'orders of pruning in which heads with a role stay longer'
        return [found, how_many(name, longer, 'orders', template=_LONGER, **fields)]

    def notes(self):
        rarest = self.chance[0]
        few = f'Too few texts to tell which heads point to rare tokens: {rarest:.0%} of the '
        unlike = 'Roles are of the pre-trained model, pruning is of its fine-tunings.'
        no_trees = 'No treebank was measured: which heads are syntactic is not known.'
        sometimes = {
            f'{few}ordinary tokens are the rarest of their text.': rarest > LEAST_RARE,
            unlike: self.stays and self.pruned_finetuned,
            no_trees: not self.relations,
        }
        return [
            'Positional: nine of ten tokens attend most to the one before, or to the one after.',
            'Syntactic: it finds a relation ten points above the best offset, on two sets.',
            'To rare tokens: half of the tokens attend to the rarest one, more than by chance.',
            *noted(sometimes),
        ]


_MEASURED = {
    GREATEST_AT_PREVIOUS: 'greatest_at_previous',
    GREATEST_AT_NEXT: 'greatest_at_next',
    RAREST: 'greatest_at_rarest',
    TWO_RAREST: 'greatest_at_two_rarest',
    CONFIDENCE: 'confidence',
}
_DRAWN = {
    'previous token': (GREATEST_AT_PREVIOUS, POSITIONAL),
    'next token': (GREATEST_AT_NEXT, POSITIONAL),
    'rarest token': (RAREST, RARE),
}


def _results(given) -> list[Call] | None:
    """Return the results that tell of roles and of which heads stay; None without any."""
    known = ('syntax_heads', 'patterns', 'prune', 'gates')
    found = [given.result(each) for each in known if each in given.results]
    if 'syntax_heads' not in given.results and not INPUTS['trees'].missing(given):
        found.append(given.result('syntax_heads'))
    return found or None


@analysis(
    question='positional, syntactic and rare-token heads, and whether they stay',
    time='5 s',
    inputs={'results': _results},
    cost=lambda given: 5 * given.tokens('texts'),
)
def roles(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    results: Sequence[Result] = (),
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Roles:
    """Find out what role each head has, and whether those with a role are left when heads go.

    Args:
      results: Results of the same model from `syntax_heads` (which heads are syntactic), `patterns`
        (whose maps are heterogeneous), `pruning` and `gates` (which heads stay). If the model has
        no classifier, the latter two are of its fine-tunings.
      seed: The seed of random permutations.
      pretrained, texts, settings: As in `special_tokens`.

    Raises:
      ValueError: A result is of a model with other layers or heads.
    """
    encoded, chance = with_rarest(encoded_of(pretrained, texts, settings, annotated=False))
    tables = in_one_pass(pretrained, encoded, role_statistics(), settings, 'Roles')
    finetuned = not pretrained.config.num_labels
    return from_results(tables, chance, results, pruned_finetuned=finetuned, seed=seed)


def role_statistics() -> list[Described]:
    """Return the statistics that `roles` is made from; the texts have rare tokens marked."""
    of_rare = {'unit': 'share of tokens', 'limits': (0.0, 1.0), 'source': SOURCE}
    return [
        *(named(name) for name in (GREATEST_AT_PREVIOUS, GREATEST_AT_NEXT, CONFIDENCE)),
        *(
            Described(name, f'greatest attention at {tokens}', greatest_at(name), **of_rare)
            for name, tokens in _RAREST.items()
        ),
    ]


def with_rarest(encoded: Encoded) -> tuple[Encoded, tuple[float, float]]:
    """Mark the rarest tokens of each example, and return their share of its ordinary tokens.

    Rare is what is seldom in these texts; all tokens that are as rare as the rarest one (or as the
    second) are marked.
    """
    real = np.arange(encoded.input_ids.shape[1]) < encoded.lengths[:, None]
    ordinary = real & ~encoded.special
    seen = np.bincount(encoded.input_ids[ordinary])
    counts = np.where(ordinary, seen[np.minimum(encoded.input_ids, len(seen) - 1)], np.inf)
    least = np.sort(counts, axis=1)
    marks, shares = dict(encoded.marks), []
    for place, name in enumerate(_RAREST):
        bar = least[:, min(place, least.shape[1] - 1)][:, None]
        marks[name] = ordinary & (counts <= bar)
        share = marks[name].sum(axis=1) / np.maximum(ordinary.sum(axis=1), 1)
        shares.append(float(share.mean()))
    return dataclasses.replace(encoded, marks=marks), tuple(shares)


def from_results(
    tables: Tables,
    chance: tuple[float, float],
    results: Sequence[Result],
    *,
    pruned_finetuned: bool,
    seed: int,
) -> Roles:
    """Return the result from the tables of `role_statistics` and what other analyses have found."""
    shape = tables[CONFIDENCE].mean.shape
    of_relations = given_by(results, 'gains of relations')
    relations, gains = of_relations[-1] if of_relations else ((), np.zeros((2, 0, *shape)))
    maps = given_by(results, 'heterogeneous')
    maps_of, heterogeneous = maps[-1] if maps else ('pre-trained', None)
    stays = {order: left for each in given_by(results, 'stays') for order, left in each.items()}
    given = [gains[0, 0]] if relations else []
    given += [each for each in (heterogeneous, *stays.values()) if each is not None]
    for each in given:
        mend = ': give results of the same model'
        check_shape('A result', each, mend, layers=shape[0], heads=shape[1])
    found = Roles(tables, chance, relations, gains, stays, pruned_finetuned=pruned_finetuned)
    return labelled(found, heterogeneous, maps_of, seed=seed)


def compare_within_layers(values: Grid, chosen: Which, *, seed: int) -> tuple[float, float]:
    """Return how far the values of chosen heads are above those of the others of their layers.

    It is a mean weighted by how many there are to compare, with its two-sided p-value by
    permutations within layers; NaN if no layer has both kinds of heads.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    share = chosen.mean(axis=1, keepdims=True)
    weights = (chosen - share).astype(np.float64)
    scale = float((weights**2).sum())
    if not scale:
        return np.nan, np.nan
    return float((weights * centred).sum() / scale), _p_value(centred, weights, seed=seed)


def rank_within_layers(one: Grid, other: Grid, *, seed: int) -> tuple[float, float]:
    """Return a rank correlation of heads within their layers, and its p-value by permutations.

    Heads are ranked over all layers, and the mean rank of each layer is taken off.
    """
    ranks = [scipy.stats.rankdata(each).reshape(one.shape) for each in (one, other)]
    centred = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    scale = np.sqrt(np.prod([(each**2).sum() for each in centred]))
    if not scale:
        return np.nan, np.nan
    return float((centred[0] * centred[1]).sum() / scale), _p_value(*centred, seed=seed)


def _p_value(one: np.ndarray, other: np.ndarray, *, seed: int) -> float:
    """Return the share of permutations within rows under which the product is as large."""
    rng = np.random.default_rng(seed)
    permuted = rng.permuted(np.broadcast_to(one, (_ROUNDS, *one.shape)), axis=2)
    products = np.abs(np.einsum('RLN,LN->R', permuted, other))
    # A product that is smaller by rounding alone counts as equal.
    larger = (products >= abs((one * other).sum()) - 1e-9).sum()
    return float((1 + larger) / (1 + _ROUNDS))


def labelled(
    found: Roles, maps: Grid | None = None, maps_of: str = 'pre-trained', *, seed: int = 0
) -> Roles:
    """Return the result with its tables: of heads, of roles, and of which heads stay."""
    roles, unknown = found.of_heads, np.full(found._any_role.shape, np.nan)
    best = np.full(unknown.shape, '–'), unknown
    if found.relations:
        best = greatest(found.relations, 100 * found._gain)
    joined = np.vectorize(lambda *each: ', '.join(filter(None, each)) or '–', otypes=[str])
    columns = {
        'roles': joined(*(np.where(those, role, '') for role, those in roles.items())),
        **{column: found.tables[name].mean for name, column in _MEASURED.items()},
        'relation': best[0],
        'points_above_offset': best[1],
        'heterogeneous_share': unknown if maps is None else maps,
        **{f'stays_{name}': each for name, each in found.stays.items()},
    }
    names = [[head_name(*place) for place in np.argwhere(roles[role])] for role in ROLES]
    rarest, two_rarest = found.chance
    frames = {
        'heads': grids_frame(
            columns, 'Each head: its roles, greatest attention, best relation, and stay in pruning.'
        ),
        'roles': table(
            f'The heads that have each role. Of the ordinary tokens, {rarest:.1%} are the '
            f'rarest, and {two_rarest:.1%} are one of the two rarest.',
            role=ROLES,
            heads=[len(each) for each in names],
            names=[', '.join(each) or '–' for each in names],
        ),
    }
    if found.stays:
        role = found._any_role
        other = np.zeros(role.shape) if maps is None else maps
        frames['stays'] = framed(
            ('order', 'share_longer', 'p_value', 'rank_with_heterogeneous', 'p_of_rank'),
            [
                (
                    order,
                    *compare_within_layers(each, role, seed=seed),
                    *rank_within_layers(each, other, seed=seed),
                )
                for order, each in found.stays.items()
            ],
            'How much longer heads with a role stay in pruning than others of their layer, and the '
            f'rank correlation with heterogeneous maps ({maps_of} model).',
        )
    return found.with_frames(frames)
