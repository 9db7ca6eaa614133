"""The parts of a model, and how far each of them moves in training, recorded at no extra pass.

The parts are the embeddings, each layer, and the head: whatever stands on the layers.

Shapes: S seeds, R recorded steps, P parts, L layers, M the four measures.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

# The norm of the gradient, before it is clipped, and of the update; the distance of the weights
# from where they started, as it is and relative to the norm of these weights.
MEASURES = 'gradient_norm', 'update_norm', 'distance', 'relative_distance'
# Every step would take up to a tenth of its time. The longer a training, the fewer are recorded.
_EVERY, _MOST = 4, 1000


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


def scaled(tree: Any, factors: Callable[[int], Float[np.ndarray, ' P']]) -> Any:
    """Return the arrays of each part times its factor, of those for so many parts."""
    places, count = _places(tree)

    def scale(leaf, place):
        own = factors(count)[place]
        return leaf * own.reshape(own.shape + (1,) * (leaf.ndim - own.ndim))

    return jax.tree.map(scale, tree, places)


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
