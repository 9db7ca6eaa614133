"""Heads of two models, paired by their maps, as their numbers mean nothing across models."""

import dataclasses
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from bert_secrets_jax.analyses.common.inputs import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.common.tables import table
from bert_secrets_jax.analyses.declaration import with_subject
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.statistics import Maps, Marks, head_divergences
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.result import Result, measured

_ROUNDS = 9999  # random pairings


class Matching(Result):
    """Pairs of heads of two models, matched on half of the texts and measured on the rest.

    Attributes:
      divergences: [L, N, M, K] The Jensen-Shannon divergence in nats, a mean over the tokens of the
        second half, between heads of the first model and of the second (M layers of K heads).
      first, second: [P, 2] The layer and head of each pair, from 0, in either model. The model with
        fewer heads has all of them matched.
      texts: The number of texts that the divergences are measured on.
      by_chance: [R] The mean divergence of as many pairs, drawn at random.
    """

    title = 'Heads of two models that behave alike'

    divergences: Float[np.ndarray, 'L N M K']
    first: np.ndarray
    second: np.ndarray
    texts: int
    by_chance: Float[np.ndarray, ' R']

    @property
    def matched(self) -> Float[np.ndarray, ' P']:
        """The divergence of each pair."""
        return self.divergences[*self.first.T, *self.second.T]

    @property
    def same_place(self) -> float:
        """The mean divergence of heads with one number; NaN for models of other shapes."""
        layers, heads, *other = self.divergences.shape
        if [layers, heads] != other:
            return float('nan')
        return float(np.einsum('lnln->ln', self.divergences).mean())

    def frames(self):
        places = 1 + np.concatenate([self.first, self.second], axis=1)
        columns = zip(('layer_a', 'head_a', 'layer_b', 'head_b'), places.T, strict=True)
        caption = 'Matched heads, on held-out texts (0: equal maps; 0.69: no token shared).'
        return {'pairs': table(caption, **dict(columns), divergence=self.matched)}

    def findings(self):
        chance = float(self.by_chance.mean())
        values = {'matched heads': float(self.matched.mean())}
        if not np.isnan(self.same_place):
            values['heads with the same number'] = self.same_place
        return [
            measured(
                name,
                value,
                p=(1 + int((self.by_chance <= value + 1e-12).sum())) / (1 + len(self.by_chance)),
                template='{Name} differ by {estimate:.2g} nats, random pairs by {chance:.2g}.',
                numbers={'Name': name.capitalize(), 'chance': chance},
                unit='nats',
                sample=self.texts,
                sample_of='texts',
                null=chance,
                source='matching of heads by their maps',
            )
            for name, value in values.items()
        ]

    def notes(self):
        return [
            'Heads are matched on half of the texts and measured on the other half.',
            'Matched heads of unrelated models are closer than random pairs, too.',
        ]


@with_subject
def matching(
    one: Pretrained,
    other: Pretrained,
    texts: Sequence[Text],
    *,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
) -> Matching:
    """Match the heads of two models by their maps on the same texts.

    Pairs have the least total divergence (`scipy.optimize.linear_sum_assignment`) on every other
    text from the first; the rest of the texts measures them. The models may differ in depth and
    number of heads, but must read the same wordpieces.

    Args:
      one, other: The models.
      texts: The texts that both read.
      seed: The seed of the random pairs.
      settings: As in `special_tokens`.

    Raises:
      ValueError: The models' tokenizers give other wordpieces, or there are fewer than two texts.
    """
    check_enough('texts', texts, 2, ': one to match heads on, one to measure them')
    choosing, divergences = (
        _divergences(one, other, texts[half::2], settings).astype(np.float64) for half in (0, 1)
    )
    first, second, by_chance = pairs_of(choosing, divergences, seed)
    return Matching(divergences, first, second, len(texts) // 2, by_chance)


def pairs_of(
    choosing: Float[np.ndarray, 'L N M K'], divergences: Float[np.ndarray, 'L N M K'], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the closest pairs by one half's divergences, and random pairs' mean in the other."""
    shapes = choosing.shape[:2], choosing.shape[2:]
    sizes = [math.prod(shape) for shape in shapes]
    flat = divergences.reshape(sizes)
    pairs = scipy.optimize.linear_sum_assignment(choosing.reshape(sizes))
    rng = np.random.default_rng(seed)
    drawn = [[rng.permutation(size)[: min(sizes)] for size in sizes] for _ in range(_ROUNDS)]
    by_chance = np.array([flat[*each].mean() for each in drawn])
    first, second = (np.stack(each, 1) for each in map(np.unravel_index, pairs, shapes))
    return first, second, by_chance


def _divergences(one: Pretrained, other: Pretrained, texts: Sequence[Text], settings: TextSettings):
    """Return the divergence of each head of one model from each of the other on these texts."""
    settings = dataclasses.replace(settings, annotations=None)  # They are those of all texts.
    batches, others = (
        batches_of(model, texts, settings, annotated=False) for model in (one, other)
    )
    ids = ([batch.input_ids for batch in each] for each in (batches, others))
    if len(batches) != len(others) or not all(map(np.array_equal, *ids)):
        raise ValueError('The models read other wordpieces: maps can only be compared on the same.')
    shown = with_progress(batches, 'Matching')
    mean = stream((one, other), shown, {'divergences': _between})['divergences'].mean
    shape = other.config.num_hidden_layers, other.config.num_attention_heads
    return mean.reshape(*mean.shape[:2], *shape)


def _between(
    attentions: Maps, others: Float[Array, 'M K T S'], marks: Marks
) -> tuple[Array, Array]:
    """Divergence of each head of one model from each of another [L, N, H], a mean over tokens."""
    layers, heads, *square = attentions.shape
    rows = jnp.concatenate([each.reshape(-1, *square) for each in (attentions, others)])
    values, count = head_divergences(rows[None], marks)
    return values[0, : layers * heads, layers * heads :].reshape(layers, heads, -1), count
