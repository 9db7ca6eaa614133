"""BERT and relatives in Flax Linen: attention maps are outputs, a per-head mask is an argument.

The arithmetic of attention and the legend of shapes are in `attention.py`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bert_secrets_jax.checks import brief, check_shape
from bert_secrets_jax.model.attention import check_padding
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.encoder import Embeddings, layers_of
from bert_secrets_jax.model.heads import Contacts, Head
from bert_secrets_jax.model.intervention import Intervention, intervention_on
from bert_secrets_jax.model.parts import within

if TYPE_CHECKING:
    Value = Array
else:
    Value = Array | np.ndarray  # once it was fetched


@flax.struct.dataclass
class BertOutput:
    """All results of a forward pass. Under `jit`, what is not used is neither computed nor stored.

    Attributes:
      logits: [B, C] scores of the classes, or the predicted value of a regression (C = 1). [B, T,
        C] those of each token with heads of single tokens: C = 2 for answers (start and end), and
        the number of wordpieces for a masked LM. None without head.
      pooled: [B, D] input of the classifier: a dense layer over [CLS], or over the mean of all
        tokens, and its activation (in BERT, tanh). None without pooler.
      hidden_states: [B, L+1, T, D] embeddings and the output of every layer; the last is that of
        the encoder, after its final LayerNorm where it has one.
      attentions: [B, L, N, T, S] learned probabilities, before head mask and dropout. A head that
        was removed (`bs.remove_heads`) has zeros.
      contacts: [B, T, S] probability that two residues of a protein touch, 0 for other tokens. None
        without ESM's contact head, which reads all learned maps.
      contexts: [B, L, T, N, H] what each head hands to the output projection: its map times the
        values, after head mask and dropout. At padding it means nothing. A head that was removed
        has zeros.
    """

    logits: Value | None
    pooled: Value | None
    hidden_states: Value
    attentions: Value
    contexts: Value
    contacts: Value | None = None

    __repr__ = brief


class Bert(nn.Module):
    """BERT, or a relative, with optional pooler, and with or without a head (`BertConfig.head`).

    Attributes:
      config: Hyperparameters of the model.
    """

    config: BertConfig

    def __repr__(self) -> str:
        return f'Bert({self.config.summary})'

    if TYPE_CHECKING:  # Linen's own may return anything

        def apply(self, variables: Mapping[str, Any], *args: Any, **kwargs: Any) -> BertOutput: ...

    @nn.compact
    def __call__(
        self,
        input_ids: ArrayLike,
        token_type_ids: ArrayLike,
        attention_mask: ArrayLike,
        *,
        head_mask: ArrayLike | None = None,
        baseline: str = 'uniform',
        replacement: ArrayLike | None = None,
        map_change: ArrayLike | None = None,
        part_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | None = None,
        deterministic: bool = True,
        example_ids: ArrayLike | None = None,
    ) -> BertOutput:
        """Run the model, through `bert.apply({'params': params}, input_ids, ...)`.

        Args:
          input_ids: [B, T] wordpieces, padded on the right. Under `jit`, logits of a classifier
            that would read padding on the left are NaN.
          token_type_ids: [B, T] 0 for the first segment, 1 for the second. They have no effect in
            models with fewer than two segments.
          attention_mask: [B, T] 1 on real tokens, 0 on padding.
          head_mask: [L, N] or [B, L, N] 1 keeps a head, 0 replaces what it does by the baseline,
            fractions interpolate. The output is differentiable in it.
          baseline: The behaviour of a disabled head. With 'uniform' (1/length on real tokens, as in
            section 4.6 of the paper) and 'zero' (Michel et al. 2019, Voita et al. 2019) it has
            another map. With 'mean' (its mean output over a corpus) and 'resample' (its output on
            another input) it has another output, `replacement`.
          replacement: [L, N, H] or [B, L, T, N, H] The outputs that replace those of disabled
            heads, `contexts` of other passes or means (`bs.mean_contexts`); needed for 'mean' and
            'resample' if there is a `head_mask`. The output is differentiable in it. Dropout does
            not touch it.
          map_change: [B, L, N, T, S] The change that is added to the maps after the mask and before
            dropout; `attentions` are those without it. The gradient at a change of 0 is that of the
            maps.
          part_mask: [L, P, N] The factor of each part of the scores (`config.score_parts`): 0
            disables one part of a head. The output is differentiable in it.
          inputs_embeds: [B, T, E] The replacement for the embeddings of the wordpieces, before
            those of positions and segments are added. The output is differentiable in it. Some
            families still read positions from the wordpieces.
          deterministic: Whether dropout is off. False needs `rngs={'dropout': key}`.
          example_ids: [B] integers that decide, with the key, what dropout does to each example. By
            default they are the places in the batch.

        Raises:
          ValueError: Shapes do not fit the model or the inputs, a text is padded on the left, the
            baseline is unknown, or there is a replacement where the baseline needs none, or none
            where it needs one; or heads were removed, and something is to be done to single heads.
        """
        config = self.config
        input_ids, attention_mask = jnp.asarray(input_ids), jnp.asarray(attention_mask)
        inputs = input_ids, jnp.asarray(token_type_ids), attention_mask
        _check_inputs(config, *inputs, inputs_embeds)
        given = Intervention(head_mask, replacement, map_change, part_mask, baseline)
        intervention = intervention_on(config, len(input_ids), input_ids.shape[1], given)
        if jax.tree.leaves(intervention):
            check_has_all_heads(config)
        ids = jnp.arange(len(input_ids)) if example_ids is None else jnp.asarray(example_ids)
        embeddings = Embeddings(config, name='embeddings')
        embedded, scopes = embeddings(*inputs, ids, inputs_embeds, deterministic=deterministic)
        layers = layers_of(config, deterministic)
        hidden, (states, maps, contexts) = layers(embedded, intervention, scopes, ids)
        words = None
        if config.head == MASKED_LM:
            words = embeddings.variables['params']['word']['embedding']
        head = within(self, Head(config, deterministic))
        encoded, pooled, logits = head(hidden, attention_mask, words, ids)
        contacts = None
        if config.add_contact_head:
            contacts = within(self, Contacts(config))(maps, input_ids, attention_mask)
        states = jnp.concatenate([embedded[None], states[:-1], encoded[None]])
        states, maps, contexts = (jnp.moveaxis(each, 0, 1) for each in (states, maps, contexts))
        return BertOutput(logits, pooled, states, maps, contexts, contacts)


def check_has_all_heads(config: BertConfig) -> None:
    """Raise ValueError for a model whose layers have lost heads, or are kept apart."""
    if config.pruned_heads:
        raise ValueError(
            f'Heads were removed from this model ({config.summary}), and what is gone cannot be '
            "asked about: ask the whole model, under a mask with baseline='zero', which computes "
            'the same as the removal; remove heads for use, once you know which.'
        )


def check_no_convolution(config: BertConfig) -> None:
    """Raise ValueError for a model in which something besides attention mixes tokens."""
    if config.conv_kernel_size:
        raise ValueError(
            f'The model ({config.summary}) adds a convolution over its embeddings to the first '
            'layer, which this method leaves out: bs.sweep and bs.patch have it.'
        )


def _check_inputs(config, input_ids, token_type_ids, attention_mask, inputs_embeds) -> None:
    check_shape('input_ids', input_ids, batch=None, length=None)
    batch, length = input_ids.shape
    for name, array in (('token_type_ids', token_type_ids), ('attention_mask', attention_mask)):
        check_shape(name, array, ': give the shape of input_ids', batch=batch, length=length)
    check_padding(attention_mask)
    if inputs_embeds is not None:
        width = config.embedding_size or config.hidden_size
        check_shape('inputs_embeds', inputs_embeds, batch=batch, length=length, embedding=width)


def init_params(bert: Bert, seed: int) -> dict:
    """Return fresh parameters: normal weights, biases of 0, and LayerNorm that scales by 1."""
    ids = jnp.zeros((1, 2), jnp.int32)
    params = dict(bert.init(jax.random.key(seed), ids, ids, jnp.ones_like(ids)))['params']
    return all_layers(bert.config, own_layers(bert.config, params))


def own_layers(config: BertConfig, params: dict) -> dict:
    """Return the parameters with one copy of layers and of keys and values of several uses."""
    params = own_heads(config, params)
    if config.num_hidden_groups is None:
        return params
    first = np.unique(config.groups, return_index=True)[1]
    layers = params['layers']
    if config.pruned_heads:
        return params | {'layers': {str(layer): layers[str(layer)] for layer in first}}
    return params | {'layers': jax.tree.map(lambda leaf: leaf[first], layers)}


def all_layers(config: BertConfig, params: dict) -> dict:
    """Return the parameters with all L layers and N heads: the inverse of `own_layers`."""
    params = all_heads(config, params)
    if config.num_hidden_groups is None:
        return params
    groups, layers = config.groups, params['layers']
    if config.pruned_heads:
        own = {group: layers[str(groups.index(group))] for group in groups}
        return params | {'layers': {str(at): own[group] for at, group in enumerate(groups)}}
    if len(jax.tree.leaves(layers)[0]) == config.num_hidden_layers:
        return params
    return params | {'layers': jax.tree.map(lambda leaf: leaf[np.array(groups)], layers)}


def own_heads(config: BertConfig, params: dict) -> dict:
    """Return the parameters with one copy of keys and values that heads share (EuroBERT)."""
    first = np.unique(config.key_value_heads, return_index=True)[1]
    return _with_heads(params, config.num_attention_heads, first)


def all_heads(config: BertConfig, params: dict) -> dict:
    """Return the parameters with keys and values for each head: the inverse of `own_heads`."""
    count = config.num_key_value_heads or config.num_attention_heads
    return _with_heads(params, count, np.array(config.key_value_heads))


def _with_heads(params: dict, count: int, heads: np.ndarray) -> dict:
    if len(heads) == count:
        return params

    def taken(path, leaf):
        shared = len(path) > 1 and path[-2].key in ('key', 'value') and leaf.shape[-2] == count
        return leaf[..., heads, :] if shared else leaf

    return jax.tree_util.tree_map_with_path(taken, params)


def param_shapes(bert: Bert) -> dict:
    """Return the shapes and dtypes of the parameters, without computing anything."""
    return jax.eval_shape(lambda: init_params(bert, 0))


def check_finite(logits: Float[np.ndarray, '*any C']) -> None:
    """Raise FloatingPointError if a model has predicted NaN or infinity."""
    broken = ~np.isfinite(logits).all(axis=-1)
    if broken.any():
        raise FloatingPointError(
            f'The model predicts NaN or infinity in {broken.sum():,} of {broken.size:,} cases: are '
            'its weights broken, or was it trained at too high a learning rate?'
        )
