"""How much work `collect` and `sweep` are, by formulas, on one CPU or on a pod of TPUs.

    python -m benchmarks.cost --write   # the tables of docs/scaling.md
    python -m benchmarks.cost --here    # the same formulas beside times measured on this machine

A program is a sum of parts. A part takes as long as its matrix products at the greatest speed of
the chip, or as long as it takes to move what it reads and writes, whichever is longer. Nothing is
fitted: `benchmarks/chips.py` has the speeds. Beside it stands what the TPU compiler expects of the
same programs (`python -m benchmarks.tpu_aot`).
"""

import json
import math
import pathlib
import statistics
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.chips import MACHINES
from benchmarks.formulas import (
    LENGTH,
    Shape,
    calls,
    collect,
    forward,
    memory,
    parameters,
    pieces,
    product,
    seconds,
    sweep,
    total,
)
from benchmarks.programs import COLLECTED, MODELS, model_config
from benchmarks.table import between, markdown
from benchmarks.timing import interleaved
from bert_secrets_jax.model.bert import Bert, init_params

_WRITE = flags.DEFINE_bool('write', False, 'Write the tables into docs/scaling.md.')
_HERE = flags.DEFINE_bool('here', False, 'Measure on this machine instead.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Interleaved runs, of which the median counts.')

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'scaling.md'
RESULTS = pathlib.Path(__file__).parent / 'results' / 'compiled'
EXAMPLES = 1_000_000


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
    return markdown(
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
    return markdown(
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
    return markdown(
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
        begin = f'<!-- python -m benchmarks.cost --write: {name} -->'
        former = between(former, begin, f'<!-- end of {name} -->', f'\n{make()}\n')
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
    return markdown(
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
