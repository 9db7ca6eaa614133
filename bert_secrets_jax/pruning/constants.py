"""The constant that best replaces what a head does (Li and Janson 2024, "Optimal ablation").

A head that is removed does harm in two ways: what it knew is gone, and what replaces its output (0,
a mean, the output on another text) may mislead the layers above. Li and Janson (2024, section 2)
replace it by the constant that does the least harm, the same at every token of every text:

    min over a of E[loss(model with the output of the head replaced by a)]

The constants belong to their loss, for which they take the divergence of the predictions from those
of the intact model. Measure what they cost on other examples than they were learnt from, by
`sweep(..., baseline='mean', replacement=constants)`.

Shapes: B examples of a batch, M masks, L layers, N heads, H width of a head, K passes.
"""

import dataclasses
import functools
import operator
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.ablation.contexts import mean_contexts, on_devices
from bert_secrets_jax.ablation.masks import check_masks, single_heads
from bert_secrets_jax.ablation.sweep import default_chunk_tokens
from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import Batch, listed
from bert_secrets_jax.devices import fetch
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.measure.gradients import Loss, total_loss
from bert_secrets_jax.measure.stream import check_split
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.progress import progress

_ADAM = optax.scale_by_adam()
# A gradient holds what all layers have computed, so that a call takes fewer tokens than in a sweep.
_SHARE_OF_TOKENS = 4
# The share of the gradient at the start that may be left where constants count as found.
SETTLED = 0.1


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constant outputs that cost least when they replace those of heads.

    Attributes:
      outputs: The constants under each mask, made for each other where it replaces several heads.
        Those of heads that it keeps are the mean outputs.
      start: The mean loss over the training examples with the mean outputs.
      curve: The same during each pass; of masks that are trained no further, the best loss so far.
      end: The same with `outputs`, at most `start` and that with constants of 0.
      slope_left: The norm of the gradient at the end, in shares of that at the start: at most
        SETTLED near a minimum, or on a flat stretch on the way. Otherwise more passes, or a greater
        learning rate, find better constants.
    """

    FORMAT: ClassVar[int] = 2

    masks: Float[np.ndarray, 'M L N']
    outputs: Float[np.ndarray, 'M L N H']
    start: Float[np.ndarray, ' M']
    curve: Float[np.ndarray, 'K M']
    end: Float[np.ndarray, ' M']
    slope_left: Float[np.ndarray, ' M']

    __repr__ = brief

    def of_heads(self) -> Float[np.ndarray, 'L N H']:
        """Return the constants of all heads in one array, as `sweep` takes a replacement.

        Heads that no mask replaces have their mean output. Two masks may not replace the same head.
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
    restarts: int = 3,
    learning_rate: float = 0.1,
    seed: int = 0,
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Constants:
    """Find the constants that best replace the outputs of heads, and show the progress.

    Masks are independent, and None replaces each head alone. All start from the mean outputs over
    the same examples, which are held. After each batch, Adam takes a step (Kingma and Ba 2015). Its
    size falls to 0 along a cosine within `passes`, from `learning_rate` root mean squares of a
    layer's mean outputs. Masks whose gradient is then more than SETTLED of what it was are trained
    again, up to `restarts` times. They begin with the best constants so far, which may be 0, and
    steps of half the size. The time is that of `passes + 3` gradients of each example under each
    mask, and of `passes + 1` more for each restart. The loss is as in
    `gradients.gradient_importance`; the same function compiles nothing again.
    """
    config = pretrained.config
    if passes < 1 or not 0 < learning_rate < np.inf:
        raise ValueError(f'{passes=} and {learning_rate=} must be above 0.')
    if restarts < 0:
        raise ValueError(f'{restarts=} must be at least 0.')
    masks = single_heads(config) if masks is None else check_masks(config, masks)
    batches = list(listed(batches))
    means = mean_contexts(pretrained, batches, mesh=mesh)
    params, devices, place = on_devices(pretrained.params, mesh)
    tokens = devices * (chunk_tokens or max(default_chunk_tokens() // _SHARE_OF_TOKENS, 1))
    unit = np.sqrt((means**2).mean(axis=(1, 2), keepdims=True))
    unit = np.where(unit > 0, unit, 1)[None]
    examples = sum(batch.size for batch in batches)
    rng = np.random.default_rng(seed)

    def losses_and_slopes(index, masks, outputs):
        batch = batches[index]
        check_split(batch, devices)
        at_once = min(max(tokens // batch.input_ids.size, 1), len(masks))
        losses, slope = _slopes(
            pretrained.bert, loss, at_once, params, place(batch), masks, outputs
        )
        losses = fetch(losses)
        if not np.isfinite(losses).all():
            raise FloatingPointError(
                'The loss is NaN or infinite: is it defined for all labels, and are the weights '
                'sound?'
            )
        return np.asarray(losses, np.float64), slope

    def told(masks):
        return {
            'what': f'Constants ({len(masks)} masks)',
            'size': lambda index: batches[index].size * len(masks),
            'unit': 'masks x examples',
        }

    def look(masks, outputs):
        in_turn = progress(range(len(batches)), **told(masks))
        computed = [losses_and_slopes(index, masks, outputs) for index in in_turn]
        losses, slopes = (
            functools.reduce(operator.add, map(fetch, each)) for each in zip(*computed, strict=True)
        )
        return _Found(fetch(outputs), losses / examples, slopes)

    def train(masks, outputs, rate):
        outputs = jnp.asarray(outputs)
        work = [index for _ in range(passes) for index in rng.permutation(len(batches))]

        def take(state, index):
            losses, slope = losses_and_slopes(index, masks, state.params)
            size = rate * (1 + np.cos(np.pi * state.step / len(work))) / 2
            moved = _step(state.params, state.optimizer, slope, size * unit)
            return loop.TrainState(state.step + 1, *moved), losses

        begin = loop.TrainState(0, outputs, _ADAM.init(outputs))
        state, record = loop.train(take, begin, work, **told(masks))
        losses = np.reshape([losses for _, losses in record.pending], (passes, -1, len(masks)))
        return state.params, losses.sum(axis=1) / examples

    mean = np.broadcast_to(means, (len(masks), *means.shape))
    at_mean = look(masks, mean)
    best = at_mean.better(look(masks, np.where((masks != 1)[..., None], 0, mean)), slice(None))
    curves = []
    for restart in range(restarts + 1):
        # All are trained from the mean once: that may lead elsewhere than 0 does.
        rows = np.flatnonzero((restart == 0) | (best.slope_left(at_mean) > SETTLED))
        if not len(rows):
            break
        begin = (at_mean if restart == 0 else best).outputs[rows]
        outputs, curve = train(masks[rows], begin, learning_rate / 2**restart)
        curves.append(np.tile(best.loss, (passes, 1)))
        curves[-1][:, rows] = curve
        best = best.better(look(masks[rows], outputs), rows)
    return Constants(
        masks=masks,
        outputs=best.outputs,
        start=at_mean.loss,
        curve=np.concatenate(curves),
        end=best.loss,
        slope_left=best.slope_left(at_mean),
    )


@dataclasses.dataclass(frozen=True)
class _Found:
    """Constants, with the mean loss and the summed gradient under each mask."""

    outputs: Float[np.ndarray, 'M L N H']
    loss: Float[np.ndarray, ' M']
    slope: Float[np.ndarray, 'M L N H']

    def better(self, other: '_Found', rows: np.ndarray | slice) -> '_Found':
        """Return these with the other ones where they are better; the others are of some rows."""
        chosen = np.arange(len(self.loss))[rows]
        is_better = other.loss < self.loss[rows]
        fields = {name: np.array(each) for name, each in vars(self).items()}
        for name, each in fields.items():
            each[chosen[is_better]] = getattr(other, name)[is_better]
        return _Found(**fields)

    def slope_left(self, start: '_Found') -> Float[np.ndarray, ' M']:
        """Return the norms of gradients in shares of those at the start; 0 where these are 0."""
        now, then = (np.sqrt((each.slope**2).sum(axis=(1, 2, 3))) for each in (self, start))
        return np.where(then > 0, now / np.where(then > 0, then, 1), 0).astype(np.float64)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _slopes(
    bert: Bert, loss: Loss, at_once: int, params: Any, batch: Batch, masks, outputs
) -> tuple[Float[Array, ' M'], Float[Array, 'M L N H']]:
    """Return the loss of a batch under each mask, summed over its examples, and its gradient."""

    def total(output, mask):
        replaced = {'head_mask': mask, 'baseline': 'mean', 'replacement': output}
        return total_loss(loss, bert.apply({'params': params}, **batch.inputs, **replaced), batch)

    loss_and_slope = jax.value_and_grad(total)
    return jax.lax.map(lambda given: loss_and_slope(*given), (outputs, masks), batch_size=at_once)


@jax.jit
def _step(outputs, moments, slope, rate):
    """Return the outputs [M, L, N, H] and Adam's moments after a step of size [1, L, 1, 1]."""
    direction, moments = _ADAM.update(slope, moments)
    return outputs - rate.astype(outputs.dtype) * direction, moments
