"""The constant that best replaces what a head does (Li and Janson 2024, "Optimal ablation").

A head that is removed does harm in two ways: what it knew is gone, and what replaces its output (0,
a mean, the output on another text) may mislead the layers above. Li and Janson (2024, section 2)
replace it by the constant that does the least harm, the same at every token of every text:

    min over a of E[loss(model with the output of the head replaced by a)]

What is lost then is what no constant can give. The constants are found by gradient (Adam) on
training examples, and belong to their loss: measure what they cost on other examples, by
`sweep(..., baseline='mean', replacement=constants)`. Li and Janson take the divergence of the
predictions from those of the intact model as loss.

Shapes: B examples of a batch, M masks, L layers, N heads, H width of a head, K passes.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.ablation.contexts import check_split, mean_contexts, on_devices
from bert_secrets_jax.ablation.masks import single_heads
from bert_secrets_jax.ablation.sweep import default_chunk_tokens
from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import Batch, listed
from bert_secrets_jax.measure.gradients import Loss
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, check_pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.progress import progress

_ADAM = optax.scale_by_adam()
# A gradient holds what all layers have computed, so that a call takes fewer tokens than in a sweep.
_SHARE_OF_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constant outputs that cost least when they replace those of heads.

    Attributes:
      masks: [M, L, N] The masks: 1 keeps a head, 0 replaces its output by a constant.
      outputs: [M, L, N, H] The constants under each mask, which are made for each other where a
        mask replaces several heads. Those of heads that it keeps are the mean outputs.
      start: [M] The mean loss over the training examples with the mean outputs.
      curve: [K, M] The same during each pass over the training examples, with the constants as
        they were when an example's turn came.
      end: [M] The same with `outputs`, at most `start`: a mask whose training has made it worse
        keeps the mean outputs.
      slope_left: [M] The norm of the gradient of the mean loss at the end, in shares of that at the
        start. Near a minimum it is near 0; otherwise more passes, or a greater learning rate, find
        better constants. It is 0 where nothing depends on the constants.
    """

    masks: Float[np.ndarray, 'M L N']
    outputs: Float[np.ndarray, 'M L N H']
    start: Float[np.ndarray, ' M']
    curve: Float[np.ndarray, 'K M']
    end: Float[np.ndarray, ' M']
    slope_left: Float[np.ndarray, ' M']

    __repr__ = brief

    def of_heads(self) -> Float[np.ndarray, 'L N H']:
        """Return the constants of all heads in one array, as `sweep` takes a replacement.

        It serves all masks at once. Heads that no mask replaces have their mean output.

        Raises:
          ValueError: Two masks replace the same head, and have different constants for it.
        """
        replaced = self.masks != 1
        twice = np.argwhere(replaced.sum(axis=0) > 1)
        if len(twice):
            raise ValueError(
                f'{len(twice)} heads, such as {head_name(*twice[0].tolist())}, have a constant '
                'under each of several masks: sweep mask by mask, with replacement=outputs[mask].'
            )
        own = np.where(replaced.any(axis=0), replaced.argmax(axis=0), 0)
        return np.take_along_axis(self.outputs, own[None, :, :, None], axis=0)[0]


