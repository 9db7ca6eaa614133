"""The settings of fine-tuning."""

import dataclasses
import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_secrets_jax.finetune import optimizers


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """The settings of a training. The defaults are those of the paper and of its authors' script.

    Attributes:
      seeds: The seeds. One model is trained per seed, which determines the fresh classifier, the
        order of the data and dropout. A number n stands for the seeds 0, 1, ..., n - 1.
      epochs: The number of passes over the training examples.
      batch_size: The number of examples per step and seed.
      micro_batch: The number of examples per forward and backward pass; it must divide
        `batch_size`. The examples of a step are sorted by length and cut into micro-batches, each
        padded to its own longest example, and their gradients are added. The step is the same up to
        rounding and needs less memory and less padding. On an accelerator take `batch_size`.
      learning_rate: The learning rate at its peak.
      warmup: The share of the steps in which the learning rate rises.
      weight_decay: The decoupled weight decay of all weights except biases and LayerNorm.
      clip: The greatest norm of the gradient; a larger gradient is scaled down.
      optimizer: The optimiser: 'adamw', or 'bert_adam', which the authors used and which has no
        bias correction (see `optimizers.make_optimizer`).
      max_length: The greatest number of tokens of an example; longer ones are cut.
      buckets: The lengths to which examples are padded; None takes few that fit the micro-batches.
      log_every: The number of steps between two rows of the training curve.
      checkpoint_every: The number of steps between two checkpoints. There is also one per epoch,
        and one whenever the last is two minutes old, or older where writing takes long.
    """

    seeds: int | Sequence[int] = (0,)
    epochs: int = 3
    batch_size: int = 32
    micro_batch: int = 8
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    optimizer: str = 'adamw'
    max_length: int = 128
    buckets: tuple[int, ...] | None = None
    log_every: int = 20
    checkpoint_every: int = 500

    def __post_init__(self):
        object.__setattr__(self, 'seeds', _listed(self.seeds))
        for name in (
            'epochs', 'batch_size', 'micro_batch', 'max_length', 'log_every', 'checkpoint_every',
        ):  # fmt: skip
            value = getattr(self, name)
            if not _is_whole(value) or value < 1:
                raise ValueError(f'{name}={value!r} must be a whole number, at least 1.')
        for name in ('learning_rate', 'clip', 'weight_decay', 'warmup'):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or isinstance(value, bool):
                raise ValueError(f'{name}={value!r} must be a number.')
        for name in ('learning_rate', 'clip'):
            value = getattr(self, name)
            # Written so that NaN is refused as well.
            if not 0 < value < math.inf:
                raise ValueError(f'{name}={value!r} must be a number above 0.')
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f'weight_decay={self.weight_decay!r} must be a number, at least 0.')
        if not 0 <= self.warmup < 1:
            raise ValueError(
                f'warmup={self.warmup!r} is a share of the steps: at least 0 and below 1.'
            )
        if self.optimizer not in optimizers.NAMES:
            raise ValueError(f'optimizer={self.optimizer!r} must be one of {optimizers.NAMES}.')
        if self.batch_size % self.micro_batch:
            raise ValueError(
                f'micro_batch={self.micro_batch} must divide batch_size={self.batch_size}.'
            )
        seeds = self.seeds
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f'{seeds=} must be different numbers, at least one.')
        for seed in seeds:
            # Greater ones give the numbers of smaller ones.
            if not 0 <= seed < 2**32:
                raise ValueError(f'{seeds=} must be whole numbers, at least 0 and below 2**32.')


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

    def per_epoch(self, examples: int) -> int:
        """Return the number of steps of an epoch, the last of which may be short.

        Args:
          examples: The number of training examples.
        """
        return -(-examples // self.batch_size)


def _listed(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return seeds as numbers; a number n stands for the seeds 0, 1, ..., n - 1."""
    if isinstance(seeds, numbers.Integral):
        return tuple(range(seeds))
    return tuple(map(operator.index, seeds))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
