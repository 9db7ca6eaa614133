"""The products of the dense layers alone: how much of a ratio is the library that multiplies.

Both sides multiply the tokens of the same batches with matrices of the sizes of a layer, once for
each layer, and do nothing else: no bias, no attention, no norm.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case, wait_for
from benchmarks.timing import Question, Way
from bert_secrets_jax.model.parts import matmul_precision

# Products of numbers that are summed in another order.
_TOLERANCE = 1e-4


def questions(case: Case) -> list[Question]:
    """Return the question of the products."""
    config = case.ours.config
    width, wide = config.hidden_size, config.intermediate_size
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))

    # Queries, keys, values and the output of attention; then the feed-forward layer.
    square = [draw(width, width) for _ in range(4)]
    up, down = draw(width, wide), draw(wide, width)
    tokens = [np.size(batch.input_ids) for batch in case.batches]
    rows = [draw(count, width) for count in tokens]

    def ours():
        place = lambda tree: jax.tree.map(lambda each: jnp.asarray(each, config.array_dtype), tree)
        matrices, placed = place((square, up, down)), place(rows)
        dot = functools.partial(jnp.dot, precision=matmul_precision(config))

        @jax.jit
        def layer(x, matrices):
            square, up, down = matrices
            return [dot(x, each) for each in square], dot(dot(x, up), down)

        def run():
            for x in placed:
                for _ in range(config.num_hidden_layers):
                    found = layer(x, matrices)
            return jax.block_until_ready(found)[1]

        return run

    def in_pytorch():
        import torch

        device = 'cpu' if jax.default_backend() == 'cpu' else 'cuda'
        dtype = torch.bfloat16 if config.dtype == 'bfloat16' else torch.float32
        torch.set_float32_matmul_precision('high' if config.dtype == 'tf32x3' else 'highest')
        # Kept as its layers keep them, outputs first.
        kept = [torch.from_numpy(each.T.copy()).to(device, dtype) for each in (*square, up, down)]
        placed = [torch.from_numpy(each).to(device, dtype) for each in rows]
        linear = torch.nn.functional.linear

        def run():
            with torch.no_grad():
                for x in placed:
                    for _ in range(config.num_hidden_layers):
                        for each in kept[:4]:
                            linear(x, each)
                        found = linear(linear(x, kept[4]), kept[5])
            wait_for(found)
            return found

        return run

    def agree(found):
        theirs = {
            name: each.float().cpu().numpy() for name, each in found.items() if name != 'ours'
        }
        return case.agreed(theirs, np.asarray(found['ours'], np.float32), _TOLERANCE)

    each = 4 * width**2 + 2 * width * wide
    operations = config.num_hidden_layers * sum(tokens) * each
    return [
        Question(
            name='products of the dense layers alone',
            unit='examples',
            amount=len(case.examples),
            about=case.about,
            agree=agree,
            ways={
                'ours': Way(ours, operations=operations),
                'PyTorch': Way(in_pytorch, 1, operations, True, True),
            },
        )
    ]
