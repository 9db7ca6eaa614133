"""How much work `collect` and `sweep` are, by formulas, on one CPU or on a pod of TPUs.

    python -m benchmarks.cost --write   # the tables of docs/scaling.md
    python -m benchmarks.cost --here    # the same formulas beside times measured on this machine

A program is a sum of parts. A part takes as long as its matrix products at the greatest speed of
the chip, or as long as it takes to move what it reads and writes, whichever is longer. Nothing is
fitted: `benchmarks/chips.py` has the speeds. Beside it stands what the TPU compiler expects of the
same programs (`python -m benchmarks.tpu_aot`).
"""

import dataclasses
import functools
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.chips import MACHINES, Machine
from benchmarks.programs import COLLECTED, MODELS, model_config
from benchmarks.timing import interleaved
from bert_secrets_jax.model.bert import Bert, init_params, param_shapes

_WRITE = flags.DEFINE_bool('write', False, 'Write the tables into docs/scaling.md.')
_HERE = flags.DEFINE_bool('here', False, 'Measure on this machine instead.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Interleaved runs, of which the median counts.')

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'scaling.md'
RESULTS = pathlib.Path(__file__).parent / 'results' / 'compiled'
EXAMPLES, LENGTH = 1_000_000, 128
# A map and a parameter are float32 whatever the products are.
_FLOAT = 4


