"""Which heads do alike: divergences between all heads, and a plane of them (Clark et al. 2019)."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common.inputs import TextSettings
from bert_secrets_jax.analyses.common.marks import MOSTLY
from bert_secrets_jax.analyses.common.tables import LEVEL, Tables, grids_frame, table, worded
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.extras import require
from bert_secrets_jax.measure.catalogue import ENTROPY, UNIFORM, Described, named
from bert_secrets_jax.measure.statistics import head_divergences
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Result, measured

SOURCE = 'Clark et al. 2019, section 6, Figure 6'
DIVERGENCE = 'divergence between heads'
# The statistics by which a head is said to do mostly one thing, which is as much as in the atlas;
# the published code asks for more than 0.6 of the last three.
BEHAVIOURS = ('next token', 'previous token', '[CLS]', 'all [SEP]', 'period or comma')
BROAD = 'broad'
OTHER = 'none of these'
# "Broad" there is an entropy above 3.8 nats, of 4.85 that even attention to 128 tokens has.
_BROAD_SHARE = 3.8 / np.log(128)
# Placements of the heads that are tried, and steps of each, as published.
_STARTS, _STEPS = 5, 1000


def cluster_statistics() -> list[Described]:
    """Return the statistics that `clusters` is made from."""
    return [
        Described(
            DIVERGENCE,
            'Jensen-Shannon divergence from each head',
            head_divergences,
            unit='nats',
            limits=(0.0, float(np.log(2))),
            source=SOURCE,
        ),
        *map(named, (UNIFORM, *BEHAVIOURS, ENTROPY)),
    ]


@dataclasses.dataclass(frozen=True)
class Layers:
    """Whether heads of one layer are closer to each other than heads of different layers.

    Attributes:
      within, between: The mean divergence of two heads of one layer, and of different layers.
      p_value: The share of random assignments of heads to layers in which the difference is at
        least as great (permutation test, one-sided).
    """

    within: float
    between: float
    p_value: float


class Clusters(Result):
    """The divergences between all heads, and what follows from them.

    Attributes:
      tables: The tables of the statistics, by their names.
      positions: The place of each head on a plane [H, 2], where distances are about the divergences
        (metric multidimensional scaling).
      stress: How far distances on the plane are from the divergences, 0 if they are equal: the root
        of the sum of squared differences over that of squared distances (Kruskal's stress-1).
      layers: The comparison of heads of one layer with others.
    """

    title = 'Which heads behave alike'

    tables: Tables
    positions: Float[np.ndarray, 'H 2']
    stress: float
    layers: Layers

    @property
    def divergences(self) -> Float[np.ndarray, 'H H']:
        """The mean divergence of each pair of heads per token, in nats; layer by layer."""
        return _symmetric(self.tables[DIVERGENCE].mean)

    @property
    def behaviours(self) -> Sequence[str]:
        """The main behaviour of each head [H]: one of `BEHAVIOURS`, 'broad' or 'none of these'."""
        found = np.full(len(self.positions), OTHER, object)
        entropy = self.tables[ENTROPY].mean / self.tables[UNIFORM].mean
        found[entropy.ravel() > _BROAD_SHARE] = BROAD
        for name in BEHAVIOURS:
            found[self.tables[name].mean.ravel() >= MOSTLY] = name
        return found.tolist()

    @property
    def names(self) -> Sequence[str]:
        """The names of the heads [H], such as 'L1-H2'."""
        return [head_name(*head) for head in np.ndindex(self.tables[DIVERGENCE].mean.shape[:2])]

    def _draw_clusters(self):
        return plots.planes(
            self.positions.reshape(*self.tables[DIVERGENCE].mean.shape[:2], 2),
            kinds=self.behaviours,
            order=(*BEHAVIOURS, BROAD, OTHER),
        ).captioned(
            f'Heads that behave alike are close. Colours: what gets {MOSTLY:.0%} of the attention '
            f'or more ({SOURCE}).'
        )

    def _say_layers(self):
        layers = self.layers
        of_layers = measured(
            'heads of different layers less heads of one layer',
            layers.between - layers.within,
            unit='nats',
            sample=len(self.positions),
            sample_of='heads',
            p=layers.p_value,
            source=SOURCE,
            template='Heads of one layer are {verdict} than heads of different layers '
            '({within:.2f} apart against {between:.2f}).',
            verdict='more alike' if layers.p_value <= LEVEL else 'not clearly more alike',
            numbers=dataclasses.asdict(layers),
        )
        # A single layer, or single heads of layers, leave nothing to compare.
        return of_layers if np.isfinite(of_layers.estimate) else None

    def _say_nearest(self):
        nearest = self.labelled['nearest'].frame().iloc[0]
        return measured(
            'most similar heads',
            nearest.divergence,
            unit='nats',
            where=nearest.heads,
            sample=int(self.tables[DIVERGENCE].count),
            sample_of='tokens',
            source=SOURCE,
            template='{where} are most alike: {estimate:.2g} apart.',
        )


@analysis(
    question='which heads behave alike, and whether those of one layer do',
    time='5 s',
    section='cluster',
    packages=('sklearn',),
    wants=lambda given: cluster_statistics(),
    cost=lambda given: 2 * given.tokens('texts'),
)
def clusters(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Clusters:
    """Compare all heads with all heads, and lay them out on a plane.

    Args:
      pretrained: The model, with at least three heads.
      texts: The texts that the model reads.
      seed: The seed of the placements on the plane, and of the permutation test.
      settings: As in `special_tokens`.

    Raises:
      ValueError: The model has fewer than three heads.
    """
    require('sklearn')
    return from_tables(settings.tables(pretrained, texts, cluster_statistics()), seed=seed)


def from_tables(tables: Tables, *, seed: int) -> Clusters:
    """Return the result from the tables of `cluster_statistics`."""
    # Loaded where it is used, since it takes a second.
    from sklearn.manifold import MDS

    means = tables[DIVERGENCE].mean
    divergences = _symmetric(means)
    check_enough('heads', divergences, 3, ' to be compared')
    scaling = MDS(
        metric='precomputed',
        n_init=_STARTS,
        max_iter=_STEPS,
        init='random',
        random_state=seed,
        normalized_stress=False,  # pyright: ignore[reportArgumentType]
    )
    positions = np.asarray(scaling.fit_transform(divergences))
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    stress = np.sqrt(((apart - divergences) ** 2).sum() / (apart**2).sum())
    layers = compare_layers(divergences, heads=means.shape[1], seed=seed)
    return _labelled(Clusters(tables, positions, float(stress), layers))


def compare_layers(
    divergences: Float[np.ndarray, 'H H'], *, heads: int, seed: int, rounds: int = 10_000
) -> Layers:
    """Test whether heads of a layer, of which each has so many, are closer than other heads."""
    of_layer = np.arange(len(divergences)) // heads
    first, second = np.triu_indices(len(divergences), 1)
    values = divergences[first, second]

    def means(of_layer: np.ndarray) -> list[float]:
        same = of_layer[first] == of_layer[second]
        within, between = (values[each] for each in (same, ~same))
        return [float(each.mean()) if len(each) else np.nan for each in (within, between)]

    within, between = means(of_layer)
    rng = np.random.default_rng(seed)
    drawn = np.array([means(rng.permutation(of_layer)) for _ in range(rounds)])
    # Without both kinds of pairs, no assignment has a smaller difference.
    smaller = (np.diff(drawn) < between - within - 1e-12).sum()
    return Layers(within, between, p_value=(1 + rounds - int(smaller)) / (1 + rounds))


def _symmetric(means: np.ndarray) -> Float[np.ndarray, 'H H']:
    """Return the divergences of all pairs; rounding makes the two of a pair differ a little."""
    matrix = means.reshape(-1, means.shape[-1]).astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 0)
    return matrix


def _labelled(found: Clusters) -> Clusters:
    """Return the result with its tables: of heads, of the nearest ones, and of all pairs."""
    divergences, names = found.divergences, np.array(found.names)
    apart = divergences + np.diag(np.full(len(names), np.inf))
    heads = {
        **dict(zip('xy', found.positions.T, strict=True)),
        'mostly': found.behaviours,
        'nearest_head': names[apart.argmin(axis=1)],
        'divergence_from_it': apart.min(axis=1),
    }
    shape = found.tables[DIVERGENCE].mean.shape[:2]
    first, second = pairs = np.triu_indices(len(names), 1)
    every = {'first': names[first], 'second': names[second], 'divergence': divergences[pairs]}
    closest = np.argsort(every['divergence'], kind='stable')[:10]
    return found.with_frames(
        {
            'heads': grids_frame(
                {name: np.reshape(each, shape) for name, each in heads.items()},
                f'The place of each head in the figure (stress {found.stress:.2f}; 0 if distances '
                'are the divergences).',
                shown=('divergence_from_it', 'mostly'),
            ),
            'nearest': table(
                'The ten most similar pairs (0: equal maps; 0.69: no token shared).',
                heads=worded('{} and {}', names[first], names[second])[closest],
                divergence=every['divergence'][closest],
            ),
            'divergences': table('The divergence of every pair of heads.', **every),
        }
    )
