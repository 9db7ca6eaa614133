"""BERT's optimisers for one model, its learning-rate schedule, and how far its parts move.

The parts are the embeddings, each layer, and the head: whatever stands on the layers. How far each
of them moves in training is recorded at no extra pass.

Shapes: S seeds, R recorded steps, P parts, L layers, M the four measures.
"""

import functools
from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from bert_secrets_jax.names import named_parts

NAMES = ('adamw', 'bert_adam')
SCHEDULES = LINEAR, CONSTANT = 'linear', 'constant'
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-6
# The norm of the gradient, before it is clipped, and of the update; the distance of the weights
# from where they started, as it is and relative to the norm of these weights.
MEASURES = 'gradient_norm', 'update_norm', 'distance', 'relative_distance'
# Every step would take up to a tenth of its time. The longer a training, the fewer are recorded.
_EVERY, _MOST = 4, 1000


def make_schedule(
    learning_rate: float, steps: int, warmup: float, kind: str = LINEAR
) -> optax.Schedule:
    """Return a rate that rises linearly from 0 in the warmup, then falls to 0; or is constant.

    Step n of a warmup of W steps, counted from 0, has n / W of the rate, and the first step after
    it has all. So is `get_linear_schedule_with_warmup` of transformers. Its Trainer rounds W up;
    here W is rounded to the nearest, and never takes all steps.
    """
    if kind == CONSTANT:
        return optax.constant_schedule(learning_rate)
    rising = min(round(warmup * steps), max(steps - 1, 0))
    return optax.join_schedules(
        [
            optax.linear_schedule(0, learning_rate, max(rising, 1)),
            optax.linear_schedule(learning_rate, 0, max(steps - rising, 1)),
        ],
        [rising],
    )


def make_optimizer(
    name: str,
    schedule: optax.Schedule,
    *,
    weight_decay: float,
    clip: float,
    layer_decay: float = 1.0,
    freeze: Collection[str] = (),
) -> optax.GradientTransformation:
    """Return an optimiser of one model, 'adamw' or 'bert_adam', which the authors used.

    Settings are as in `FinetuneConfig`. What is frozen does not count when gradients are clipped.

    The latter clips each tensor separately, and does not correct Adam's moments for having started
    at 0. So early steps are too large, up to 6.5 times. This is one reason why some runs on small
    tasks never leave the majority class (Mosbach et al. 2021, Zhang et al. 2021).
    """
    moments = {
        'adamw': (
            optax.clip_by_global_norm(clip),
            optax.scale_by_adam(b1=_BETA1, b2=_BETA2, eps=_EPSILON),
        ),
        'bert_adam': (clip_each(clip), scale_by_bert_adam()),
    }
    before = [_scale_parts(1.0, freeze)] if freeze else []
    after = [_scale_parts(layer_decay, freeze)] if freeze or layer_decay != 1 else []
    return optax.chain(
        *before,
        *moments[name],
        optax.add_decayed_weights(weight_decay, mask=decays),
        *after,
        optax.scale_by_learning_rate(schedule),
    )


def _scale_parts(decay: float, freeze: Collection[str]) -> optax.GradientTransformation:
    """Multiply layers by `decay` once for each layer above (Howard and Ruder 2018), or by 0."""

    def scale(updates, params):
        places, count = _places(updates)
        # The last layer has the full rate, like the head.
        above = np.maximum(np.arange(count)[::-1] - 1, 0)
        learns = [name not in freeze for name in named_parts(count)]
        factors = np.where(learns, decay**above, 0).astype(np.float32)

        def scaled(leaf, place):
            own = factors[place]
            return leaf * own.reshape(own.shape + (1,) * (leaf.ndim - own.ndim))

        return jax.tree.map(scaled, updates, places)

    return optax.stateless(scale)


