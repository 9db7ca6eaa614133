"""Contributions of each token and of biases to the logits (DecompX, Modarressi et al. 2023).

At an input, everything that is not linear is a factor whose value is known: maps, the standard
deviations of LayerNorm, and for each activation f its slope f(x) / x. With these the logits are
linear in the embeddings and the biases, and the contribution of an embedding is its product with
the gradient: one backward pass gives all. It walks down the network of `measure.relevance`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.relevance import product, walk_back
from bert_secrets_jax.model.bert import Bert, BertOutput
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained, check_whole


class Linearised:
    """Steps of a network that is linear at an input, whose backward pass carries gradients."""

    def linear(self, equation: str, inputs: Array, weights: Array) -> Array:
        return product(equation, inputs, weights)

    def scaled(self, inputs: Array, factors: Array) -> Array:
        return inputs * jax.lax.stop_gradient(factors)


def token_contributions(
    bert: Bert,
    params,
    output: BertOutput,
    attention_mask: Shaped[Array, 'B T'],
    of_logits: Callable,
) -> Float[Array, 'B T']:
    """Return what each token contributes to the logits, weighted by `of_logits`; padding has 0."""
    gradient, _ = walk_back(Linearised(), bert, params, output, attention_mask, of_logits)
    return (gradient * output.hidden_states[:, 0]).sum(axis=-1) * attention_mask


@dataclasses.dataclass(frozen=True)
class Decomposition:
    """The logits of one text as a sum.

    Attributes:
      tokens: The T wordpieces.
      contributions: [T, C] The contribution of each token to each logit: that of its embedding,
        with position, segment, and the LayerNorm over them.
      biases: [C] The contribution of all biases of the model, with those of the classifier.
    """

    tokens: Sequence[str]
    contributions: Float[np.ndarray, 'T C']
    biases: Float[np.ndarray, ' C']

    __repr__ = brief

    @property
    def logits(self) -> Float[np.ndarray, ' C']:
        """The logits of the model."""
        return self.contributions.sum(axis=0) + self.biases


def decompose(
    pretrained: Pretrained, texts: Sequence[Text], *, max_length: int | None = None
) -> list[Decomposition]:
    """Decompose the logits of a classifier into contributions of tokens and of biases.

    Source: Modarressi et al. 2023, "DecompX". Their default distributes every bias over the tokens
    at each step, in proportion to the magnitudes of their dot products with it, which is not
    linear. Here biases are a part of their own. Their code, told to leave biases out, still
    gives tokens that of the values of layer 1 (.02 where scores reach .48: medians of 40 texts,
    MiniLM on SST-2); here it counts as the others do. In gated feed-forward layers, which they do
    not treat, the activated factor is a constant.

    A text takes a forward pass and about twice as long for each class. What they compute takes as
    long as a forward pass for each token.

    Args:
      pretrained: A model with a classifier of texts, or a regression.
      texts: Strings, pairs of strings or examples, all of one kind (see `as_examples`).
      max_length: The greatest number of tokens, as in `bs.encode`.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: The model has no classifier of texts or has lost heads, there are no texts, or
        single sentences are mixed with pairs.
    """
    check_classifies(pretrained)
    encoded = tokenize(pretrained.tokenizer, texts, max_length=max_length)
    longest, decompositions = encoded.input_ids.shape[1], []
    for example, length in enumerate(encoded.lengths.tolist()):
        # Few lengths, so few compilations.
        batch = encoded.batch(np.array([example]), min(-(-length // 16) * 16, longest))
        logits, contributions = _class_contributions(pretrained.bert, pretrained.params, batch)
        contributions = np.asarray(contributions[0, :, :length]).T
        ids = encoded.input_ids[example, :length].tolist()
        tokens = pretrained.tokenizer.convert_ids_to_tokens(ids)
        biases = np.asarray(logits[0]) - contributions.sum(axis=0)
        decompositions.append(Decomposition(tokens, contributions, biases))
    return decompositions


def check_classifies(pretrained: Pretrained) -> None:
    """Raise TypeError for something else than a whole model, ValueError without a classifier."""
    check_whole(pretrained)
    config = pretrained.config
    if config.head != SEQUENCES or not config.num_labels:
        raise ValueError(
            f'The model ({config.summary}) has no classifier of whole texts: give one that has, '
            'like what bs.finetune or bs.from_pretrained(..., label_names=...) returns.'
        )


@functools.partial(jax.jit, static_argnums=0)
def _class_contributions(bert, params, batch):
    """Return the logits [B, C] and the contributions [B, C, T]."""
    output = bert.apply({'params': params}, **batch.inputs)

    def to_one(weights):
        return token_contributions(bert, params, output, batch.attention_mask, lambda _: weights)

    classes = jnp.eye(bert.config.num_labels)
    each = jnp.broadcast_to(classes[:, None], (len(classes), *output.logits.shape))
    return output.logits, jnp.moveaxis(jax.vmap(to_one)(each), 0, 1)