def optimal_constants(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    loss: Loss,
    *,
    masks: Shaped[np.ndarray, 'M L N'] | None = None,
    passes: int = 10,
    learning_rate: float = 0.1,
    seed: int = 0,
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Constants:
    """Find the constants that best replace the outputs of heads, and show the progress.

    All masks are independent of each other and start from the mean outputs over the same examples.
    After each batch, Adam takes a step (Kingma and Ba 2015) whose size falls to 0 along a cosine.
    The time is that of `passes + 2` gradients of each example under each mask.

    Args:
      pretrained: The model.
      batches: The batches of training examples with what the loss reads, such as those of
        `with_labels`; all are held. The fewer examples a batch has, the more steps a pass takes.
      loss: A function from the output of the model and a batch to the loss of each example, as in
        `gradients.gradient_importance`. If you pass the same function again, nothing is compiled
        again.
      masks: The sets of heads to replace, as in `sweep`; None replaces each head alone.
      passes: The number of passes over the training examples.
      learning_rate: The size of the first steps, in root mean squares of a layer's mean outputs.
      seed: The seed of the order of the batches, which changes with each pass.
      chunk_tokens: The number of tokens, of all examples and masks together, that one call
        computes at once, but at least a batch; None takes a quarter of that of a sweep.
      mesh: The devices, along an axis `data`, over which the examples of each batch are split; None
        uses one device.

    Raises:
      TypeError: The model is not a `Pretrained`, or a single batch is given.
      ValueError: There are no examples, the masks do not fit the model, a batch cannot be split
        over the devices, or the passes or the learning rate are not above 0.
      FloatingPointError: The loss is NaN or infinite.
    """
    check_pretrained(pretrained)
    config = pretrained.config
    if passes < 1 or not 0 < learning_rate < np.inf:
        raise ValueError(f'{passes=} and {learning_rate=} must be above 0.')
    masks = single_heads(config) if masks is None else np.asarray(masks, np.float32)
    shape = config.num_hidden_layers, config.num_attention_heads
    if masks.ndim != 3 or masks.shape[1:] != shape or not len(masks):
        raise ValueError(
            f'masks must be [masks, layers, heads] = [M, {shape[0]}, {shape[1]}] with at least '
            f'one mask, got {list(masks.shape)}.'
        )
    batches = list(listed(batches))
    means = mean_contexts(pretrained, batches, mesh=mesh)
    params, devices, place = on_devices(pretrained.params, mesh)
    tokens = devices * (chunk_tokens or max(default_chunk_tokens() // _SHARE_OF_TOKENS, 1))
    unit = np.sqrt((means**2).mean(axis=(1, 2), keepdims=True))
    unit = np.where(unit > 0, unit, 1)[None]
    first = np.broadcast_to(means, (len(masks), *means.shape))
    outputs, moments = jnp.asarray(first), _ADAM.init(jnp.asarray(first))
    # The first round and the last one only look.
    rng = np.random.default_rng(seed)
    rounds = [np.arange(len(batches)), *(rng.permutation(len(batches)) for _ in range(passes))]
    rounds.append(rounds[0])
    work = [(number, index) for number, order in enumerate(rounds) for index in order]
    curve, slopes = np.zeros((len(rounds), len(masks))), np.zeros((2, *first.shape))
    steps = passes * len(batches)
    for done, (number, index) in enumerate(
        progress(
            work,
            f'Constants ({len(masks)} masks)',
            size=lambda each: batches[each[1]].size * len(masks),
            unit='masks x examples',
        ),
        start=-len(batches),
    ):
        batch = batches[index]
        check_split(batch, devices)
        at_once = max(tokens // batch.input_ids.size, 1)
        losses, slope = _slopes(
            pretrained.bert, loss, min(at_once, len(masks)), params, place(batch), masks, outputs
        )
        if 0 < number <= passes:
            rate = learning_rate * (1 + np.cos(np.pi * done / steps)) / 2
            outputs, moments = _step(outputs, moments, slope, rate * unit)
        else:
            slopes[int(number > 0)] += slope
        curve[number] += losses
    examples = sum(batch.size for batch in batches)
    return _best(masks, first, np.asarray(outputs), curve / examples, slopes)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _slopes(
    bert: Bert, loss: Loss, at_once: int, params: Any, batch: Batch, masks, outputs
) -> tuple[Float[Array, ' M'], Float[Array, 'M L N H']]:
    """Return the loss of a batch under each mask, summed over its examples, and its gradient.

    Args:
      bert, loss: The model and the loss.
      at_once: How many masks are computed at once.
      params: The parameters of the model.
      batch: The batch.
      masks: [M, L, N] The masks.
      outputs: [M, L, N, H] What replaces the outputs of heads under each mask.
    """

    def total(output, mask):
        found = bert.apply(
            {'params': params},
            **batch.inputs,
            head_mask=mask,
            baseline='mean',
            replacement=output,
        )
        return jnp.where(batch.example >= 0, loss(found, batch), 0).sum()

    def of_mask(given):
        return jax.value_and_grad(total)(*given)

    return jax.lax.map(of_mask, (outputs, masks), batch_size=at_once)


@jax.jit
def _step(outputs, moments, slope, rate):
    """Return the outputs [M, L, N, H] and Adam's moments after a step of size [1, L, 1, 1]."""
    direction, moments = _ADAM.update(slope, moments)
    return outputs - rate.astype(outputs.dtype) * direction, moments


def _best(
    masks: Float[np.ndarray, 'M L N'],
    first: Float[np.ndarray, 'M L N H'],
    outputs: Float[np.ndarray, 'M L N H'],
    curve: Float[np.ndarray, 'rounds M'],
    slopes: Float[np.ndarray, 'two M L N H'],
) -> Constants:
    """Return the constants, or the mean outputs where these are better.

    Args:
      masks: The masks.
      first, outputs: What replaces the outputs of heads before and after training.
      curve: The mean losses before, during and after training.
      slopes: The gradients before and after training.
    """
    if not np.isfinite(curve).all():
        raise FloatingPointError(
            'The loss is NaN or infinite: is it defined for all labels, and are the weights sound?'
        )
    start, end = curve[0], curve[-1]
    norms = np.sqrt((slopes**2).sum(axis=(2, 3, 4)))
    left = np.where(norms[0] > 0, norms[1] / np.where(norms[0] > 0, norms[0], 1), 0)
    worse = end > start
    return Constants(
        masks=masks,
        outputs=np.where(worse[:, None, None, None], first, outputs),
        start=start,
        curve=curve[1:-1],
        end=np.minimum(start, end),
        slope_left=np.where(worse, norms[0] > 0, left).astype(np.float64),
    )
