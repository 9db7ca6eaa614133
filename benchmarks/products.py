"""The products of the dense layers alone: how much of a ratio is the library that multiplies.

Both sides multiply the tokens of the same batches with matrices of the sizes of a layer, once for
each layer, and do nothing else: no bias, no attention, no norm.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cases import Case
from benchmarks.timing import Question, Way

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
        matrices = jax.device_put((square, up, down))
        placed = jax.device_put(rows)

        @jax.jit
        @jax.default_matmul_precision('float32')
        def layer(x, matrices):
            square, up, down = matrices
            return [jnp.dot(x, each) for each in square], jnp.dot(jnp.dot(x, up), down)

        def run():
            for x in placed:
                for _ in range(config.num_hidden_layers):
                    found = layer(x, matrices)
            return np.asarray(jax.block_until_ready(found)[1])

        return run

    def in_pytorch():
        import torch

        device = 'cpu' if jax.default_backend() == 'cpu' else 'cuda'
        # Kept as its layers keep them, outputs first.
        kept = [torch.from_numpy(each.T.copy()).to(device) for each in (*square, up, down)]
        placed = [torch.from_numpy(each).to(device) for each in rows]
        linear = torch.nn.functional.linear

        def run():
            with torch.no_grad():
                for x in placed:
                    for _ in range(config.num_hidden_layers):
                        for each in kept[:4]:
                            linear(x, each)
                        found = linear(linear(x, kept[4]), kept[5])
            return found.cpu().numpy()

        return run

    def agree(found):
        np.testing.assert_allclose(found['PyTorch'], found['ours'], 0, _TOLERANCE)
        return {'equal to': _TOLERANCE}

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
