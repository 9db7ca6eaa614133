"""Heads on an encoder, up to the logits; and ESM's prediction of contacts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.model import parts
from bert_secrets_jax.model.config import EMBEDDING, MASKED_LM, QUESTIONS, SEQUENCES, BertConfig
from bert_secrets_jax.model.embedding import CLS, LAST, MAX, MEAN, ROOT, WEIGHTED, Pooling

Mask = Bool[Array, 'B T'] | Int[Array, 'B T']
Rows = Float[Array, '*rows D']
Words = Float[Array, 'V E']


def pooled_tokens(
    config: BertConfig, hidden: Float[Array, 'B T D'], attention_mask: Mask
) -> Float[Array, 'B D']:
    """Return what the pooler reads of the encoder's output; NaN where that would be padding."""
    if config.classifier_pooling == 'cls':
        is_padding = ~attention_mask[:, :1].astype(bool) & attention_mask.any(axis=1, keepdims=True)
        return jnp.where(is_padding, jnp.nan, hidden[:, 0])
    return _mean_of(hidden, attention_mask)


def _mean_of(hidden, attention_mask):
    length = jnp.maximum(attention_mask.sum(axis=-1, keepdims=True), 1)
    return (hidden * attention_mask[..., None]).sum(axis=1) / length


def embedding_of(
    pooling: Pooling, hidden: Float[Array, 'B T D'], attention_mask: Mask
) -> Float[Array, 'B E']:
    """Return the embeddings of texts in float32; E is D times the number of modes."""
    hidden = hidden.astype(jnp.float32)
    real = attention_mask[..., None].astype(jnp.float32)
    place, count = jnp.cumsum(real, axis=1) * real, real.sum(axis=1, keepdims=True)
    weights = {
        CLS: place == 1,
        MEAN: real / jnp.maximum(count, 1),
        ROOT: real / jnp.sqrt(jnp.maximum(count, 1)),
        WEIGHTED: place / jnp.maximum(place.sum(axis=1, keepdims=True), 1),
        LAST: (place == count) * real,
    }
    parts = [
        jnp.where(real > 0, hidden, -jnp.inf).max(axis=1)
        if mode == MAX
        else (hidden * weights[mode]).sum(axis=1)
        for mode in pooling.modes
    ]
    return scaled(pooling, jnp.concatenate(parts, axis=-1))


def scaled(pooling: Pooling, embedding: Float[Array, '*rows E']) -> Float[Array, '*rows E']:
    """Return embeddings in float32, of length 1 where the model makes them so."""
    embedding = embedding.astype(jnp.float32)
    return unit_length(embedding) if pooling.normalised else embedding


def unit_length(embedding: Float[Array, '*rows E']) -> Float[Array, '*rows E']:
    """Return embeddings of length 1; 0 stays 0, and has a gradient of 0."""
    squared = (embedding**2).sum(axis=-1, keepdims=True)
    return embedding * lax.rsqrt(jnp.maximum(squared, 1e-24))


class Pooler(nn.Module):
    """The dense layer under the classifier, and its activation (in BERT, tanh)."""

    config: BertConfig

    @nn.compact
    def __call__(self, tokens: Rows) -> Rows:
        config = self.config
        layer = parts.dense(config, config.hidden_size, 'pooler', bias=config.classifier_bias)
        pooled = parts.ACTIVATIONS[config.family.pooler_act or config.hidden_act](layer(tokens))
        if config.family.pooler_norm:
            pooled = parts.normed(config, 'pooler_norm', pooled)
        return pooled


