"""Embeddings of texts, with all heads or without some.

Shapes: E texts, D width of an embedding, M masks, L layers, N heads.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Shaped

from bert_secrets_jax.ablation.contexts import Means
from bert_secrets_jax.ablation.resumable import encoding_for, sweep_all
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.data.tasks import Text, prepared
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.weights import Pretrained, with_pooling


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
    descent = Descent.start(pretrained, every, baseline, replacement, compute)
    examples = prepared(config.pooling, texts, prompt)
    encoding = encoding_for(descent, compute)
    batches = encode(pretrained.tokenizer, examples, passes=descent.passes, **encoding)
    descent = descent.replacing(pretrained, batches, donor_seed, compute.mesh)
    what, unit = f'Embedding ({len(every)} masks)', 'masks x texts'
    if len(every) == 1:
        what, unit = 'Embedding', 'texts'
    found = sweep_all(pretrained, batches, descent, folder=compute.folder, what=what, unit=unit)
    return found.reshape(*masks.shape[:-2], *found.shape[1:])


def as_embedder(pretrained: Pretrained) -> Pretrained:
    """Return a model that says how it pools, and has no head of its own, with its embedding."""
    config = pretrained.config
    known = config.pooling is not None and not config.pooling.refused
    return with_pooling(pretrained) if known and not config.has_head else pretrained
