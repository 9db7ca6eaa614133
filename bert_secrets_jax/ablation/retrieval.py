"""How well the documents that answer a query are ranked, under every mask of heads.

Documents are ranked by the cosine of their embedding and that of the query. All scores follow from
the ranks of relevant documents, so that the others come in blocks and are not kept.

Shapes: Q queries, P pairs of a query and a document that is relevant to it, M masks, L layers, N
heads.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Real

from bert_secrets_jax.ablation.masks import GivenMasks
from bert_secrets_jax.ablation.outcomes import assess_changes
from bert_secrets_jax.ablation.similarity import embedder_of, in_blocks
from bert_secrets_jax.brief import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.stats.effects import MARGIN, Effects, Outcome
from bert_secrets_jax.stats.student import LEVEL

SIDES = ('both', 'queries')
# Ranks up to this count for nDCG and recall.
_CUT = 10
# Cosines that differ by less are equal: embeddings are float32.
_EQUAL = 1e-6


def ranks_of_relevant(
    pretrained: Pretrained,
    queries: Sequence[str],
    documents: Sequence[str],
    relevant: Int[np.ndarray, 'P 2'],
    masks: GivenMasks,
    *,
    sides: str = 'both',
    baseline: str = 'uniform',
    prompts: tuple[str | None, str | None] = (None, None),
    donor_seed: int = 0,
    compute: Compute | None = None,
) -> Int[np.ndarray, 'M P']:
    """Return the rank, from 1, of each relevant document under every mask.

    Of documents whose cosines are equal to a millionth, those that are not relevant come first. A
    model that finds all alike has the worst ranks, and not the best.

    A mask of one head takes about half a pass over the queries, and over the documents, too, unless
    `sides` is 'queries'. Queries and relevant documents are held under all masks.

    Args:
      relevant: [P, 2] The numbers of a query and of a document, each pair once.
      sides: Whether heads are disabled for 'both', or for 'queries' alone.
      prompts: The prompts of queries and of documents, as in `bs.embed`.
      pretrained, masks, baseline, donor_seed, compute: As in `bs.similarities`.
    """
    check_name('sides', sides, SIDES)
    given = {'donor_seed': donor_seed, 'compute': compute}
    texts = [*queries, *documents]
    asking, block = answering, _ = embedder_of(pretrained, masks, texts, baseline=baseline, **given)
    if sides == 'queries':
        intact = np.ones_like(masks[:1])
        answering, block = embedder_of(pretrained, intact, texts, baseline='zero', **given)
    query, document = relevant.T
    held, place = np.unique(document, return_inverse=True)
    others = np.setdiff1d(np.arange(len(documents)), held)
    asked = asking(queries, prompts[0])
    wanted = answering([documents[int(each)] for each in held], prompts[1])
    similar = np.einsum('MPD,MPD->MP', asked[:, query], wanted[:, place])
    own = np.zeros((len(queries), len(held)), bool)
    own[query, place] = True
    ranks = np.stack([_among_relevant(each, query) for each in similar])

    def add_others(embedded, left_out) -> None:
        for mask, (questions, row) in enumerate(zip(asked, similar, strict=True)):
            # Documents that keep all heads are embedded under one mask.
            found = (questions @ embedded[mask % len(embedded)].T)[query]
            ranks[mask] += ((found > row[:, None] - _EQUAL) & ~left_out).sum(axis=1)

    add_others(wanted, own[query])
    for chosen in in_blocks(others, block):
        embedded = answering([documents[int(each)] for each in chosen], prompts[1])
        add_others(embedded, np.zeros(1, bool))
    return ranks


def _among_relevant(similar: Float[np.ndarray, ' P'], query: Int[np.ndarray, ' P']) -> np.ndarray:
    """Return the rank of each document [P] among those that are relevant to its query."""
    order = np.lexsort((-similar, query))
    starts = np.searchsorted(query[order], query[order])
    ranks = np.empty(len(query), int)
    ranks[order] = np.arange(len(query)) - starts + 1
    return ranks


def scores_of_queries(
    ranks: Int[np.ndarray, 'M P'], query: Int[np.ndarray, ' P'], grades: Real[np.ndarray, ' P']
) -> dict[str, Float[np.ndarray, 'M Q']]:
    """Return three scores of each query under every mask, from ranks of relevant documents.

    'MRR' is 1 / rank of the first of them. 'nDCG@10' adds grade / log2(1 + rank) over the first ten
    documents, and divides it by the most that is possible (Järvelin and Kekäläinen 2002, with
    grades as gains, as trec_eval has it). 'recall@10' is the share of them among the first ten.
    """

    def total(values: np.ndarray) -> np.ndarray:
        every = np.broadcast_to(values, ranks.shape)
        return np.stack([np.bincount(query, each) for each in every])

    first = np.zeros((len(ranks), int(query.max()) + 1))
    np.maximum.at(first.T, query, (1 / ranks).T)
    inside = ranks <= _CUT
    best = _among_relevant(np.asarray(grades, np.float64), query)
    gains = (np.where(each <= _CUT, grades / np.log2(1 + each), 0) for each in (ranks, best))
    found, possible = map(total, gains)
    return {
        'MRR': first,
        'nDCG@10': found / possible,
        'recall@10': total(inside) / total(inside | True),
    }


def assess_retrieval(
    scores: Float[np.ndarray, 'M Q'], *, name: str, names: Sequence[str], seed: int = 0
) -> Effects:
    """Return the effects of masks on the mean of a score, of which the first [Q] are intact.

    Queries are the sample. Where a mask changes none of them, its interval is that of changes which
    occur in none of Q queries (0 of Q, Clopper and Pearson 1934). ValueError with fewer than two.
    """
    changes = scores[1:] - scores[0]
    about = {'names': names, 'sample_of': 'queries', 'seed': seed}
    about |= {'intact': float(scores[0].mean()), 'outcome': Outcome(name, margin=MARGIN)}
    found = assess_changes(changes, **about)
    unseen = 1 - (LEVEL / 2) ** (1 / scores.shape[1])
    none = (changes == 0).all(axis=1)
    known = {'low': -unseen, 'high': unseen, 'detectable': np.inf}
    # A change that no query shows may still exceed the margin among all.
    known |= {'equivalent': 1.0} if unseen >= MARGIN else {}
    ends = {name: np.where(none, end, getattr(found, name)) for name, end in known.items()}
    return dataclasses.replace(found, unseen=unseen, **ends)
