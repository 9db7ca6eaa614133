"""Fine-tuning of embeddings on pairs of texts: `finetune_embedding`.

Shapes: B pairs of a micro-batch, D width of an embedding, E pairs.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_secrets_jax.checks import check_enough, check_name
from bert_secrets_jax.data.encoding import Encoded, Paired, bucket, tokenize
from bert_secrets_jax.data.tasks import Example, Text, as_examples, prepared
from bert_secrets_jax.finetune.config import FinetuneConfig, listed_seeds
from bert_secrets_jax.finetune.losses import cosines
from bert_secrets_jax.finetune.metrics import evaluate
from bert_secrets_jax.finetune.outcome import Finetuned
from bert_secrets_jax.finetune.seeds import logits_of
from bert_secrets_jax.finetune.steps import Data
from bert_secrets_jax.finetune.train import finished, train_models
from bert_secrets_jax.model.config import EMBEDDING
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.heads import unit_length
from bert_secrets_jax.model.weights import Pretrained, with_pooling
from bert_secrets_jax.ranges import Positive

COSINE, CONTRASTIVE = LOSSES = 'cosine', 'contrastive'
# The cosine is multiplied by this before the softmax, as in sentence-transformers.
SCALE = 20.0
_METRICS = ('pearson', 'spearman')


def finetune_embedding(
    pretrained: Pretrained,
    train: Sequence[Text],
    dev: Sequence[Example],
    *,
    loss: str = COSINE,
    scale: Positive = SCALE,
    pooling: str | Pooling | None = None,
    folder: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    **settings: Any,
) -> Finetuned:
    """Fine-tune the embeddings of a model on pairs of texts, once per seed.

    As in `bs.finetune`, a folder lets the same call go on after an interruption. The models of the
    outcome give embeddings: `bs.embed(tuned.models[0], texts)`. Texts are read as there, with the
    model's prompt, and cut to `max_length` tokens if the model reads more.

    Args:
      pretrained: The model to start from.
      train: Pairs of texts. For 'cosine' they have labels, the wanted cosines, from -1 to 1. For
        'contrastive' they belong together, and labels other than 1 are refused.
      dev: Pairs of texts with labels from -1 to 1. Correlations of cosine and label are measured.
      loss: 'cosine', the squared error of the cosine, or 'contrastive', the cross entropy of a
        text's partner among all second texts of the batch (Henderson et al. 2017, section 4.2).
        The latter learns from the whole batch at once: `micro_batch` is `batch_size`.
      scale: The factor of the cosine in the softmax of 'contrastive'.
      pooling: As in `bs.with_pooling`.
      folder, mesh: As in `bs.finetune`.
      **settings: Those of `bs.FinetuneConfig`, such as `seeds`, `epochs` or `learning_rate`.

    Raises:
      ValueError: A setting or a label is out of range, there are no pairs, the model does not say
        how it pools, or the folder holds another fine-tuning.
      TypeError: The model is not a `Pretrained`, or the texts are no pairs.
    """
    check_name('loss', loss, LOSSES)
    config = FinetuneConfig(**settings)
    config.check_layers(pretrained.config)
    if loss == CONTRASTIVE:
        config = dataclasses.replace(config, micro_batch=config.batch_size)
    model = with_pooling(pretrained, pooling)
    pooled = model.config.pooling
    assert pooled is not None
    labelled = [_pairs(train, 'Training', loss), _pairs(dev, 'Dev', COSINE)]
    # A loss and its scale are as much a setting as others.
    others = {'head': EMBEDDING, 'loss': loss, 'scale': scale}
    inputs = model, labelled[0], labelled[1], 'pretrained'
    found = finished(folder, config, inputs, **others)
    if found is not None:
        return found
    most = min(config.max_length, model.config.longest)

    def read(texts: Sequence[Any]) -> Encoded:
        return tokenize(model.tokenizer, prepared(pooled, texts), max_length=most)

    sides = [list(zip(*(each.texts for each in pairs), strict=True)) for pairs in labelled]
    labels = [np.array([each.label for each in pairs], np.float64) for pairs in labelled]
    data = Data(
        train=Paired(*map(read, sides[0])),
        train_labels=labels[0],
        train_ids=[each.id for each in labelled[0]],
        dev=bucket(read([*sides[1][0], *sides[1][1]]), max_length=most),
        dev_labels=labels[1],
        metrics=_METRICS,
        head=EMBEDDING,
        evaluate=functools.partial(_evaluate, labels[1]),
    )
    return train_models(
        [model] * len(listed_seeds(config.seeds)),
        data,
        config,
        ('similarity',),
        folder=folder,
        mesh=mesh,
        loss=_loss_of(loss, scale),
    )


def _pairs(texts: Sequence[Text], split: str, loss: str) -> list[Example]:
    """Return pairs with an id and a label each; refuse what the loss cannot learn from."""
    examples = as_examples(texts)
    check_enough(f'{split.lower()} pairs', examples)
    found = []
    for each in examples:
        if each.text_b is None:
            raise TypeError(f'{split} example {each.place} is a single text: give pairs.')
        label = 1.0 if each.label is None and loss == CONTRASTIVE else each.label
        if label is None or not -1 <= label <= 1:
            raise ValueError(
                f'{split} pair {each.place} has the label {label}: give the wanted cosine, from -1 '
                'to 1 (grades of STS-B divided by 5).'
            )
        if loss == CONTRASTIVE and label != 1:
            raise ValueError(
                f'{split} pair {each.place} has the label {label}: pairs of a contrastive loss '
                'belong together, so leave out the others.'
            )
        found.append(dataclasses.replace(each, label=float(label)))
    return found


@functools.lru_cache(maxsize=8)
def _loss_of(loss: str, scale: float):
    """Return the same function for the same settings: jit knows it by its identity."""

    def of_pairs(bert, params, batch, labels, key, *, embeds, fixed) -> Float[Array, ' _']:
        del fixed
        pairs = len(labels)
        # Dropout differs between the two texts of a pair.
        side = jnp.arange(2 * pairs) // pairs
        logits = logits_of(bert, params, batch, key, embeds, 2 * batch.example + side)
        one, other = jnp.split(logits, 2)
        if loss == COSINE:
            each = (cosines(one, other) - labels) ** 2
        else:
            scores = scale * unit_length(one) @ unit_length(other).T
            # Filler rows are nobody's partner.
            real = (batch.example[:pairs] >= 0)[None]
            scores = jnp.where(real, scores, jnp.finfo(jnp.float32).min)
            each = jax.nn.logsumexp(scores, axis=1) - jnp.diagonal(scores)
        # The rows of second texts are counted with the first.
        return jnp.concatenate([each, jnp.zeros_like(each)])

    return of_pairs


def _evaluate(
    labels: np.ndarray, metrics: Sequence[str], embeddings: Float[np.ndarray, '_ D']
) -> dict[str, float]:
    found = np.asarray(cosines(*np.split(embeddings, 2)), np.float64)
    return evaluate(metrics, found[:, None], labels)
