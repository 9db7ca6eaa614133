"""Which pairs of tokens make two texts similar: integrated Jacobians, and exact deletion.

The embedding of a text less that of its reference is a sum of the parts of its tokens: the integral
of the Jacobian along the path from the reference to the text, times what the token has beyond the
reference. So the product of two embeddings, each less that of its reference, is a sum over pairs of
tokens (Moeller et al. 2023, arXiv 2310.05703; 2024, arXiv 2402.02883).

They compute the whole Jacobian, with a backward pass for each dimension of the embedding. The part
of a token needs only its product with one vector: one forward derivative for each token.

Shapes: B examples, T and S tokens of two texts, D hidden width, E texts, V variants of texts.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bert_secrets_jax.ablation.contexts import on_devices
from bert_secrets_jax.ablation.sweep import default_chunk_tokens
from bert_secrets_jax.checks import brief, check_enough, check_name
from bert_secrets_jax.compute import Compute, fetch
from bert_secrets_jax.contributions import integrated
from bert_secrets_jax.contributions.faithfulness import kept_tokens, outputs_of, plan_of
from bert_secrets_jax.contributions.scores import tokens_of
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, tokenize
from bert_secrets_jax.data.tasks import prepared
from bert_secrets_jax.model.bert import Bert, check_finite
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.weights import Pretrained, check_whole, with_pooling
from bert_secrets_jax.progress import progress

SIMILARITIES = ('cosine', 'dot')


@dataclasses.dataclass(frozen=True, eq=False)
class PairedTokens:
    """The similarity of two texts, and what pairs of their tokens have to do with it.

    Attributes:
      tokens: The wordpieces of the first text [T] and of the second [S].
      special: For both, whether a token is a [CLS] or [SEP] that the tokenizer added.
      similarity: The similarity of the texts.
      reference: The part of it that is due to references: with embeddings a and b and those of
        the references r and s, `a s + r b - r s`, divided by the lengths of a and b for a cosine.
      contributions: [T, S] The contribution of each pair. They sum to the rest, up to `error`.
      without_first: [T] The similarity if a token of the first text is deleted; NaN if special.
      without_second: [S] The same for the second text.
      without_both: [T, S] The similarity if a token of each text is deleted.
    """

    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    special: tuple[Bool[np.ndarray, ' T'], Bool[np.ndarray, ' S']]
    similarity: float
    reference: float
    contributions: Float[np.ndarray, 'T S']
    without_first: Float[np.ndarray, ' T']
    without_second: Float[np.ndarray, ' S']
    without_both: Float[np.ndarray, 'T S']

    __repr__ = brief

    @property
    def error(self) -> float:
        """The sum of contributions and reference, less the similarity."""
        return float(self.contributions.sum()) + self.reference - self.similarity

    @property
    def interactions(self) -> Float[np.ndarray, 'T S']:
        """The effect of two tokens beyond that of each, by deletion; NaN for special tokens.

        If the embedding were a sum over tokens, and the similarity a dot product, the interaction
        of two tokens would be their contribution.
        """
        alone = self.without_first[:, None] + self.without_second[None]
        return self.similarity - alone + self.without_both


def paired_tokens(
    pretrained: Pretrained,
    pairs: Sequence[tuple[str, str]],
    *,
    layer: int | None = None,
    steps: integrated.Steps = integrated.STEPS,
    similarity: str = 'cosine',
    pooling: str | Pooling | None = None,
    prompt: str | None = None,
    compute: Compute | None = None,
) -> list[PairedTokens]:
    """Say which pairs of tokens make two texts similar, by integrated Jacobians and by deletion.

    The path goes from the hidden states of the reference to those of the text, as they leave a
    layer. The reference is the text with [PAD] in the place of all tokens but the special ones.

    A text takes a pass forward and about two for each token, through the layers above alone, for
    each step, and a whole pass for each token that is deleted.

    Source: Moeller et al. 2024, arXiv 2402.02883, section 2. They divide terms of the reference by
    its own length where the similarity is a cosine, and sum over equal steps.

    Args:
      pretrained: An encoder of texts.
      pairs: The pairs of texts.
      layer: The number of layers below the hidden states whose tokens are paired: 0 is the
        embeddings of wordpieces with their positions. None takes all but two, as in their example:
        the states there are known to belong to their tokens more than those above do.
      steps: The number of points on the path.
      similarity: 'cosine', or 'dot' for the product of embeddings before any normalisation.
      pooling, prompt, compute: As in `bs.embed`.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: An argument is unknown or out of range, there are no pairs, or the model has lost
        heads or does not say how it pools.
      FloatingPointError: An embedding is NaN or infinite.
    """
    check_whole(pretrained)
    pretrained = with_pooling(pretrained, pooling, normalised=False)
    assert pretrained.config.pooling is not None
    compute = (compute or Compute()).within(pretrained.config)
    check_name('similarity', similarity, SIMILARITIES)
    layer = paired_layer(pretrained, layer)
    check_enough('pairs of texts', pairs)
    texts = [pair[side] for side in (0, 1) for pair in pairs]
    examples = prepared(pretrained.config.pooling, texts, prompt)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=compute.max_length)
    parts, references = _parts_of(pretrained, encoded, layer, steps, compute)
    tokens, special = tokens_of(encoded)
    plan = plan_of(special)
    outputs = outputs_of(pretrained, kept_tokens(encoded, plan.text, plan.kept), compute)
    check_finite(outputs)
    whole = outputs[plan.whole]
    # Special tokens are never left out.
    without = [np.full((len(each), outputs.shape[1]), np.nan) for each in special]
    for each, of_text, numbers in zip(without, special, plan.without_one, strict=True):
        each[~of_text] = outputs[numbers]
    if similarity == 'cosine':
        lengths = np.linalg.norm(whole, axis=1, keepdims=True)
        parts = [each / length for each, length in zip(parts, lengths, strict=True)]
        whole, references = whole / lengths, references / lengths
        without = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in without]
    found = []
    for both in enumerate(range(len(pairs), len(texts))):
        (a, b), (r, s) = whole[[*both]], references[[*both]]
        (of_a, of_b), (one, other) = ([each[text] for text in both] for each in (parts, without))
        found.append(
            PairedTokens(
                tokens=(tokens[both[0]], tokens[both[1]]),
                special=(special[both[0]], special[both[1]]),
                similarity=float(a @ b),
                reference=float(a @ s + r @ b - r @ s),
                contributions=of_a @ of_b.T,
                without_first=one @ b,
                without_second=other @ a,
                without_both=one @ other.T,
            )
        )
    return found


def paired_layer(pretrained: Pretrained, layer: int | None) -> int:
    """Return the number of layers below the states that are paired, as for `paired_tokens`."""
    layers = pretrained.config.num_hidden_layers
    layer = max(layers - 2, 0) if layer is None else layer
    check_name('The number of layers below, layer', layer, range(layers))
    return layer


def _parts_of(
    pretrained: Pretrained, encoded: Encoded, layer: int, steps: int, compute: Compute
) -> tuple[list[np.ndarray], Float[np.ndarray, 'E D']]:
    """Return the parts [T, D] of the tokens of each text, and the embeddings of the references."""
    params, devices, place = on_devices(pretrained.params, compute.mesh)
    batches = bucket(encoded, **compute.encoding)
    parts = [np.zeros(0)] * len(encoded.lengths)
    references = [np.zeros(0)] * len(parts)
    tokens = devices * (compute.chunk_tokens or default_chunk_tokens())
    for batch in progress(batches, 'Parts of tokens', size=lambda batch: batch.size):
        block = max(tokens // batch.input_ids.size, 1)
        how = pretrained.bert, layer, steps, block
        of_tokens, starts = fetch(_parts(*how, params, place(batch)))
        for row, text in enumerate(np.asarray(batch.example).tolist()):
            if text >= 0:
                parts[text] = of_tokens[: encoded.lengths[text], row]
                references[text] = starts[row]
    return parts, np.stack(references)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _parts(
    bert: Bert, layer: int, steps: int, block: int, params, batch: Batch
) -> tuple[Float[jax.Array, 'T B D'], Float[jax.Array, 'B D']]:
    """Return the part of each token, and the embedding of the reference; `block` tokens at once."""
    reference = batch.inputs | {'input_ids': integrated.reference_ids(bert, batch)}
    end, start = (
        bert.apply({'params': params}, **inputs).hidden_states[:, layer]
        for inputs in (batch.inputs, reference)
    )
    # Positions are those of the text along the path, whatever a family reads them from.
    _, scopes = integrated.embedded(bert, params, batch)

    pooled = functools.partial(integrated.logits_from, bert, params, batch, scopes, first=layer)

    def of_each_token(share):
        _, forward = jax.linearize(pooled, start + share * (end - start))

        def of_token(at):
            return forward((end - start) * at[None, :, None])

        return jax.lax.map(of_token, jnp.eye(start.shape[1]), batch_size=block)

    return integrated.integral(of_each_token, steps), pooled(start)