@dataclasses.dataclass(frozen=True)
class Part:
    """Work that is done at one time on one chip.

    Attributes:
      operations: Those of matrix products, two for each multiplication and addition.
      bytes: What is read from and written to main memory.
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
        return 4 if self.config.dtype == 'float32' else 2

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
    """Return a plain pass that writes its maps only to read them once."""
    layer = [*attention(shape), *feed_forward(shape)]
    return [*embeddings(shape), *layer * shape.config.num_hidden_layers]


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


def memory(shape: Shape, program: str, masks: float = 8) -> float:
    """Return the bytes that a chip needs: parameters, what comes and goes, and the widest layer."""
    config = shape.config
    weights = parameters(config) * _FLOAT
    wide = config.intermediate_size / config.hidden_size
    if program == 'sweep':
        under = shape.times(masks)
        opened = (1 + config.num_attention_heads) * shape.hidden
        return 2 * weights + opened + (2 + wide) * under.hidden + under.maps
    maps = (config.num_hidden_layers if program == 'collect' else 1) * shape.maps
    return weights + maps + (2 + wide) * shape.hidden


def compiled() -> dict[str, dict]:
    """Return what the TPU compiler said of each program, by program, model, type and machine."""
    found = {}
    for path in sorted(RESULTS.glob('TPU-*.json')):
        found |= json.loads(path.read_text())['programs']
    return {key: each for key, each in found.items() if 'memory' in each}


def compiled_sweep(
    programs: Mapping[str, dict], model: str, dtype: str, name: str
) -> tuple[float, float] | None:
    """Return seconds for a batch under all single heads, and the rows of that batch on a chip.

    They are the sum over the pieces of a sweep, as often as it calls them; None where a piece was
    not compiled.
    """
    found = {}
    config = model_config(model, dtype)
    for piece in calls(config, 1):
        found[piece] = programs.get(f'{piece} {model} {dtype} {name}')
    if None in found.values():
        return None
    each = found['run_layer']
    often = calls(config, each['masks'])
    total_seconds = math.fsum(often[piece] * found[piece]['seconds'] for piece in found)
    return total_seconds, each['rows'] / MACHINES[name].chips


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ['---'] * len(head), *rows]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def table_of_work() -> str:
    """Return what one example costs, of any type and machine."""
    rows = []
    for model in MODELS:
        shape = Shape(model_config(model, 'float32'), 1)
        plain, whole = (total(each(shape)).operations for each in (forward, sweep))
        layers, heads = shape.config.num_hidden_layers, shape.config.num_attention_heads
        rows.append(
            [
                model, f'{layers} x {heads}', f'{parameters(shape.config) / 1e6:.0f} M',
                f'{plain / 1e9:.1f}', f'{layers * shape.maps / 1e6:.1f}', f'{whole / 1e9:.0f}',
                f'{whole / plain / layers / heads:.2f}',
            ]
        )  # fmt: skip
    return table(
        (
            'model', 'layers x heads', 'parameters', 'a plain pass, Gflop', 'all maps, MB',
            'all heads disabled in turn, Gflop', 'plain passes per head',
        ),
        rows,
    )  # fmt: skip


def table_of_programs() -> str:
    """Return the formulas beside what the TPU compiler says, for a batch on one chip."""
    rows = []
    for key, found in compiled().items():
        program, model, dtype, name = key.split()
        machine = MACHINES[name]
        shape = Shape(model_config(model, dtype), found['rows'] / machine.chips, found['length'])
        parts = {'forward': forward, 'collect': collect}.get(program)
        parts = parts(shape) if parts else pieces(shape, found['masks']).get(program)
        cells = ['', '', '']
        if parts:
            whole, expected = total(parts), seconds(parts, machine, dtype)
            cells = [
                f'{found["operations"] / whole.operations:.2f}' if whole.operations else '',
                f'{found["bytes"] / whole.bytes:.2f}',
                _ratio(found['seconds'] / expected),
            ]
        transfers = ', '.join(
            f'{number} {kind} ({size / 1e6:.2f} MB)'
            for kind, (number, size) in found['collectives'].items()
        )
        rows.append(
            [
                f'`{program}`', model, dtype, name, f'{found["rows"]}',
                f'{found["memory"]["total"] / 1e9:.2f}', f'{found["operations"] / 1e12:.3f}',
                f'{found["bytes"] / 1e9:.2f}', transfers or 'none', f'{found["seconds"] * 1e3:.2f}',
                *cells,
            ]
        )  # fmt: skip
    return table(
        (
            'program', 'model', 'type', 'machine', 'rows that fit', 'memory, GB', 'Tflop',
            'moved, GB', 'between chips', 'ms', 'Tflop / formula', 'GB / formula', 'ms / formula',
        ),
        rows,
    )  # fmt: skip


def _ratio(ratio: float) -> str:
    return f'**{ratio:.2f}**' if max(ratio, 1 / ratio) > 1.5 else f'{ratio:.2f}'


def table_of_a_million() -> str:
    """Return how long a million examples take on each machine."""
    programs, rows = compiled(), []
    for name, machine in MACHINES.items():
        for model in MODELS:
            for dtype in ('bfloat16', 'float32'):
                shape = Shape(model_config(model, dtype), 64)
                batches = EXAMPLES / machine.chips / shape.rows
                cells = [
                    _time(batches * seconds(program(shape), machine, dtype))
                    for program in (collect, sweep)
                ]
                # Chips exchange next to nothing: as many times as many chips, as many times faster.
                source = {'v5p-256': 'v5p-8'}.get(name, name)
                said = programs.get(f'collect {model} {dtype} {source}')
                share = EXAMPLES / machine.chips
                of_collect = of_sweep = ''
                if said:
                    rows_of_chip = said['rows'] / MACHINES[source].chips
                    of_collect = _time(share / rows_of_chip * said['seconds'])
                if swept := compiled_sweep(programs, model, dtype, source):
                    of_sweep = _time(share / swept[1] * swept[0])
                rows.append(
                    [name, model, dtype, cells[0], of_collect, cells[1], of_sweep]
                    + [f'{memory(shape, each) / 1e9:.1f}' for each in ('collect', 'sweep')]
                )
    return table(
        (
            'machine', 'model', 'type', '`collect`', 'by the compiler', '`sweep`',
            'by the compiler', 'GB a chip, `collect`', '`sweep`',
        ),
        rows,
    )  # fmt: skip


def _time(seconds: float) -> str:
    if seconds < 100:
        return f'{seconds:.1f} s'
    return f'{seconds / 60:.0f} min' if seconds < 6000 else f'{seconds / 3600:.1f} h'


TABLES = {
    'work': table_of_work,
    'programs': table_of_programs,
    'million': table_of_a_million,
}


def page(former: str) -> str:
    """Return the page of docs/scaling.md with the tables of today."""
    for name, make in TABLES.items():
        begin = f'<!-- Made by `python -m benchmarks.cost --write`: {name}. -->\n'
        end = f'<!-- The end of {name}. -->\n'
        before, _, rest = former.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f'{PAGE} has no place for the table {name!r}: {begin!r} ... {end!r}.')
        former = f'{before}{begin}\n{make()}\n{end}{after}'
    return former


def measure_here(model: str, rows: int) -> str:
    """Return a table of times on this machine beside the formulas, which get its own speed.

    That speed is what a product of the shapes of a feed-forward layer reaches, measured in turns
    with the rest; main memory is left out.
    """
    config = model_config(model, 'float32')
    shape = Shape(config, rows)
    bert = Bert(config)
    pretrained = bs.Pretrained(bert, init_params(bert, 0), None)
    mark = np.ones((rows, LENGTH), bool)
    ids = np.full((rows, LENGTH), 7, np.int32)
    first = mark & (np.arange(LENGTH) == 0)
    marks = {'token': mark, 'cls': first, 'sep': first[:, ::-1].copy(), 'period_comma': ~mark}
    batch = bs.Batch(ids, 0 * ids, mark.astype(np.int32), marks, np.arange(rows, dtype=np.int32))
    heads = bs.masks.single_heads(config)
    wide = np.ones((config.hidden_size, config.intermediate_size), np.float32)
    tokens = np.ones((rows * LENGTH, config.hidden_size), np.float32)
    one_product = jax.jit(jnp.matmul)
    ways = {
        'a product': lambda: one_product(tokens, wide).block_until_ready(),
        'collect': lambda: bs.collect(pretrained, [batch], COLLECTED),
        'sweep': lambda: bs.sweep(pretrained, [batch], heads),
    }
    found = {
        name: statistics.median(rounds)
        for name, rounds in interleaved(ways, rounds=_ROUNDS.value, warm_up=1).items()
    }
    speed = product(shape, *wide.shape).operations / found['a product']
    lines = []
    for name, parts in (('collect', collect(shape)), ('sweep', sweep(shape, 1024 / LENGTH / rows))):
        expected = total(parts).operations / speed
        lines.append(
            [f'`{name}`', model, f'{rows}', f'{speed / 1e12:.3f}', f'{expected:.2f}',
             f'{found[name]:.2f}', _ratio(found[name] / expected)]
        )  # fmt: skip
    return table(
        ('program', 'model', 'rows', 'Tflop/s of a product', 's by formula', 's', 'ratio'), lines
    )


def main(_):
    if _HERE.value:
        for model, rows in (('minilm', 8), ('bert-base', 4)):
            print(measure_here(model, rows))
        return
    for name, make in TABLES.items():
        print(f'{name}\n\n{make()}')
    if _WRITE.value:
        PAGE.write_text(page(PAGE.read_text('utf-8')), 'utf-8')


if __name__ == '__main__':
    app.run(main)
