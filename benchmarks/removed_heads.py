"""Savings by the removal of heads of your model: time and memory, before and after, in turns.

    python -m benchmarks.removed_heads results/tuned/model --heads=L1-H2,L3-H4 --batch_sizes=1,16

`benchmarks.removal` does it for half of the heads of any model, and for PyTorch.

Shapes: W ways to run a model, S sizes of a batch, R rounds; L layers, N heads.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Float, Int, Shaped

import bert_secrets_jax as bs
from bert_secrets_jax.checks import brief
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.pruning.removal import cut
from bert_secrets_jax.ranges import Range

# The same model in four ways: as it is, under the mask, with its layers apart as a cut model has
# them but all their heads, and cut.
WAYS = ('whole', 'masked', 'apart', 'cut')
# As published, with the rise of BERT-base's speed on one GPU when half of its heads were removed.
PUBLISHED, LENGTH = {1: 0.019, 4: 0.027, 16: 0.175, 64: 0.175}, 128
_COUNT = Range(1, 2**31)


@dataclasses.dataclass(frozen=True)
class RemovalTimes:
    """Time and memory of a model before and after heads are removed.

    Attributes:
      head_mask: The mask: 0 for heads that are removed.
      batch_sizes, length: The numbers of examples per batch, and of tokens of each example.
      seconds: The seconds that each way takes for a batch, by round. All ways take turns in a
        round.
      weight_bytes: The bytes of the weights.
      temporary_bytes: The bytes that the compiled program needs besides weights, inputs and
        outputs.
    """

    head_mask: Shaped[np.ndarray, 'L N']
    batch_sizes: tuple[int, ...]
    length: int
    seconds: Float[np.ndarray, 'W S R']
    weight_bytes: Int[np.ndarray, ' W']
    temporary_bytes: Int[np.ndarray, 'W S']

    __repr__ = brief

    def gains(
        self, way: str = 'cut', *, over: str = 'whole', confidence: float = 0.95
    ) -> Float[np.ndarray, 'S 3']:
        """Return by what share `way` is faster than `over`, two of `WAYS`, with an interval.

        It is the median over rounds of the ratio of their seconds in the same round, minus 1. The
        interval, in the last two columns, comes from the order of the rounds alone (the sign test);
        it assumes that rounds are independent, not how they are distributed, and is NaN where there
        are too few. Over 'apart', the gain leaves out what comes of layers that are not stacked.
        """
        gains = self.seconds[WAYS.index(over)] / self.seconds[WAYS.index(way)] - 1
        bounds = [scipy.stats.quantile_test(row).confidence_interval(confidence) for row in gains]
        return np.column_stack([np.median(gains, axis=-1), bounds])


def time_removal(
    pretrained: Pretrained,
    head_mask: Shaped[np.ndarray, 'L N'],
    *,
    batch_sizes: Sequence[int] = tuple(PUBLISHED),
    length: int = LENGTH,
    rounds: int = 15,
    seed: int = 0,
) -> RemovalTimes:
    """Measure a model before and after heads are removed, as Michel et al. (2019) do with BERT.

    A forward pass up to the logits, or up to the last hidden states of a model without head, is
    compiled for each way and size. The ways take turns, each round in the opposite order of the
    last; the first round of each size does not count. Examples are random wordpieces without
    padding.

    Args:
      pretrained: The whole model.
      head_mask: 1 for heads that stay, 0 for those that are removed.
      batch_sizes, length: The numbers of examples per batch, and of tokens of each example.
      rounds: The number of rounds at each size.
      seed: The seed of the wordpieces.

    Raises:
      TypeError: The model is not a `Pretrained`.
      ValueError: The mask does not fit the model, heads were removed before, there is no size or
        round, or the model has fewer positions than tokens.
    """
    check_whole(pretrained)
    batch_sizes = tuple(batch_sizes)
    if not batch_sizes or not all(each in _COUNT for each in (*batch_sizes, length, rounds)):
        raise ValueError(
            f'{batch_sizes=}, {length=} and {rounds=} must be whole numbers, at least 1.'
        )
    smaller = bs.remove_heads(pretrained, head_mask)
    models = pretrained, pretrained, cut(pretrained, np.ones_like(head_mask, bool)), smaller
    masks = None, np.asarray(head_mask, np.float32), None, None
    seconds = np.zeros((len(WAYS), len(batch_sizes), rounds))
    temporary = np.zeros((len(WAYS), len(batch_sizes)), int)
    for at, size in enumerate(batch_sizes):
        ids = _wordpieces(pretrained, (size, length), seed)
        ways = []
        for index, (model, mask) in enumerate(zip(models, masks, strict=True)):
            run, temporary[index, at] = _compiled(model, ids, mask)
            ways.append((index, run))
        for number in range(-1, rounds):
            for index, run in ways if number % 2 else reversed(ways):
                start = time.perf_counter()
                run()
                if number >= 0:
                    seconds[index, at, number] = time.perf_counter() - start
    return RemovalTimes(
        head_mask=np.asarray(head_mask),
        batch_sizes=batch_sizes,
        length=length,
        seconds=seconds,
        weight_bytes=np.array(
            [sum(leaf.nbytes for leaf in jax.tree.leaves(model.params)) for model in models]
        ),
        temporary_bytes=temporary,
    )


def _wordpieces(pretrained: Pretrained, shape, seed: int) -> Int[np.ndarray, 'B T']:
    """Return random wordpieces, none of which is [PAD]."""
    config = pretrained.config
    numbers = np.random.default_rng(seed).integers(config.vocab_size - 1, size=shape)
    return (numbers + (numbers >= config.pad_token_id)).astype(np.int32)


def _compiled(
    model: Pretrained, ids: Int[np.ndarray, 'B T'], mask: Float[np.ndarray, 'L N'] | None
) -> tuple[Callable[[], Any], int]:
    """Return a function that runs a model to its end, and the temporary bytes of its program."""

    def forward(params, ids, mask):
        output = model.bert.apply(
            {'params': params}, ids, jnp.zeros_like(ids), jnp.ones_like(ids),
            head_mask=mask, baseline='zero',
        )  # fmt: skip
        return output.logits if model.config.has_head else output.hidden_states[:, -1]

    program = jax.jit(forward).lower(model.params, ids, mask).compile()
    arguments = jax.device_put((model.params, ids, mask))
    memory = program.memory_analysis()
    assert memory is not None
    return lambda: jax.block_until_ready(program(*arguments)), memory.temp_size_in_bytes


def _percent(gain: Float[np.ndarray, '3']) -> str:
    return '{:.1%} ({:.1%} to {:.1%})'.format(*gain)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('model', help='the folder of the whole model, or its name')
    parser.add_argument('--heads', required=True, help='the heads that go, such as L1-H2,L3-H4')
    parser.add_argument('--batch_sizes', default='1,16', help='examples at once')
    parser.add_argument('--length', type=int, default=LENGTH, help='tokens of each')
    given = parser.parse_args()
    model = bs.from_pretrained(given.model)
    (mask,) = bs.masks.disable(model.config, [bs.masks.parse_heads(given.heads)])
    sizes = [int(size) for size in given.batch_sizes.split(',')]
    times = time_removal(model, mask, batch_sizes=sizes, length=given.length)
    for size, apart, whole in zip(sizes, times.gains(over='apart'), times.gains(), strict=True):
        print(
            f'{size} at once: {_percent(apart)} faster by removal alone, {_percent(whole)} in all'
            + (f'; published: {PUBLISHED[size]:.1%}' if size in PUBLISHED else '')
        )


if __name__ == '__main__':
    main()
