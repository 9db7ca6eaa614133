"""The parts of attention scores in DeBERTa: what each attends to alone, and what it is needed for.

P parts are those of `config.score_parts`. Source: He et al. 2021, "DeBERTa", equations 2 and 4.
"""

import dataclasses
import functools
from collections.abc import Iterable

import jax
import numpy as np
from jaxtyping import Float

from bert_secrets_jax.ablation.contexts import layers_of
from bert_secrets_jax.ablation.layers import Static, embed, open_scores
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.compute import fetch
from bert_secrets_jax.data.encoding import Batch, in_order, listed, to_one_length
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import MASKED_LM
from bert_secrets_jax.model.encoder import kinds_of_layers, scope_of
from bert_secrets_jax.model.intervention import check_amounts
from bert_secrets_jax.model.weights import Pretrained, check_whole


@dataclasses.dataclass(frozen=True)
class ScoreParts:
    """The parts of the scores of one batch. At queries that are padding they mean nothing.

    Attributes:
      scores: The summands of the scores, scaled as in their sum, before softmax.
      maps: The map that each part would give alone, with the inputs that the layer has.
      shares: The covariance of each part with the whole score over the keys that a query sees, as a
        share of the variance of that score, pooled over queries. They sum to 1, and one is negative
        where a part works against the others.
    """

    scores: Float[np.ndarray, 'B L P N T S']
    maps: Float[np.ndarray, 'B L P N T S']
    shares: Float[np.ndarray, 'L P N']


def score_parts(pretrained: Pretrained, batch: Batch) -> ScoreParts:
    """Take the scores of a DeBERTa apart; ValueError if those of the model have one part alone."""
    check_whole(pretrained)
    if len(pretrained.config.score_parts) == 1:
        raise ValueError(f'Scores of this model ({pretrained.config.summary}) have one part alone.')
    states = fetch(_run(pretrained.bert, pretrained.params, batch).hidden_states)
    scores, maps = _scores(pretrained, batch, np.moveaxis(states, 1, 0))
    real = np.asarray(batch.attention_mask, np.float32)
    seen = (real / np.maximum(real.sum(axis=1, keepdims=True), 1))[:, None, None, None, None]
    centred = scores - (scores * seen).sum(axis=-1, keepdims=True)
    shared = (centred * centred.sum(axis=2, keepdims=True) * seen).sum(axis=-1)
    counted = real * (np.asarray(batch.example) >= 0)[:, None]
    pooled = np.einsum('BLPNT,BT->LPN', shared, counted)
    return ScoreParts(scores, maps, pooled / pooled.sum(axis=1, keepdims=True))


def distance_preferences(
    pretrained: Pretrained, *, reach: int = 16
) -> Float[np.ndarray, 'L N offset']:
    """Return how the heads prefer distances, read off the weights without any text.

    Entries are scores before softmax for key minus query from -`reach` to `reach`: a difference of
    two is one of log odds. MPNet has them as they stand, the same in all layers. Those of DeBERTa
    hang on content; given are those of a neutral token, for which the LayerNorm below the layer
    hands on its bias alone. No text has such tokens: `score_parts` has the scores of a text.
    ValueError if the model has no scores of distances, or not so many positions.
    """
    check_whole(pretrained)
    config, params = pretrained.config, pretrained.params
    if len(config.score_parts) == 1 and not config.family.relative_buckets:
        raise ValueError(f'Scores of this model ({config.summary}) do not hang on distances.')
    if not 0 < reach < config.max_length:
        raise ValueError(f'{reach=} must be from 1 to {config.max_length - 1}.')
    ids = np.ones((1, reach + 1), np.int32)
    batch = Batch(ids, 0 * ids, ids, {}, np.zeros(1, np.int32))
    if config.family.relative_buckets:
        bias = fetch(embed(Static(config, 'zero'), params['embeddings'], batch)[1].bias)[0]
        scores = np.broadcast_to(bias, (config.num_hidden_layers, *bias.shape[1:]))
    else:
        below = [params['embeddings']['norm']['bias'], *params['layers']['output_norm']['bias']]
        if config.conv_kernel_size:
            below[1] = params['layers']['conv_norm']['bias'][0]
        states = [np.broadcast_to(bias, (*ids.shape, len(bias))) for bias in below]
        scores = _scores(pretrained, batch, states)[0][0, :, 1:].sum(axis=1)
    return np.concatenate([scores[..., ::-1, 0], scores[..., 0, 1:]], axis=-1)


def sweep_parts(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    masks: Float[np.ndarray, 'M L P N'] | None = None,
) -> Swept:
    """Compute the logits of every example under masks over parts of scores.

    A mask multiplies the scores: 1 keeps a part of a head, 0 disables it. Each costs a pass. None
    disables one part of one head at a time, by layers, then parts, then heads. ValueError if the
    model has no head, or one of a masked LM, or the masks do not fit.
    """
    check_whole(pretrained)
    config, batches = pretrained.config, list(listed(batches))
    if not config.has_head or config.head == MASKED_LM:
        raise ValueError(f'A sweep over parts compares classes or embeddings: {config.summary}.')
    if masks is None:
        shape = config.num_hidden_layers, len(config.score_parts), config.num_attention_heads
        masks = 1 - np.eye(int(np.prod(shape))).reshape(-1, *shape)
    masks = np.asarray(masks, np.float32)
    check_amounts(masks)
    logits = (fetch(_logits(pretrained.bert, pretrained.params, each, masks)) for each in batches)
    return Swept(masks, in_order([each.example for each in batches], to_one_length(logits), axis=1))


@functools.partial(jax.jit, static_argnums=0)
def _run(bert: Bert, params, batch: Batch, part_mask=None):
    return bert.apply({'params': params}, **batch.inputs, part_mask=part_mask)


@functools.partial(jax.jit, static_argnums=0)
def _logits(bert: Bert, params, batch: Batch, masks):
    return jax.lax.map(lambda mask: _run(bert, params, batch, mask).logits, masks)


def _scores(pretrained: Pretrained, batch: Batch, entered: Iterable[np.ndarray]) -> list:
    """Return the parts [B, L, P, N, T, S] of scores of what enters the layers, and their maps."""
    setting = Static(pretrained.config, 'zero')
    _, scopes = embed(setting, pretrained.params['embeddings'], batch)
    layers, kinds = layers_of(pretrained.params), kinds_of_layers(setting.config)
    found = [
        fetch(open_scores(setting, params, hidden, scope_of(scopes, kind)))
        for params, kind, hidden in zip(layers, kinds, entered, strict=False)
    ]
    return [np.stack(each, axis=1) for each in zip(*found, strict=True)]
