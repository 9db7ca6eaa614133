"""Which heads of two models do alike, where they have no common numbers."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from bert_secrets_jax.analyses.texts import TextSettings, batches_of
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.divergence import head_divergences
from bert_secrets_jax.measure.statistics import Maps, Marks
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress
from bert_secrets_jax.runs.findings import measured
from bert_secrets_jax.runs.result import Result, Subject, framed

_ROUNDS = 9999  # random pairings


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Matching(Result):
    """The pairs of heads, one of each model, whose maps differ least in all.

    Attributes:
      divergences: [L, N, M, K] The mean Jensen-Shannon divergence per token, in nats, of each head
        of the first model from each of the second, which has M layers of K heads.
      first, second: [P, 2] The layer and head of each pair, from 0, in either model. The model with
        fewer heads has all of them matched.
      texts: The number of texts that both models read.
      by_chance: [R] The mean divergence of as many pairs, drawn at random.
    """

    title: ClassVar[str] = 'Heads of two models that do alike'

    subject: Subject
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
        rows = [(*place, value) for place, value in zip(places.tolist(), self.matched, strict=True)]
        columns = ('layer_a', 'head_a', 'layer_b', 'head_b', 'divergence')
        caption = 'Pairs of heads that differ least in all (0: equal maps; 0.69: no token shared).'
        return {'pairs': framed(columns, rows, caption)}

    def findings(self):
        chance = float(self.by_chance.mean())
        fields = {'unit': 'nats', 'sample': self.texts, 'sample_of': 'texts', 'null': chance}
        fields['source'] = 'matching of heads by their maps'
        template = 'Matched heads differ by {estimate:.3f} nats, random pairs by {chance:.3f}'
        numbers = {'chance': chance, 'same': self.same_place}
        if not np.isnan(self.same_place):
            template += ', heads with the same number by {same:.3f}'
        matched = self.matched.mean()
        found = [
            measured('matched heads', matched, template=f'{template}.', numbers=numbers, **fields)
        ]
        if not np.isnan(self.same_place):
            # Pairs with one number are chosen before anything is seen, so they can be tested.
            as_close = int((self.by_chance <= self.same_place + 1e-12).sum())
            p_value = (1 + as_close) / (1 + len(self.by_chance))
            found.append(
                measured('heads with the same number', self.same_place, p=p_value, **fields)
            )
        return found

    def notes(self):
        return ['Matched heads differ less than random pairs even in unrelated models.']


def matching(
    one: Pretrained,
    other: Pretrained,
    texts: Sequence[Text],
    *,
    seed: int = 0,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> Matching:
    """Match the heads of two models by their maps on the same texts.

    The pairs have the least total divergence (`scipy.optimize.linear_sum_assignment`). The models
    may differ in depth and number of heads, but must read the same wordpieces.

    Args:
      one, other: The models.
      texts: The texts that both read.
      seed: The seed of the random pairs.
      settings, subject: As in `special_tokens`.

    Raises:
      ValueError: The tokenizers of the models give other wordpieces for these texts.
    """
    batches, others = (
        batches_of(model, texts, settings, annotated=False) for model in (one, other)
    )
    alike = all(
        np.array_equal(ours.input_ids, theirs.input_ids)
        for ours, theirs in zip(batches, others, strict=False)
    )
    if len(batches) != len(others) or not alike:
        raise ValueError('The models read other wordpieces: maps can only be compared on the same.')
    shown = progress(batches, 'Matching', size=lambda batch: batch.size)
    table = stream((one, other), shown, {'divergences': _between})['divergences']
    shape = other.config.num_hidden_layers, other.config.num_attention_heads
    divergences = table.mean.astype(np.float64).reshape(*table.mean.shape[:2], *shape)
    flat = divergences.reshape(-1, shape[0] * shape[1])
    pairs = scipy.optimize.linear_sum_assignment(flat)
    rng = np.random.default_rng(seed)
    count, sizes = len(pairs[0]), flat.shape
    by_chance = [
        flat[rng.permutation(sizes[0])[:count], rng.permutation(sizes[1])[:count]].mean()
        for _ in range(_ROUNDS)
    ]
    first, second = (
        np.stack(np.unravel_index(places, each), axis=1)
        for places, each in zip(pairs, (divergences.shape[:2], shape), strict=True)
    )
    examples = sum(batch.size for batch in batches)
    return Matching(subject or Subject(), divergences, first, second, examples, np.array(by_chance))


def _between(
    attentions: Maps, others: Float[Array, 'M K T S'], marks: Marks
) -> tuple[Array, Array]:
    """Divergence of each head of one model from each of another [L, N, H], a mean over tokens."""
    layers, heads, *square = attentions.shape
    rows = jnp.concatenate([each.reshape(-1, *square) for each in (attentions, others)])
    values, count = head_divergences(rows[None], marks)
    return values[0, : layers * heads, layers * heads :].reshape(layers, heads, -1), count
