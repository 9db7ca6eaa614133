"""How much each token of a text counts for the prediction of a classifier, by many methods.

A score is about the logit of the predicted class less the mean of the others (with two classes, the
difference of both), or about the value of a regression. Methods that follow attention know nothing
of the class, and say how much of a token reaches what the classifier reads.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Bool, Float, Int, Shaped

from bert_secrets_jax.ablation.contexts import on_devices
from bert_secrets_jax.checks import brief, check_names
from bert_secrets_jax.compute import Compute, fetch
from bert_secrets_jax.contributions import integrated
from bert_secrets_jax.contributions.layerwise import LAYERWISE, attention_graph, flow, rollout
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, tokenize
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.relevance import LINEAR, walk_back
from bert_secrets_jax.model.bert import Bert, BertOutput, check_finite
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.heads import pooled_tokens
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.progress import progress

RANDOM, TIMES_INPUT, FLOW = 'random', 'gradient x input', 'flow'
INTEGRATED, GLOBENC = 'integrated gradients', 'GlobEnc'
SOURCES: Mapping[str, str] = {
    RANDOM: 'a random order',
    'attention': 'the maps of the last layer, mean over heads',
    'rollout': 'Abnar and Zuidema 2020',
    FLOW: 'Abnar and Zuidema 2020',
    'value zeroing': 'Mohebbi et al. 2023',
    'ALTI': 'Ferrando et al. 2022',
    GLOBENC: 'Modarressi et al. 2022',
    'DecompX': 'Modarressi et al. 2023',
    TIMES_INPUT: 'Denil et al. 2014',
    'gradient norm': 'Simonyan et al. 2014',
    INTEGRATED: 'Sundararajan et al. 2017',
}
METHODS = tuple(SOURCES)
# Those whose scores say whether a token speaks for the prediction or against it.
SIGNED = ('DecompX', TIMES_INPUT, INTEGRATED)
# The share of a change of logits that integrated gradients may miss.
_COMPLETE = 0.05


@dataclasses.dataclass(frozen=True)
class TokenScores:
    """The scores of all tokens of some texts.

    Attributes:
      tokens: The wordpieces of each text.
      special: [T] for each text, whether a token is a [CLS] or [SEP] that the tokenizer added.
      logits: [E, C] The logits of the texts.
      scores: The scores [T] of each text, by the name of the method.
      cut: [E] Whether a text was longer, and cut; None if that is not known.
    """

    tokens: Sequence[Sequence[str]]
    special: Sequence[Bool[np.ndarray, ' _']]
    logits: Float[np.ndarray, 'E C']
    scores: Mapping[str, Sequence[Float[np.ndarray, ' _']]]
    cut: Bool[np.ndarray, ' E'] | None = None

    __repr__ = brief


def token_scores(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    methods: Sequence[str] = METHODS,
    steps: integrated.Steps = integrated.STEPS,
    seed: int = 0,
    compute: Compute = Compute(),
) -> TokenScores:
    """Score the tokens of texts by several methods.

    Most methods take a few passes. Integrated gradients take a pass forward and back for each step,
    value zeroing takes as long as a pass for each token, and flow some milliseconds for each token
    on one core.

    Args:
      pretrained: A model with a classifier of texts, or a regression.
      texts: Strings, pairs of strings or examples, all of one kind (see `as_examples`).
      methods: The names of the methods: 'random', 'attention' (of the last layer), 'rollout',
        'flow', 'value zeroing', 'ALTI', 'GlobEnc', 'DecompX', 'gradient x input', 'gradient norm',
        'integrated gradients'.
      steps: The number of points on the path of integrated gradients.
      seed: The seed of the random scores.
      compute: How it is computed; nothing is written into its folder.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: A method is unknown, the model has no classifier of texts or has lost heads, there
        are no texts, or single sentences are mixed with pairs.
      FloatingPointError: The model predicts NaN or infinity.
    """
    check_classifies(pretrained)
    encoded = tokenize(pretrained.tokenizer, texts, max_length=compute.max_length)
    how = {'methods': methods, 'steps': steps, 'seed': seed, 'compute': compute}
    return scores_of(pretrained, encoded, **how)


def check_classifies(pretrained: Pretrained) -> None:
    """Raise TypeError for something else than a whole model, ValueError without a classifier."""
    check_whole(pretrained)
    config = pretrained.config
    if config.head != SEQUENCES or not config.num_labels:
        raise ValueError(
            f'The model ({config.summary}) has no classifier of whole texts: give one that has, '
            'like what bs.finetune or bs.from_pretrained(..., label_names=...) returns.'
        )


def check_methods(methods: Sequence[str]) -> None:
    """Raise ValueError for a method that does not exist or comes twice, or if there is none."""
    check_names('methods', methods, METHODS)


def scores_of(
    pretrained: Pretrained,
    encoded: Encoded,
    *,
    methods: Sequence[str],
    steps: int = integrated.STEPS,
    seed: int,
    compute: Compute,
) -> TokenScores:
    """Score the tokens of tokenised texts; arguments as in `token_scores`."""
    check_methods(methods)
    methods = tuple(methods)
    params, _, place = on_devices(pretrained.params, compute.mesh)
    batches = bucket(encoded, **compute.encoding)
    count, lengths = len(encoded.lengths), encoded.lengths.tolist()
    logits = np.zeros((count, pretrained.config.num_labels), np.float32)
    scores, incomplete = {method: [np.zeros(0)] * count for method in methods}, 0
    for batch in progress(batches, 'Scores of tokens', size=lambda batch: batch.size):
        computed = fetch(_score(pretrained.bert, methods, steps, params, place(batch)))
        if FLOW in methods:
            computed['scores'][FLOW] = flows = np.zeros_like(computed['read'])
            for row, length in enumerate(np.asarray(batch.lengths).tolist()):
                if length:
                    graph = computed['graph'][row, :, :length, :length]
                    flows[row, :length] = flow(graph, computed['read'][row, :length])
        for row, example in enumerate(np.asarray(batch.example).tolist()):
            if example < 0:
                continue
            logits[example] = computed['logits'][row]
            change, error = computed['missed'][:, row].tolist()
            incomplete += abs(error) > _COMPLETE * max(abs(change), 1.0)
            for method, values in computed['scores'].items():
                scores[method][example] = values[row, : lengths[example]]
    check_finite(logits)
    if incomplete:
        logging.warning(
            'Integrated gradients of %d of %d texts miss over %.0f %% of what they should sum to: '
            'take more steps than %d. In ESM, more steps do not help.',
            *(incomplete, count, 100 * _COMPLETE, steps),
        )
    if RANDOM in methods:
        scores[RANDOM] = [
            np.random.default_rng([seed, example]).random(length)
            for example, length in enumerate(lengths)
        ]
    return TokenScores(
        *tokens_of(encoded),
        logits=logits,
        scores={method: tuple(scores[method]) for method in methods},
        cut=encoded.cut,
    )


def tokens_of(
    encoded: Encoded,
) -> tuple[tuple[tuple[str, ...], ...], tuple[Bool[np.ndarray, ' _'], ...]]:
    """Return the wordpieces of each text, and whether the tokenizer added them."""
    convert, lengths = encoded.tokenizer.convert_ids_to_tokens, encoded.lengths.tolist()
    ids, special = (
        [row[:length] for row, length in zip(rows, lengths, strict=True)]
        for rows in (encoded.input_ids, encoded.special)
    )
    return tuple(tuple(convert(each.tolist())) for each in ids), tuple(special)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _score(
    bert: Bert, methods: tuple[str, ...], steps: int, params: Mapping[str, Any], batch: Batch
) -> dict[str, Any]:
    """Return the logits of a batch, the scores that a device computes, and what flow is made of."""
    mask = batch.attention_mask
    output = bert.apply({'params': params}, **batch.inputs)
    graph = attention_graph(output.attentions)
    # The weight of each token in what the classifier reads, [B, T].
    tokens = jnp.broadcast_to(jnp.eye(mask.shape[-1])[None], (*mask.shape, mask.shape[-1]))
    read = pooled_tokens(bert.config, tokens, mask)

    def read_rows(matrix: Float[Array, 'B T S']):
        return product('BT,BTS->BS', read, matrix)

    scores: dict[str, Any] = {}
    missed = jnp.zeros((2, len(mask)))
    for method in methods:
        if method in LAYERWISE:
            # Over layers, GlobEnc multiplies norms.
            matrices = LAYERWISE[method](bert, params, output, mask, shares=method != GLOBENC)
            scores[method] = read_rows(rollout(matrices)[:, -1])
            if method == GLOBENC:
                total = scores[method].sum(axis=-1, keepdims=True)
                scores[method] /= jnp.where(total > 0, total, 1)
        elif method == 'attention':
            scores[method] = read_rows(output.attentions[:, -1].mean(axis=1))
        elif method == 'rollout':
            scores[method] = read_rows(rollout(graph)[:, -1])
        elif method == 'DecompX':
            scores[method] = token_contributions(bert, params, output, mask, prediction_weights)
        elif method == INTEGRATED:
            assert output.logits is not None
            weights = prediction_weights(output.logits)
            found, change = integrated.integrated_gradients(
                bert, params, batch, weights, steps=steps
            )
            scores[method] = found
            missed = jnp.stack([change, change - (found * mask).sum(axis=-1)])
        elif method in (TIMES_INPUT, 'gradient norm'):
            entered, gradients = _gradients(bert, params, batch)
            if method == TIMES_INPUT:
                scores[method] = (gradients * entered).sum(axis=-1)
            else:
                scores[method] = jnp.linalg.norm(gradients, axis=-1)
    scores = {method: each * mask for method, each in scores.items()}
    outputs = {'logits': output.logits, 'scores': scores, 'missed': missed}
    return outputs | ({'graph': graph, 'read': read} if FLOW in methods else {})


def token_contributions(
    bert: Bert,
    params,
    output: BertOutput,
    attention_mask: Shaped[Array, 'B T'],
    of_logits: Callable,
) -> Float[Array, 'B T']:
    """Return what each token contributes to the logits, weighted by `of_logits`; padding has 0.

    At an input, everything that is not linear is a factor whose value is known: maps, the standard
    deviations of LayerNorm, and for each activation f its slope f(x) / x. With these the logits are
    linear in the embeddings and the biases, and the contribution of an embedding is its product
    with the gradient: one backward pass gives all. It walks down the network of
    `measure.relevance` (DecompX, Modarressi et al. 2023).

    By default, they distribute every bias over the tokens at each step, in proportion to the
    magnitudes of their dot products with it, which is not linear. Here biases have a part of their
    own. Their code, told to leave biases out, still gives tokens that of the values of layer 1 (.02
    where scores reach .48: medians of 40 texts, MiniLM on SST-2); here it counts as the others do.
    In gated feed-forward layers, which they do not treat, the activated factor is a constant.
    """
    gradient, _ = walk_back(LINEAR, bert, params, output, attention_mask, of_logits)
    return (gradient * output.hidden_states[:, 0]).sum(axis=-1) * attention_mask


def margins(chosen: Int[Array, ' R'], classes: int) -> Float[Array, 'R C']:
    """Return the weights of logits whose sum is the chosen one less the mean of all others."""
    one = jax.nn.one_hot(chosen, classes)
    return one - (1 - one) / max(classes - 1, 1)


def prediction_weights(logits: Float[Array, 'B C']) -> Float[Array, 'B C']:
    """Return the weights of the logits in what scores are about, as the module says."""
    return margins(logits.argmax(axis=-1), logits.shape[-1])


def _gradients(bert: Bert, params, batch: Batch):
    """Return the embeddings, and the gradients [B, T, D] of what scores are about at them."""
    entered, scopes = integrated.embedded(bert, params, batch)
    logits, back = jax.vjp(
        functools.partial(integrated.logits_from, bert, params, batch, scopes), entered
    )
    return entered, *back(prediction_weights(logits))
