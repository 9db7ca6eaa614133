"""The settings of fine-tuning."""

import dataclasses
import numbers
import operator
from collections.abc import Sequence
from typing import Annotated

from bert_secrets_jax.arguments import ARGUMENTS
from bert_secrets_jax.checks import check_different, check_name, check_rules
from bert_secrets_jax.finetune import optimizers
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.names import named_parts
from bert_secrets_jax.ranges import Positive, Range, check_ranges

_MOST_SEEDS = 1000
Number = Annotated[int, Range(1, 2**31)]
# From 1 on, each step of these optimisers throws away what a weight was.
Rate = Annotated[float, Range(0, 1, whole=False, without=0)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """The settings of a training. The defaults are those of the paper and of its authors' script.

    Attributes:
      seeds: The seeds of the fresh classifier, the order of the data and dropout, one model each. A
        number n stands for the seeds 0, 1, ..., n - 1.
      epochs: The number of passes over the training examples.
      batch_size: The number of examples per step and seed.
      micro_batch: The number of examples per forward and backward pass, which divides `batch_size`.
        Fewer take less memory and, sorted by length, less padding; the step is the same up to
        rounding. On an accelerator take `batch_size`.
      learning_rate: The learning rate at its peak.
      warmup: The share of the steps in which the learning rate rises; 0 begins at its peak.
      weight_decay: The decoupled weight decay of all weights except biases and LayerNorm.
      clip: The greatest norm of the gradient; a larger gradient is scaled down.
      optimizer: 'adamw', or 'bert_adam', the authors' without bias correction.
      schedule: 'linear' rises in the warmup and then falls to 0; 'constant' is always at its peak.
      layer_decay: The learning rate of a layer divided by that of the layer above (Howard and Ruder
        2018, section 3.2). The last layer and the head have the full rate; embeddings are below
        layer 1. Above 1, low layers learn faster.
      freeze: Parts that stay as they are: 'embeddings', 'head', or layers, as in 'embeddings,1,2'.
      reinit: So many top layers, and the head, start at random (Zhang et al. 2021, section 4).
      one_class: Whether training examples may all have one label, of which nothing is learnt.
      max_length: The greatest number of tokens of an example; longer ones are cut.
      buckets: The lengths to which examples are padded; None takes few that fit the micro-batches.
      log_every: The number of steps between two rows of the training curve.
      maps_every: After every so many steps, the maps of the dev examples are compared with those
        before training (`Finetuned.similarity`); 0 for never.
      checkpoint_every: The number of steps between two checkpoints. There is also one per epoch,
        and one whenever the last is two minutes old, or older where writing takes long.
    """

    seeds: int | Sequence[int] = (0,)
    epochs: Number = 3
    batch_size: Number = 32
    micro_batch: Number = 8
    learning_rate: Rate = 5e-5
    warmup: Annotated[float, Range(0, 1, whole=False, without=1)] = 0.1
    weight_decay: Annotated[float, Range(0, 1e30, whole=False)] = 0.01
    clip: Positive = 1.0
    optimizer: str = 'adamw'
    schedule: str = optimizers.LINEAR
    layer_decay: Annotated[float, Range(0, 10, whole=False, without=0)] = 1.0
    freeze: str = ''
    reinit: Annotated[int, Range(0, 1000)] = 0
    one_class: bool = False
    max_length: Number = 128
    buckets: tuple[int, ...] | None = None
    log_every: Number = 20
    maps_every: Annotated[int, Range(0, 2**31)] = 0
    checkpoint_every: Number = 500

    def __post_init__(self):
        object.__setattr__(self, 'seeds', listed_seeds(self.seeds))
        check_ranges(self)
        check_name('optimizer', self.optimizer, optimizers.NAMES)
        check_name('schedule', self.schedule, optimizers.SCHEDULES)
        if not isinstance(self.freeze, str):
            raise TypeError(f"freeze={self.freeze!r} must be a text, such as 'embeddings,1,2'.")
        if self.batch_size % self.micro_batch:
            raise ValueError(
                f'micro_batch={self.micro_batch} must divide batch_size={self.batch_size}.'
            )

    @property
    def frozen_parts(self) -> frozenset[str]:
        """The names of the frozen parts."""
        return frozenset(word.strip() for word in self.freeze.split(',') if word.strip())

    def maps_after(self, total: int) -> Sequence[int]:
        """Return the steps after which maps are compared, of so many in all."""
        return range(self.maps_every, total + 1, self.maps_every) if self.maps_every else ()

    def check_layers(self, model: BertConfig) -> None:
        """Raise ValueError if a model lacks a layer that is named, or nothing would be learnt."""
        # Layers that are one layer learn as one.
        layers = len({*model.groups})
        greatest = self.learning_rate * max(1.0, self.layer_decay) ** layers
        check_rules(
            (
                self.reinit > layers or not self.frozen_parts < {*named_parts(layers + 2)},
                f'freeze={self.freeze!r}, reinit={self.reinit}: the parts of the model are '
                f"'embeddings', layers 1 to {layers} and 'head', and one has to learn. "
                f'At most {layers} layers can start at random.',
            ),
            (
                greatest > 1,
                f'learning_rate={self.learning_rate}, layer_decay={self.layer_decay}: embeddings '
                f'would learn at a rate of {greatest:.3g}, and it must be at most 1.',
            ),
        )


def listed_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return seeds as numbers; a number n stands for the seeds 0, 1, ..., n - 1."""
    if isinstance(seeds, float | str):
        raise TypeError(f'{seeds=} must be a number of seeds, or a sequence of them.')
    is_count = isinstance(seeds, int | numbers.Integral)
    if is_count and seeds > _MOST_SEEDS:
        raise ValueError(f'{seeds=} must be at most {_MOST_SEEDS:,}, or a sequence of seeds.')
    seeds = tuple(range(seeds) if is_count else map(operator.index, seeds))
    check_different('seeds', seeds)
    # Greater ones give the numbers of smaller ones.
    if not seeds or not all(seed in ARGUMENTS['seed'] for seed in seeds):
        raise ValueError(f'{seeds=} must have at least one, each {ARGUMENTS["seed"]}.')
    return seeds
