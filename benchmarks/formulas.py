"""How much work programs of this package are, as formulas of the model and its inputs.

A program is a sum of parts, each with its operations and with the bytes that it moves. The sweep is
that of `ablation/layers.py`: masks of one layer share its attention, where D^2 more for each token
tell what each head adds; each mask then pays for the rest of that layer and for all later ones but
the last, where a token costs 2 N D ([CLS]'s scores and its averages of the hidden states), and D
for the uniform average.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import jax

import bert_secrets_jax as bs
from benchmarks.chips import Machine
from bert_secrets_jax.model.bert import Bert, param_shapes

LENGTH = 128
# A map and a parameter are float32 whatever the products are.
_FLOAT = 4


@dataclasses.dataclass(frozen=True)
class Part:
    """Work that is done at one time on one chip.

    Attributes:
      operations: Those of matrix products, two for each multiplication and addition.
      bytes: The bytes that are read from and written to main memory.
    """

    operations: float = 0
    bytes: float = 0

    def __add__(self, other: 'Part') -> 'Part':
        return Part(self.operations + other.operations, self.bytes + other.bytes)

    def seconds(self, machine: Machine, dtype: str) -> float:
        """Return how long it takes."""
        products = self.operations / machine.operations_per_second(dtype)
        return max(products, self.bytes / machine.bandwidth)


def total(parts: Iterable[Part]) -> Part:
    """Return the sum of parts."""
    return sum(parts, Part())


def seconds(parts: Iterable[Part], machine: Machine, dtype: str) -> float:
    """Return how long parts take, one after the other."""
    return math.fsum(part.seconds(machine, dtype) for part in parts)


@dataclasses.dataclass(frozen=True)
class Shape:
    """Inputs of a model on one chip.

    Attributes:
      config: The model: L layers of N heads, the width D and the width W of feed-forward layers.
      rows: The number of inputs B.
      length: Their padded length T.
    """

    config: bs.BertConfig
    rows: float
    length: int = LENGTH

    @property
    def tokens(self) -> float:
        """The number of tokens, padding too."""
        return self.rows * self.length

    @property
    def hidden(self) -> float:
        """The bytes of hidden states [B, T, D]."""
        return self.tokens * self.config.hidden_size * self.item

    @property
    def item(self) -> int:
        """The bytes of a number."""
        return 2 if self.config.dtype == 'bfloat16' else 4

    @property
    def maps(self) -> float:
        """The bytes of a layer's maps [B, N, T, T]."""
        return self.tokens * self.length * self.config.num_attention_heads * _FLOAT

    def times(self, masks: float) -> 'Shape':
        """Return the shape of the same inputs under several masks."""
        return dataclasses.replace(self, rows=self.rows * masks)


def product(shape: Shape, inner: int, outer: int) -> Part:
    """Return the product of all tokens with weights [inner, outer]."""
    moved = shape.tokens * (inner + outer) * shape.item + inner * outer * _FLOAT
    return Part(2 * shape.tokens * inner * outer, moved)


def attention(shape: Shape) -> list[Part]:
    """Return the maps of a layer, written and read once, and their products with the values."""
    width = shape.config.hidden_size
    operations = 4 * shape.tokens * shape.length * width
    projections = [product(shape, width, width)] * 4
    return [*projections, Part(operations, 4 * shape.hidden + 2 * shape.maps)]


def feed_forward(shape: Shape) -> list[Part]:
    """Return the two products of a feed-forward layer."""
    width, wide = shape.config.hidden_size, shape.config.intermediate_size
    return [product(shape, width, wide), product(shape, wide, width)]


def embeddings(shape: Shape) -> list[Part]:
    """Return the look-up of three float32 embeddings, and their sum."""
    found = 3 * shape.tokens * shape.config.hidden_size * _FLOAT
    return [Part(0, found + shape.hidden)]


def last_rows(shape: Shape, masks: float) -> list[Part]:
    """Return a last layer of which [CLS] alone is computed, under several masks of it."""
    config = shape.config
    width, wide = config.hidden_size, config.intermediate_size
    averages = 2 * (2 * config.num_attention_heads + 1) * shape.tokens * width
    row = 2 * (2 * width**2 + 2 * width * wide + width * config.num_labels)
    shared = Part(averages + 2 * shape.rows * 4 * width**2, 2 * shape.hidden)
    weights = (2 * width**2 + 2 * width * wide) * _FLOAT
    return [shared, Part(shape.rows * masks * row, weights)]


def pieces(shape: Shape, masks: float) -> Mapping[str, list[Part]]:
    """Return the compiled pieces of a sweep for inputs, and for these inputs under some masks."""
    config, under = shape.config, shape.times(masks)
    added = product(shape, config.hidden_size, config.hidden_size)
    changes = Part(added.operations, config.num_attention_heads * shape.hidden)
    return {
        'embed': embeddings(shape),
        'open_layer': [*attention(shape), changes],
        'leave_layer': feed_forward(shape),
        'close_layer': [Part(0, 2 * under.hidden), *feed_forward(under)],
        'run_layer': [*attention(under), *feed_forward(under)],
        'last_layer': last_rows(under, 1),
    }


def calls(config: bs.BertConfig, masks: float) -> Mapping[str, float]:
    """Return how often a sweep over all single heads calls each piece, with masks in each call."""
    before, groups = config.num_hidden_layers - 1, config.num_attention_heads / masks
    return {
        'embed': 1,
        'open_layer': before,
        'leave_layer': before,
        'close_layer': before * groups,
        'run_layer': groups * before * (before - 1) / 2,
        'last_layer': before * groups,
    }


def forward(shape: Shape) -> list[Part]:
    """Return a plain pass to the logits, which writes its maps only to read them once."""
    config, layer = shape.config, [*attention(shape), *feed_forward(shape)]
    width = config.hidden_size
    head = Part(2 * shape.rows * width * (width + config.num_labels), width**2 * _FLOAT)
    return [*embeddings(shape), *layer * config.num_hidden_layers, head]


def collect(shape: Shape) -> list[Part]:
    """Return the streaming pass: all maps are read once more for all statistics together."""
    maps = shape.config.num_hidden_layers * shape.maps
    return [*forward(shape), Part(0, maps)]


def sweep(shape: Shape, masks: float = 8) -> list[Part]:
    """Return the sweep over all single heads, with some masks in each call."""
    often, parts = calls(shape.config, masks), []
    for name, piece in pieces(shape, masks).items():
        parts += [Part(often[name] * each.operations, often[name] * each.bytes) for each in piece]
    return [*parts, *last_rows(shape, shape.config.num_attention_heads)]


@functools.cache
def parameters(config: bs.BertConfig) -> int:
    """Return the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(param_shapes(Bert(config))))


def forward_operations(config: bs.BertConfig, batches: Sequence[bs.Batch]) -> int:
    """Return the multiply-adds of plain forward passes over all tokens of batches, padding too."""
    return _multiply_adds(forward, config, batches)


def sweep_operations(config: bs.BertConfig, batches: Sequence[bs.Batch]) -> int:
    """Return those of the sweep over single heads; chunks are taken as not filled up."""
    return _multiply_adds(sweep, config, batches)


def _multiply_adds(program, config, batches) -> int:
    shapes = [Shape(config, *batch.input_ids.shape) for batch in batches]
    return round(sum(total(program(shape)).operations for shape in shapes)) // 2