class Contacts(nn.Module):
    """Predicts whether two residues of a protein touch, from all maps.

    Source: Rao et al. 2021, "Transformer protein language models are unsupervised structure
    learners", section 3: logistic regression over the maps of all heads, each made symmetric and
    corrected for the mean of its rows and columns (average product correction).
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self, maps: Float[Array, 'L B N T T'], input_ids: Int[Array, 'B T'], attention_mask: Mask
    ) -> Float[Array, 'B T T']:
        """Return the probabilities; 0 where one of the two, such as <eos>, is no residue."""
        residue = attention_mask * (input_ids != self.config.family.eos_token_id)
        residue = residue.at[:, 0].set(0).astype(jnp.float32)
        pairs = residue[:, :, None] * residue[:, None, :]
        maps = jnp.moveaxis(maps, 0, 1)
        maps = maps.reshape(len(residue), -1, *maps.shape[-2:]) * pairs[:, None]
        both = maps + jnp.swapaxes(maps, -1, -2)
        of_row, of_column = both.sum(axis=-1, keepdims=True), both.sum(axis=-2, keepdims=True)
        total = jnp.maximum(both.sum(axis=(-1, -2), keepdims=True), jnp.finfo(jnp.float32).tiny)
        features = jnp.moveaxis(both - of_row * of_column / total, 1, -1)
        return nn.sigmoid(parts.dense(self.config, 1, 'contact_head')(features)[..., 0]) * pairs


class MaskedLM(nn.Module):
    """Predicts wordpieces: a dense layer, LayerNorm, and a row of weights for each wordpiece.

    Source: Devlin et al. 2019, section 3.1. The dense layer and LayerNorm are missing where heads
    of single tokens stand on a layer of their own (`Family.pools_tokens`), or on none (`lm_plain`).
    """

    config: BertConfig

    @nn.compact
    def __call__(self, tokens: Rows, embedding: Words) -> Float[Array, '*rows V']:
        """Return the logits in float32, from the embeddings of wordpieces if weights are tied."""
        config = self.config
        if not (config.family.pools_tokens or config.family.lm_plain):
            act = parts.ACTIVATIONS[config.family.lm_act or config.hidden_act]
            width = config.embedding_size or config.hidden_size
            tokens = parts.layer_norm(config, 'norm')(
                act(parts.dense(config, width, 'dense')(tokens))
            )
        if not config.tie_word_embeddings:
            embedding = nn.Embed(embedding.shape[0], embedding.shape[1], name='decoder').embedding
        logits = jnp.einsum(
            '...E,VE->...V',
            tokens.astype(config.array_dtype),
            embedding.astype(config.array_dtype),
            precision=parts.matmul_precision(config),
            preferred_element_type=jnp.float32,
        )
        if config.family.lm_plain and not config.mlp_bias:
            return logits
        bias = self.param('bias', nn.initializers.zeros, (config.vocab_size,))
        return logits + jnp.expand_dims(bias, range(logits.ndim - 1))


class Headed(NamedTuple):
    """The output of the encoder, that of the pooler, and logits in float32, if there are any."""

    encoded: Rows
    pooled: Float[Array, '*inputs D'] | None = None
    logits: Float[Array, '*predicted C'] | None = None


class Head(nn.Module):
    """The part after the last layer; it takes the parameters of a whole model."""

    config: BertConfig
    deterministic: bool = True

    if TYPE_CHECKING:  # Linen's own may return anything

        def apply(self, variables: Mapping[str, Any], *args: Any, **kwargs: Any) -> Headed: ...

    @nn.compact
    def __call__(
        self,
        hidden: Rows,
        attention_mask: Mask | None = None,
        embedding: Words | None = None,
        example_ids: Int[Array, ' B'] | None = None,
    ) -> Headed:
        """Return the logits, and what they are made from; the embedding of a text is its logits.

        `hidden` is [B, T, D]; without a mask, that at [CLS] or where a masked LM is asked. A masked
        LM needs the `embedding` of the wordpieces.
        """
        config, family = self.config, self.config.family
        rate = config.classifier_dropout
        rate = config.hidden_dropout_prob if rate is None else rate
        dropout = parts.dropping(rate, example_ids, self.deterministic)
        pool = parts.within(self, Pooler(config))
        encoded, pooled, logits = hidden, None, None
        if family.norm_first:
            encoded = parts.normed(config, 'final_norm', hidden)
        # A pooler of each token reads no whole input.
        if config.add_pooler and (config.head == SEQUENCES or not family.pools_tokens):
            read, late = encoded, config.classifier_pooling == 'late'
            if attention_mask is not None and not late:
                read = pooled_tokens(config, encoded, attention_mask)
            pooled = pool(dropout(read) if family.dropout_before_pooler else read)
            if late:
                pooled = _mean_of(pooled, attention_mask)
        if config.head == SEQUENCES:
            read = pooled
        else:
            of_tokens = family.pools_tokens and config.head != EMBEDDING
            read = pool(encoded) if of_tokens else encoded
        if config.head == EMBEDDING:
            assert config.pooling is not None
            if attention_mask is None:
                logits = scaled(config.pooling, encoded)
            else:
                logits = embedding_of(config.pooling, encoded, attention_mask)
        elif config.head == MASKED_LM:
            assert read is not None and embedding is not None
            logits = MaskedLM(config, name='lm')(read, embedding)
        elif config.num_labels:
            # The heads for answers have no dropout of their own.
            read = read if config.head == QUESTIONS else dropout(read)
            logits = parts.dense(config, config.num_labels, 'classifier')(read).astype(jnp.float32)
        return Headed(encoded, pooled, logits)
