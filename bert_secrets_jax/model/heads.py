"""Heads on an encoder, up to the logits; and ESM's prediction of contacts."""

import flax.linen as nn
import jax.numpy as jnp

from bert_secrets_jax.model.config import MASKED_LM, SEQUENCES, BertConfig
from bert_secrets_jax.model.encoder import encoded
from bert_secrets_jax.model.parts import ACTIVATIONS, dense, layer_norm, matmul_precision


def pooled_tokens(config: BertConfig, hidden, attention_mask):
    """Return what the pooler reads [B, D] of the encoder's output [B, T, D]."""
    if config.classifier_pooling == 'cls':
        return hidden[:, 0]
    length = jnp.maximum(attention_mask.sum(axis=-1, keepdims=True), 1)
    return (hidden * attention_mask[..., None]).sum(axis=1) / length


def pool(config: BertConfig, tokens):
    """Return the input of the classifier [..., D]: a dense layer and its activation.

    For use inside a compact method, whose module then owns the parameters.
    """
    layer = dense(config, config.hidden_size, 'pooler', bias=config.classifier_bias)
    pooled = ACTIVATIONS[config.family.pooler_act](layer(tokens))
    if config.family.pooler_norm:
        pooled = layer_norm(config, 'pooler_norm')(pooled).astype(config.array_dtype)
    return pooled


def classify(config: BertConfig, pooled):
    """Return the logits [..., C] in float32, inside a compact method."""
    return dense(config, config.num_labels, 'classifier')(pooled).astype(jnp.float32)


def predict_contacts(config: BertConfig, maps, input_ids, attention_mask):
    """Return the probability that two residues touch, from all maps, inside a compact method.

    Source: Rao et al. 2021, "Transformer protein language models are unsupervised structure
    learners", section 3: logistic regression over the maps of all heads, each made symmetric and
    corrected for the mean of its rows and columns (average product correction).

    Args:
      config: Hyperparameters of the model.
      maps: [L, B, N, T, S] learned probabilities.
      input_ids: [B, T] tokens. The first and <eos> are no residues.
      attention_mask: [B, T] 1 on real tokens, 0 on padding.

    Returns:
      [B, T, S] probabilities; 0 where one of the two is no residue.
    """
    residue = attention_mask * (input_ids != config.family.eos_token_id)
    residue = residue.at[:, 0].set(0).astype(jnp.float32)
    pairs = residue[:, :, None] * residue[:, None, :]
    maps = jnp.moveaxis(maps, 0, 1)
    maps = maps.reshape(len(residue), -1, *maps.shape[-2:]) * pairs[:, None]
    both = maps + jnp.swapaxes(maps, -1, -2)
    of_row, of_column = both.sum(axis=-1, keepdims=True), both.sum(axis=-2, keepdims=True)
    total = jnp.maximum(both.sum(axis=(-1, -2), keepdims=True), jnp.finfo(jnp.float32).tiny)
    features = jnp.moveaxis(both - of_row * of_column / total, 1, -1)
    return nn.sigmoid(dense(config, 1, 'contact_head')(features)[..., 0]) * pairs


def of_tokens(config: BertConfig, hidden):
    """Return what the heads of single tokens read [..., D], inside a compact method."""
    return pool(config, hidden) if config.family.pools_tokens else hidden


class MaskedLM(nn.Module):
    """Predicts wordpieces: a dense layer, LayerNorm, and a row of weights for each wordpiece.

    Source: Devlin et al. 2019, section 3.1. The dense layer and LayerNorm are missing where heads
    of single tokens stand on a layer of their own (`Family.pools_tokens`).
    """

    config: BertConfig

    @nn.compact
    def __call__(self, tokens, embedding):
        """Return the logits [..., V] in float32.

        Args:
          tokens: [..., D] what `of_tokens` gives.
          embedding: [V, E] embeddings of the wordpieces, which tied weights are.
        """
        config = self.config
        if not config.family.pools_tokens:
            act = ACTIVATIONS[config.family.lm_act or config.hidden_act]
            width = config.embedding_size or config.hidden_size
            tokens = layer_norm(config, 'norm')(act(dense(config, width, 'dense')(tokens)))
        if not config.tie_word_embeddings:
            embedding = nn.Embed(*embedding.shape, name='decoder').embedding
        bias = self.param('bias', nn.initializers.zeros, (config.vocab_size,))
        logits = jnp.einsum(
            '...E,VE->...V',
            tokens.astype(config.array_dtype),
            embedding.astype(config.array_dtype),
            precision=matmul_precision(config),
            preferred_element_type=jnp.float32,
        )
        return logits + jnp.expand_dims(bias, range(logits.ndim - 1))


class Head(nn.Module):
    """The part after the last layer, up to the logits; it takes the parameters of a whole model."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden, attention_mask=None, embedding=None):
        """Return the logits: [..., C], of single tokens [B, T, C].

        Args:
          hidden: [B, T, D] output of the last layer; without a mask, [..., D] at [CLS] alone.
          attention_mask: [B, T] 1 on real tokens, 0 on padding.
          embedding: [V, E] embeddings of the wordpieces, which a masked LM needs.
        """
        tokens = encoded(self.config, hidden)
        if self.config.head == MASKED_LM:
            return MaskedLM(self.config, name='lm')(of_tokens(self.config, tokens), embedding)
        if self.config.head != SEQUENCES:
            return classify(self.config, of_tokens(self.config, tokens))
        if attention_mask is not None:
            tokens = pooled_tokens(self.config, tokens, attention_mask)
        return classify(self.config, pool(self.config, tokens))