def decays(params: Any) -> Any:
    """Return whether each weight decays: kernels and embeddings do, biases and LayerNorm do not."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key in ('kernel', 'embedding'), params
    )


def clip_each(greatest: float) -> optax.GradientTransformation:
    """Clip the norm of each tensor, and of each layer of a stack, separately."""

    def clip(path, gradient):
        stacked = path[0].key == 'layers' and not path[1].key.isdecimal()
        axes = tuple(range(1 if stacked else 0, gradient.ndim))
        norm = jnp.sqrt(jnp.sum(gradient**2, axis=axes, keepdims=True))
        return gradient * jnp.minimum(1, greatest / (norm + 1e-6))

    return optax.stateless(
        lambda gradients, params: jax.tree_util.tree_map_with_path(clip, gradients)
    )


class BertAdamState(NamedTuple):
    """The exponential means of the gradient and of its square."""

    mean: Any
    square: Any


def scale_by_bert_adam() -> optax.GradientTransformation:
    """Return Adam without bias correction, as in BERT's first implementations."""

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return BertAdamState(zeros, zeros)

    def update(gradients, state, params=None):
        moment = optax.tree_utils.tree_update_moment
        mean = moment(gradients, state.mean, _BETA1, 1)
        square = moment(gradients, state.square, _BETA2, 2)
        steps = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + _EPSILON), mean, square)
        return steps, BertAdamState(mean, square)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def _places(params: Any) -> tuple[Any, int]:
    """Return the part of each array, or the parts of its first axis, and the number of parts."""
    layers = params['layers']
    # Those of a model that has lost heads stand under their numbers.
    apart = {name: at for at, name in enumerate(sorted(filter(str.isdecimal, layers), key=int))}
    count = len(apart) or len(jax.tree.leaves(layers)[0])

    def place(path, _):
        if path[0].key == 'layers':
            return 1 + apart[path[1].key] if apart else slice(1, 1 + count)
        return 0 if path[0].key == 'embeddings' else 1 + count

    return jax.tree_util.tree_map_with_path(place, params), count + 2


def with_fresh_top(top: int, params: Any, fresh: Any) -> Any:
    """Return parameters of which the head and so many top layers are fresh."""
    places, count = _places(params)
    first = count - 2 - top

    def choose(old, new, place):
        if isinstance(place, slice):
            return jnp.concatenate([old[:first], new[first:]])
        return new if place > first else old

    return jax.tree.map(choose, params, fresh, places)


def norms(tree: Any) -> Float[Array, ' P']:
    """Return the Euclidean norm of all numbers of each part."""
    places, count = _places(tree)
    squares = jnp.zeros(count)
    for leaf, place in zip(jax.tree.leaves(tree), jax.tree.leaves(places), strict=True):
        rows = leaf.reshape(leaf.shape[0] if isinstance(place, slice) else 1, -1)
        own = jnp.einsum('LX,LX->L', rows, rows)
        squares = squares.at[place].add(own if isinstance(place, slice) else own[0])
    return jnp.sqrt(squares)


def recorded_steps(total: int) -> range:
    """Return the recorded ones of all steps, counted from 1; the last one is among them."""
    every = max(_EVERY, -(-total // _MOST))
    return range(total - (total - 1) // every * every, total + 1, every)


@functools.lru_cache(maxsize=8)
def recording(optimizer: optax.GradientTransformation, total: int) -> Any:
    """Return the same optimiser, which records steps for which it gets the weights at `start`."""
    steps = recorded_steps(total)

    def init(params):
        records = jnp.zeros((len(steps), _places(params)[1], len(MEASURES)))
        state = {'own': optimizer.init(params), 'done': jnp.int32(0), 'records': records}
        return state | {'start': norms(params)}

    def update(gradients, state, params, *, start=None):
        updates, own = optimizer.update(gradients, state['own'], params)
        done, records = state['done'] + 1, state['records']
        if start is not None:
            moved = norms(jax.tree.map(lambda p, u, s: p + u - s, params, updates, start))
            measured = norms(gradients), norms(updates), moved, moved / state['start']
            at = (done - steps.start) // steps.step
            records = records.at[at].set(jnp.stack(measured, axis=-1))
        return updates, state | {'own': own, 'done': done, 'records': records}

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]
