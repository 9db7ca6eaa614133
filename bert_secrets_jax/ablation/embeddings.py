"""Embeddings of texts under every mask of heads: cosines of pairs, and ranks of documents.

Each text is embedded once under each mask. Disabling heads on both sides, on one side, and under
all pairs of masks are products of the same embeddings, and take no further pass. Documents are
ranked by their cosine with the query. All scores of a search follow from the ranks of relevant
documents, so that the others come in blocks and are not kept.

Shapes: E pairs, M masks, L layers, N heads, T texts, D width of an embedding, Q queries, P pairs of
a query and a document that is relevant to it. Where effects are assessed, the first of the masks
keeps all heads.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int, Real, Shaped

from bert_secrets_jax.ablation.contexts import Means, mean_contexts
from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.ablation.masks import GivenMasks, check_masks
from bert_secrets_jax.ablation.outcomes import ANSWERS, answer_changes
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.checks import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Text, as_examples, prepared
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.effects import MARGIN, Effects, Outcome
from bert_secrets_jax.stats.means import assess_means
from bert_secrets_jax.stats.student import LEVEL

SIDES = ('both', 'one', 'first', 'second', 'every')
SIDES_OF_SEARCH = ('both', 'queries')
CORRELATIONS = ('spearman', 'pearson')
COSINE = Outcome('the mean cosine', 'cosine', 1.0, 4, directed=False)
SIZE = dataclasses.replace(ANSWERS, name='the cosines')
# Bytes of embeddings that are held at a time.
_HELD = 2**27
# Ranks up to this count for nDCG and recall.
_CUT = 10
# Cosines that differ by less are equal: embeddings are float32.
_EQUAL = 1e-6


def embed(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    head_mask: Shaped[np.ndarray, '*M L N'] | None = None,
    baseline: str = 'uniform',
    pooling: str | Pooling | None = None,
    normalised: bool | None = None,
    prompt: str | None = None,
    replacement: Means | None = None,
    donor_seed: int = 0,
    compute: Compute | None = None,
) -> Float[np.ndarray, '*M E D']:
    """Return the embedding of each text, [E, D], as the package sentence-transformers does.

    Args:
      texts: Strings, or `Example`s of one text each.
      head_mask: [L, N] The heads that are kept (1) and disabled (0), as in `sweep`. With several
        masks, [M, L, N], the embeddings are [M, E, D], and masks share what they can.
      baseline: The behaviour of a disabled head, as in `sweep`.
      pooling, normalised: How the states of tokens become one vector, as in `bs.with_pooling`.
      prompt: The words before each text, or the name that the model has for them, such as 'query'.
        None takes those that the model prescribes, if any.
      replacement, donor_seed: As in `sweep`.
      compute: How it is computed. Texts longer than the model was made for are cut, as
        sentence-transformers does, which a warning says.

    Raises:
      TypeError: The model is not a `Pretrained`, or the texts are pairs or something else.
      ValueError: The model does not say how it pools, or there are no texts.
    """
    pretrained = with_pooling(pretrained, pooling, normalised=normalised)
    config = pretrained.config
    assert config.pooling is not None
    compute = (compute or Compute()).within(config)
    masks = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
    masks = masks if head_mask is None else np.asarray(head_mask)
    every = masks.reshape(-1, *masks.shape[-2:])
    how = {'baseline': baseline, 'replacement': replacement, 'donor_seed': donor_seed}
    examples = prepared(config.pooling, texts, prompt)
    found = sweep_examples(pretrained, examples, every, compute=compute, **how).logits
    return found.reshape(*masks.shape[:-2], *found.shape[1:])


def as_embedder(pretrained: Pretrained) -> Pretrained:
    """Return a model that says how it pools, and has no head of its own, with its embedding."""
    config = pretrained.config
    known = config.pooling is not None and not config.pooling.refused
    return with_pooling(pretrained) if known and not config.has_head else pretrained


def embedder_of(
    pretrained: Pretrained,
    masks: GivenMasks,
    texts: Sequence[str],
    *,
    baseline: str,
    donor_seed: int,
    compute: Compute | None,
) -> tuple[Callable[..., Float[np.ndarray, 'M T D']], int]:
    """Return a function that embeds texts, perhaps with a prompt, to length 1 under every mask.

    With it comes the number of texts that it should take at a time, of which the embeddings under
    all masks are held. For the baseline 'mean', `texts` are read.
    """
    model = with_pooling(pretrained, normalised=True)
    config, pooling = model.config, model.config.pooling
    assert pooling is not None
    masks = check_masks(config, masks)
    how = {'baseline': baseline, 'donor_seed': donor_seed}
    how['compute'] = compute = (compute or Compute()).within(config)
    if baseline == 'mean':
        examples = prepared(pooling, list(dict.fromkeys(texts)))
        batches = encode(model.tokenizer, examples, **compute.encoding)
        how['replacement'] = mean_contexts(model, batches, mesh=compute.mesh)

    def embedded(texts: Sequence[str], prompt: str | None = None) -> Float[np.ndarray, 'M T D']:
        # Each different text once.
        place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        found = embed(model, list(place), head_mask=masks, prompt=prompt, **how)
        check_finite(found)
        return found[:, [place[text] for text in texts]]

    width = config.hidden_size * len(pooling.modes)
    return embedded, max(_HELD // (len(masks) * width * 4), 2)


def similarities(
    pretrained: Pretrained,
    pairs: Sequence[Text],
    masks: GivenMasks,
    *,
    sides: str = 'both',
    baseline: str = 'uniform',
    donor_seed: int = 0,
    compute: Compute | None = None,
) -> Float[np.ndarray, 'M *more E']:
    """Return the cosine of the two texts of each pair under every mask, [M, E].

    A mask of one head takes 1/2 + 1/(6 L) of the operations of a pass over the texts, on average:
    the layers before it are shared, and so is the attention of its own layer. Memory is bounded by
    blocks of pairs.

    Args:
      pretrained: A model that says how it pools, such as `bs.with_pooling` returns.
      pairs: Pairs of strings, or `Example`s of two texts.
      masks: [M, L, N] The masks, as in `sweep`. The intact model is not added.
      sides: The texts for which heads are disabled: 'both', the 'first' or the 'second' with the
        other one embedded by the intact model, or 'one', the mean of these two. With 'every' it is
        [M, M, E], the first text under each mask and the second under each.
      baseline, donor_seed: As in `sweep`. The mean is that over all texts, and donors are those of
        a block of pairs.
      compute: How it is computed; texts are cut as the model asks for, or shorter.

    Raises:
      TypeError: The model is not a `Pretrained`, or texts do not come in pairs.
      ValueError: The model does not say how it pools, or an argument is unknown or does not fit.
    """
    check_name('sides', sides, SIDES)
    examples = as_examples(pairs)
    texts = [(each.text_a, each.text_b or '') for each in examples]
    lacking = next(
        (each.place for each, pair in zip(examples, texts, strict=True) if not all(pair)), ''
    )
    if lacking or not texts:
        named = f', and {lacking} lacks a text' if lacking else ''
        raise TypeError(
            f'Cosines are of pairs{named}: give some, as (text, text) or `Example`s with both.'
        )
    # The intact model comes last, where one side alone is masked.
    every = np.concatenate([masks, np.ones_like(masks[:1])])
    both = [text for pair in texts for text in pair]
    given = {'baseline': baseline, 'donor_seed': donor_seed, 'compute': compute}
    embedder, block = embedder_of(pretrained, every, both, **given)
    # Texts of a block are of like length, so that little is compiled for each.
    order = np.argsort([max(map(len, pair)) for pair in texts], kind='stable')
    found = []
    for chosen in in_blocks(order, block // 2):
        embedded = embedder([text for index in chosen for text in texts[index]])
        found.append(_cosines(embedded[:, ::2], embedded[:, 1::2], sides))
    joined = np.empty((*found[0].shape[:-1], len(order)), np.float32)
    joined[..., order] = np.concatenate(found, axis=-1)
    return joined


def in_blocks(numbers: Int[np.ndarray, ' T'], most: int) -> list[Int[np.ndarray, ' B']]:
    """Cut numbers into equal blocks, as a text alone in its block would have no donor."""
    return np.array_split(numbers, -(-len(numbers) // most)) if len(numbers) else []


def _cosines(first: np.ndarray, second: np.ndarray, sides: str) -> Float[np.ndarray, 'M *more E']:
    """Return products of embeddings [M, E, D], of which the last are the intact model's."""
    if sides == 'one':
        return (_cosines(first, second, 'first') + _cosines(first, second, 'second')) / 2
    if sides == 'every':
        by_pair = first[:-1].swapaxes(0, 1) @ second[:-1].transpose(1, 2, 0)
        return by_pair.transpose(1, 2, 0)
    first = first[-1:] if sides == 'second' else first[:-1]
    second = second[-1:] if sides == 'first' else second[:-1]
    return np.einsum('MED,MED->ME', first, second)


