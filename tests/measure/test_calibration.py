"""Error rates and power of the comparison of links with places, in simulated worlds."""

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.measure.places import CLASSES, ELSEWHERE, KINDS, MOVED, POSITIONS
from tests.measure.worlds import (
    absolute,
    compared,
    early,
    head,
    places_of,
    relative,
    texts_with_links,
    word_class,
)

# Three heads of each, of one model.
PREFERENCES = {
    'relative': (relative,),
    'absolute': (absolute,),
    'mixed': (relative, early),
    'word class': (word_class,),
    'all': (relative, absolute, word_class),
}
HEADS = 3
TEXTS, NOISES = 20, 10


def above(places, maps, seed):
    """Whether each head [N] is above the places of each kind."""
    return {kind: compared(each, maps, seed).above[0] for kind, each in places.items()}


@pytest.fixture(scope='module')
def corpora():
    """Texts with links and places, each for several draws of heads."""
    found = []
    for seed in range(TEXTS):
        rng = np.random.default_rng(seed)
        encoded, links = texts_with_links(rng, 160, 16, 44)
        found.append((rng, encoded, links, places_of(encoded, links, draws=25, seed=seed)))
    return found


@pytest.mark.slow
def test_heads_of_preferences_alone_are_above_all_places_in_few_corpora(corpora):
    """The error rate over all heads of a model; each kind alone is fooled by some preference."""
    wrong = {name: dict.fromkeys(KINDS, 0) for name in PREFERENCES}
    above_all = 0
    for rng, encoded, _, places in corpora:
        for noise in range(NOISES):
            maps = np.stack(
                [
                    head(rng, encoded, *preferences)
                    for preferences in PREFERENCES.values()
                    for _ in range(HEADS)
                ],
                axis=1,
            )
            found = above(places, maps, noise)
            above_all += np.all(list(found.values()), axis=0).any()
            for kind, heads in found.items():
                for name, of_name in zip(PREFERENCES, heads.reshape(-1, HEADS), strict=True):
                    wrong[name][kind] += of_name.any()
    count = TEXTS * NOISES
    rates = {name: {kind: n / count for kind, n in each.items()} for name, each in wrong.items()}
    assert above_all / count <= 0.07
    # A preference that a kind holds fixed does not fool it.
    for kind, names in ((POSITIONS, ('relative', 'absolute', 'mixed')), (CLASSES, PREFERENCES)):
        for name in names:
            assert rates[name][kind] <= 0.07, (kind, name)
    # One that it does not hold does, or the conjunction would not be needed.
    assert rates['relative'][ELSEWHERE] > 0.5
    assert rates['mixed'][MOVED] > 0.15
    assert rates['word class'][POSITIONS] > 0.5


@pytest.mark.slow
def test_a_head_that_follows_links_is_found(corpora):
    found = []
    for rng, encoded, links, places in corpora:
        maps = [head(rng, encoded, relative, absolute) for _ in range(14)]
        maps.append(head(rng, encoded, relative, absolute, links=links, strength=1.5))
        of_kind = above(places, np.stack(maps, axis=1), 0)
        found.append(np.all(list(of_kind.values()), axis=0)[-1])
    assert np.mean(found) >= 0.7


def test_noise_alone_has_p_values_as_it_should():
    """Without any preference, at most 5 % of the heads have p <= 0.05 by each kind.

    They are fewer, since attention is skewed: a few large values of the links raise the error of
    their mean along with it.
    """
    rng = np.random.default_rng(7)
    encoded, links = texts_with_links(rng, 120, 8, 16)
    maps = np.stack([head(rng, encoded) for _ in range(300)], axis=1)
    for kind, places in places_of(encoded, links, draws=30, seed=0).items():
        low = int((compared(places, maps, 0).p <= 0.05).sum())
        # The scores of one corpus share its texts, so the heads are not quite independent.
        more = scipy.stats.binomtest(low, 300, 0.05, alternative='greater')
        assert more.pvalue > 0.001 and low > 0, (kind, low)
