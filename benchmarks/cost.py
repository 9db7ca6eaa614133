"""How much work `collect` and `sweep` are, by formulas, on one CPU or on a pod of TPUs.

    python -m benchmarks.cost --write   # the table of a million examples in docs/reference/speed.md

A program is a sum of parts. A part takes as long as its matrix products at the greatest speed of
the chip, or as long as it takes to move what it reads and writes, whichever is longer. Nothing is
fitted: `benchmarks/chips.py` has the speeds. Next to it stands what the TPU compiler expects of the
same programs (`python -m benchmarks.tpu_aot`).
"""

import json
import math
import pathlib
from collections.abc import Mapping

from absl import app, flags

from benchmarks.chips import MACHINES
from benchmarks.formulas import (
    Shape,
    calls,
    collect,
    forward,
    parameters,
    pieces,
    seconds,
    sweep,
    total,
)
from benchmarks.programs import MODELS, model_config
from benchmarks.table import RESULTS, between, markdown

_WRITE = flags.DEFINE_bool('write', False, 'Write the table of a million examples.')

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'reference' / 'speed.md'
COMPILED = RESULTS / 'compiled'
EXAMPLES = 1_000_000
DTYPES = ('bfloat16', 'float32')


def compiled() -> dict[str, dict]:
    """Return what the TPU compiler said of each program, by program, model, type and machine."""
    found = {}
    for path in sorted(COMPILED.glob('TPU-*.json')):
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
    """Return the formulas next to what the TPU compiler says, for a batch on one chip."""
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
                f'{found["products"] / found["cycles"]:.0%}' if 'products' in found else '', *cells,
            ]
        )  # fmt: skip
    return markdown(
        (
            'program', 'model', 'type', 'machine', 'rows that fit', 'memory, GB', 'Tflop',
            'moved, GB', 'between chips', 'ms', 'in products', 'Tflop / formula', 'GB / formula',
            'ms / formula',
        ),
        rows,
    )  # fmt: skip


def _ratio(ratio: float) -> str:
    return f'**{ratio:.2f}**' if max(ratio, 1 / ratio) > 1.5 else f'{ratio:.2f}'


def table_of_a_million() -> str:
    """Return how long a million examples take on each machine, by formula and by the compiler."""
    programs, rows = compiled(), []
    for name, machine in MACHINES.items():
        share = EXAMPLES / machine.chips
        for model in MODELS:
            cells = {}
            for dtype in DTYPES:
                shape = Shape(model_config(model, dtype), 64)
                batches = share / shape.rows
                for program in (collect, sweep):
                    told = _time(batches * seconds(program(shape), machine, dtype))
                    cells[program, dtype] = [told]
                if said := programs.get(f'collect {model} {dtype} {name}'):
                    rows_of_chip = said['rows'] / machine.chips
                    cells[collect, dtype].append(_time(share / rows_of_chip * said['seconds']))
                if swept := compiled_sweep(programs, model, dtype, name):
                    cells[sweep, dtype].append(_time(share / swept[1] * swept[0]))
            kinds = [(program, dtype) for program in (collect, sweep) for dtype in DTYPES]
            rows.append([name, model, *('; '.join(cells[kind]) for kind in kinds)])
    head = [f'`{program}`, {dtype}' for program in ('collect', 'sweep') for dtype in DTYPES]
    return markdown(('machine', 'model', *head), rows)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f'{seconds:.1f} s'
    return f'{seconds / 60:.0f} min' if seconds < 6000 else f'{seconds / 3600:.1f} h'


TABLES = {'work': table_of_work, 'million': table_of_a_million, 'programs': table_of_programs}


def page(former: str) -> str:
    """Return docs/reference/speed.md with today's table; the others are for developers."""
    begin, end = '<!-- python -m benchmarks.cost --write: million -->', '<!-- end of million -->'
    return between(former, begin, end, f'\n{table_of_a_million()}\n')


def main(_):
    for name, make in TABLES.items():
        print(f'{name}\n\n{make()}')
    if _WRITE.value:
        PAGE.write_text(page(PAGE.read_text('utf-8')), 'utf-8')


if __name__ == '__main__':
    app.run(main)