def assess_similarities(
    cosines: Float[np.ndarray, 'M E'],
    *,
    names: Sequence[str],
    gold: Real[np.ndarray, ' E'] | None = None,
    seed: int = 0,
) -> dict[str, Effects]:
    """Return the effects of masks on cosines, of which the first [E] are the intact model's.

    With gold scores, 'spearman' and 'pearson' are the correlations with them. 'cosine' is the mean
    over pairs. 'size' is how far cosines move, for better or worse, in spreads of the intact
    model's (as 'answers' in `ablation.outcomes`); it has `equivalent`, whether they move by less
    than 5 % of their spread.

    Raises:
      ValueError: There are fewer than two pairs, or scores are not [E] and finite.
    """
    cosines = cosines.astype(np.float64)
    found, both, about = {}, (cosines[1:], cosines[0]), {'names': names, 'seed': seed}
    if gold is not None:
        if np.ptp(cosines[0]) == 0:
            raise ValueError(
                'The cosines of all pairs are the same, so nothing correlates with them.'
            )
        for metric in CORRELATIONS:
            effects = significance.assess(metric, *both, gold, **about)
            found[metric] = dataclasses.replace(effects, sample_of='pairs')
    about['sample_of'] = 'pairs'
    found['cosine'] = assess_losses(*both, outcome=COSINE, **about)
    moved = answer_changes(cosines[..., None])
    if moved is not None:
        sizes, parts = (each[1:] for each in moved)
        found['size'] = assess_means(sizes, parts, outcome=SIZE, intact=0.0, **about)
    return found


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
    check_name('sides', sides, SIDES_OF_SEARCH)
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
    about = {'names': names, 'sample_of': 'queries', 'seed': seed}
    found = assess_losses(scores[1:], scores[0], outcome=Outcome(name, margin=MARGIN), **about)
    unseen = 1 - (LEVEL / 2) ** (1 / scores.shape[1])
    none = (scores[1:] == scores[0]).all(axis=1)
    known = {'low': -unseen, 'high': unseen, 'detectable': np.inf}
    # A change that no query shows may still exceed the margin among all.
    known |= {'equivalent': 1.0} if unseen >= MARGIN else {}
    ends = {name: np.where(none, end, getattr(found, name)) for name, end in known.items()}
    return dataclasses.replace(found, unseen=unseen, **ends)
