"""Outlier dimensions: a few dimensions whose LayerNorm stands out in many layers.

Kovaleva, Kulshreshtha, Rogers and Rumshisky (2021, "BERT Busters: Outlier dimensions that disrupt
Transformers") look at the LayerNorm that ends each layer of BERT. The same few dimensions have a
scale or a bias far from that of all others in one layer after the other. To disable a dimension is
to set both to 0 in all layers. Dimensions count from 0, as published.

Shapes: L different layers, D hidden width, K outliers, M sets of dimensions, R draws of random
sets, B examples of a batch, E examples, C classes.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bert_secrets_jax.ablation.contexts import on_devices
from bert_secrets_jax.ablation.layers import Static, read_words
from bert_secrets_jax.ablation.masked_lm import losses_of_texts
from bert_secrets_jax.ablation.sweep import default_chunk_tokens, one_behind
from bert_secrets_jax.checks import brief
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.contributions.scores import check_classifies
from bert_secrets_jax.data.encoding import Batch, encode, in_order
from bert_secrets_jax.data.masking import MaskedBatch, Masking, mask_words
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.stream import check_split
from bert_secrets_jax.model.bert import Bert, own_layers
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.weights import Pretrained, check_masked_lm, check_whole, without_head
from bert_secrets_jax.progress import progress
from bert_secrets_jax.ranges import Range

# How many standard deviations from the mean of its layer a parameter stands out, as published.
SIGMA = 3.0
# With fewer random sets, none can be so rare that its rank is significant.
FEWEST_DRAWS = 19
# The expected number of dimensions that chance alone makes outliers.
_BY_CHANCE = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class OutlierDimensions:
    """The scales and biases of the output LayerNorm, and the dimensions in which they stand out.

    Attributes:
      sigma: How many standard deviations from the mean of its layer a parameter stands out.
      at_least: In how many layers the scale or the bias of an outlier stands out; more than L where
        even all are too few to tell outliers from chance.
      by_chance: The number of dimensions that would be called outliers if layers had nothing to do
        with each other; 0 if none can be called so.
      dimensions: The outliers, those that stand out in most layers first.
    """

    scale: Float[np.ndarray, 'L D']
    bias: Float[np.ndarray, 'L D']
    sigma: float
    at_least: int
    by_chance: float
    dimensions: Int[np.ndarray, ' K']

    __repr__ = brief

    @property
    def deviations(self) -> dict[str, Float[np.ndarray, 'L D']]:
        """How far each scale and each bias is from the mean of its layer, in its deviations."""
        return {'scale': deviations(self.scale), 'bias': deviations(self.bias)}

    @property
    def stands_out(self) -> dict[str, Bool[np.ndarray, 'L D']]:
        """Where each scale and each bias stands out."""
        return {name: np.abs(each) > self.sigma for name, each in self.deviations.items()}

    @property
    def layers(self) -> Int[np.ndarray, ' D']:
        """In how many layers the scale or the bias of each dimension stands out."""
        return np.logical_or(*self.stands_out.values()).sum(axis=0)


def output_norm(pretrained: Pretrained) -> tuple[Float[np.ndarray, 'L D'], ...]:
    """Return scales and biases of the LayerNorm that ends each layer, shared ones once."""
    check_whole(pretrained)
    config = pretrained.config
    _check_ends_with_norm(config)
    norm = own_layers(config, pretrained.params)['layers']['output_norm']
    return tuple(np.asarray(norm[name], np.float64) for name in ('scale', 'bias'))


def ends_with_norm(config: BertConfig) -> bool:
    """Return whether each layer of a model ends with LayerNorm, and whether that has a bias."""
    return not config.family.norm_first and config.norm_bias


def _check_ends_with_norm(config: BertConfig) -> None:
    if not ends_with_norm(config):
        raise ValueError(
            f'Layers of this model ({config.summary}) do not end with a LayerNorm of scale and '
            'bias, in which outlier dimensions are looked for: give a model of another family, '
            "such as 'bert' or 'roberta'."
        )


def deviations(values: Float[np.ndarray, 'L D']) -> Float[np.ndarray, 'L D']:
    """Return how far values are from the mean of their layer, in its standard deviations.

    Where all values of a layer are the same, none is far.
    """
    apart = values - values.mean(axis=1, keepdims=True)
    spread = apart.std(axis=1, keepdims=True)
    # Differences between equal values are rounding.
    alike = spread <= 1e-12 * np.abs(values).max(axis=1, keepdims=True)
    return np.where(alike, 0.0, apart / np.where(alike, 1.0, spread))


def least_layers(stands_out: Bool[np.ndarray, 'L D']) -> tuple[int, float]:
    """Return in how many layers a dimension must stand out to be called an outlier: at least half.

    It is more where 0.05 dimensions or more would be outliers by chance, if layers had nothing to
    do with each other; L + 1 if no number suffices. Second is how many chance makes.
    """
    layers, width = stands_out.shape
    # The number of layers in which a dimension stands out is a sum of independent coins.
    chance = functools.reduce(
        lambda found, share: np.convolve(found, [1 - share, share]),
        stands_out.mean(axis=1),
        np.ones(1),
    )
    expected = width * np.cumsum(chance[::-1])[::-1]
    for count in range(-(-layers // 2), layers + 1):
        if expected[count] <= _BY_CHANCE:
            return count, float(expected[count])
    return layers + 1, 0.0


def find_outliers(pretrained: Pretrained, *, sigma: float | int = SIGMA) -> OutlierDimensions:
    """Find outlier dimensions from the weights of a model alone.

    A parameter stands out if it is more than `sigma` standard deviations, three as published, from
    the mean of its layer. That it does so consistently over layers is not defined there. Here the
    scale or the bias must stand out in at least half of the layers, and in more where that could be
    chance (`least_layers`).

    Raises:
      TypeError: The model is something else.
      ValueError: Heads were removed from the model, its layers do not end with LayerNorm, or
        `sigma` is not above 0.
    """
    scale, bias = output_norm(pretrained)
    stands_out = np.logical_or(*(np.abs(deviations(each)) > sigma for each in (scale, bias)))
    at_least, by_chance = least_layers(stands_out)
    layers = stands_out.sum(axis=0)
    order = np.argsort(-layers, kind='stable')
    outliers = order[layers[order] >= at_least]
    return OutlierDimensions(scale, bias, float(sigma), at_least, by_chance, outliers)


def without_dimensions(pretrained: Pretrained, dimensions: Sequence[int]) -> Pretrained:
    """Return the model with scale and bias of the output LayerNorm 0 in some dimensions, from 0.

    Raises:
      TypeError: The model is something else.
      ValueError: Heads were removed from the model, its layers do not end with LayerNorm, or it has
        no such dimensions.
    """
    check_whole(pretrained)
    (kept,) = _kept(pretrained.config, [dimensions])
    return dataclasses.replace(pretrained, params=_disabled(pretrained.params, kept))


def _kept(config: BertConfig, sets: Sequence[Sequence[int]]) -> Float[np.ndarray, 'M D']:
    """Return 0 at the dimensions of each set, and 1 at the others."""
    kept = np.ones((len(sets), config.hidden_size), np.float32)
    for row, dimensions in zip(kept, sets, strict=True):
        check_dimensions(config, dimensions)
        row[np.array(dimensions, int)] = 0
    return kept


def check_dimensions(config: BertConfig, dimensions: Sequence[int]) -> None:
    """Raise ValueError if a model has no such dimensions, or nothing to disable in them."""
    _check_ends_with_norm(config)
    chosen = np.asarray(dimensions, object).reshape(-1).tolist()
    allowed = Range(0, config.hidden_size - 1)
    if not all(each in allowed for each in chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f'Dimensions are different whole numbers from 0 to {config.hidden_size - 1}, not '
            f'{chosen}.'
        )


def _disabled(params: dict, kept: Shaped[jax.Array, ' D'] | Shaped[np.ndarray, ' D']) -> dict:
    """Return parameters whose output LayerNorm is multiplied by 0 or 1 in each dimension."""
    layers = params['layers']
    norm = {name: each * kept[None] for name, each in layers['output_norm'].items()}
    return params | {'layers': layers | {'output_norm': norm}}


def random_sets(
    width: int, dimensions: Sequence[int] | Int[np.ndarray, ' K'], *, draws: int, seed: int = 0
) -> Int[np.ndarray, 'R K']:
    """Draw different sets of as many other dimensions; all of them where there are no more."""
    count = len(dimensions)
    others = np.setdiff1d(np.arange(width), dimensions)
    if not 0 < count <= len(others):
        raise ValueError(
            f'Of {width} dimensions there is no set of {count} to compare {count} others with: '
            'give at least one, and at most half of them.'
        )
    if math.comb(len(others), count) <= draws:
        return np.array(list(itertools.combinations(others.tolist(), count)))
    rng, sets = np.random.default_rng(seed), {}
    while len(sets) < draws:
        sets[tuple(np.sort(rng.choice(others, count, replace=False)).tolist())] = None
    return np.array(list(sets))


def rank_p(effect: float, random: Float[np.ndarray, ' R']) -> float:
    """Return the share of random sets that do as much as a set, or may (NaN), itself among them."""
    if math.isnan(effect):
        return math.nan
    return float((1 + (~(random < effect)).sum()) / (1 + len(random)))


def losses_without(
    pretrained: Pretrained,
    texts: Sequence[Text],
    sets: Sequence[Sequence[int]],
    *,
    masking: Masking | None = None,
    compute: Compute = Compute(),
) -> tuple[Float[np.ndarray, 'M E'], Int[np.ndarray, ' E']]:
    """Compute the loss of a masked LM without each set of dimensions, and show the progress.

    The same wordpieces are hidden for all sets. The loss of a text, in nats, is added up over its
    hidden wordpieces, whose number is second.
    """
    check_whole(pretrained)
    check_masked_lm(pretrained)
    masked = mask_words(pretrained.tokenizer, texts, masking=masking, **compute.encoding)
    return losses_of_texts(_answers(pretrained, masked.batches, sets, compute)[..., 0], masked)


def logits_without(
    pretrained: Pretrained,
    examples: Sequence[Text],
    sets: Sequence[Sequence[int]],
    *,
    compute: Compute = Compute(),
) -> Float[np.ndarray, 'M E C']:
    """Compute the logits of a classifier without each set of dimensions, and show the progress."""
    check_classifies(pretrained)
    batches = encode(pretrained.tokenizer, examples, **compute.encoding)
    return _answers(pretrained, batches, sets, compute)


def _answers(pretrained, batches, sets, compute: Compute) -> Float[np.ndarray, 'M E C']:
    kept = _kept(pretrained.config, sets)
    params, devices, place = on_devices(pretrained.params, compute.mesh)
    tokens = devices * (compute.chunk_tokens or default_chunk_tokens())
    logits = []
    for batch in progress(
        batches,
        f'Disabled dimensions ({len(kept)} sets)',
        size=lambda batch: batch.size * len(kept),
        unit='sets x examples',
    ):
        check_split(batch, devices)
        at_once = min(max(tokens // batch.input_ids.size, 1), len(kept))
        placed = place(batch)
        # The last call repeats its last set: all calls have one shape and one compilation.
        calls = -(-len(kept) // at_once)
        rows = np.minimum(np.arange(calls * at_once), len(kept) - 1).reshape(calls, at_once)
        answers = one_behind(
            (None, _answer(pretrained.bert, params, placed, kept[call])) for call in rows
        )
        logits.append(np.concatenate([answer for _, answer in answers])[: len(kept)])
    return in_order([batch.example for batch in batches], logits, axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _answer(bert: Bert, params, batch: Batch, kept):
    """Return the logits [M, B, C] of a batch; of a masked LM as in `sweep`."""
    config = bert.config

    def without(kept):
        changed = _disabled(params, kept)
        if config.head != MASKED_LM:
            return bert.apply({'params': changed}, **batch.inputs).logits
        assert isinstance(batch, MaskedBatch)
        encoder = without_head(Pretrained(bert, changed, None))
        states = encoder.bert.apply({'params': encoder.params}, **batch.inputs).hidden_states
        # Scores of all wordpieces are computed for the hidden ones alone.
        words, setting = (changed['embeddings']['word']['embedding'], Static(config, 'uniform'))
        return read_words(setting, changed, words, states[:, -1], batch.places, batch.words)

    return jax.vmap(without)(jnp.asarray(kept))
