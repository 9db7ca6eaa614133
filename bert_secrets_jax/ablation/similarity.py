"""Cosines of the embeddings of texts under every mask of heads, and the effects of masks on them.

Each text is embedded once under each mask. Disabling heads on both sides, on one side, and under
all pairs of masks are products of the same embeddings, and take no further pass.

Shapes: E pairs, M masks, L layers, N heads, T texts, D width of an embedding. In
`assess_similarities`, the first of the masks keeps all heads.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int, Real

from bert_secrets_jax.ablation.contexts import mean_contexts
from bert_secrets_jax.ablation.embedding import embed
from bert_secrets_jax.ablation.masks import GivenMasks, check_masks
from bert_secrets_jax.ablation.outcomes import ANSWERS, answer_changes, assess_changes
from bert_secrets_jax.brief import check_name
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Text, as_examples, prepared
from bert_secrets_jax.model.bert import check_finite
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.means import assess_means

SIDES = ('both', 'one', 'first', 'second', 'every')
CORRELATIONS = ('spearman', 'pearson')
COSINE = Outcome('the mean cosine', 'cosine', 1.0, 4, directed=False)
SIZE = dataclasses.replace(ANSWERS, name='the cosines')
# Bytes of embeddings that are held at a time.
_HELD = 2**27


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
    changes = cosines[1:].astype(np.float64) - cosines[0]
    if gold is not None and np.ptp(cosines[0]) == 0:
        raise ValueError('The cosines of all pairs are the same, so nothing correlates with them.')
    found = {}
    if gold is not None:
        given = cosines[1:].astype(np.float64), cosines[0].astype(np.float64), gold
        for metric in CORRELATIONS:
            effects = significance.assess(metric, *given, names=names, seed=seed)
            found[metric] = dataclasses.replace(effects, sample_of='pairs')
    about = {'names': names, 'sample_of': 'pairs', 'seed': seed}
    intact = float(cosines[0].mean(dtype=np.float64))
    found['cosine'] = assess_changes(changes, outcome=COSINE, intact=intact, **about)
    moved = answer_changes(cosines[..., None].astype(np.float64))
    if moved is not None:
        sizes, parts = (each[1:] for each in moved)
        found['size'] = assess_means(sizes, parts, outcome=SIZE, intact=0.0, **about)
    return found
