"""Contributions of each token to the logits (DecompX, Modarressi et al. 2023).

At an input, everything that is not linear is a factor whose value is known: maps, the standard
deviations of LayerNorm, and for each activation f its slope f(x) / x. With these the logits are
linear in the embeddings and the biases, and the contribution of an embedding is its product with
the gradient: one backward pass gives all. It walks down the network of `measure.relevance`.

By default, they distribute every bias over the tokens at each step, in proportion to the magnitudes
of their dot products with it, which is not linear. Here biases have a part of their own. Their
code, told to leave biases out, still gives tokens that of the values of layer 1 (.02 where scores
reach .48: medians of 40 texts, MiniLM on SST-2); here it counts as the others do. In gated
feed-forward layers, which they do not treat, the activated factor is a constant.
"""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Int, Shaped

from bert_secrets_jax.measure.relevance import LINEAR, walk_back
from bert_secrets_jax.model.bert import Bert, BertOutput
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained, check_whole


def token_contributions(
    bert: Bert,
    params,
    output: BertOutput,
    attention_mask: Shaped[Array, 'B T'],
    of_logits: Callable,
) -> Float[Array, 'B T']:
    """Return what each token contributes to the logits, weighted by `of_logits`; padding has 0."""
    gradient, _ = walk_back(LINEAR, bert, params, output, attention_mask, of_logits)
    return (gradient * output.hidden_states[:, 0]).sum(axis=-1) * attention_mask


def margins(chosen: Int[Array, ' R'], classes: int) -> Float[Array, 'R C']:
    """Return the weights of logits whose sum is the chosen one less the mean of all others."""
    one = jax.nn.one_hot(chosen, classes)
    return one - (1 - one) / max(classes - 1, 1)


def check_classifies(pretrained: Pretrained) -> None:
    """Raise TypeError for something else than a whole model, ValueError without a classifier."""
    check_whole(pretrained)
    config = pretrained.config
    if config.head != SEQUENCES or not config.num_labels:
        raise ValueError(
            f'The model ({config.summary}) has no classifier of whole texts: give one that has, '
            'like what bs.finetune or bs.from_pretrained(..., label_names=...) returns.'
        )
