"""Programs of this package, compiled for TPUs that are not there, and what the compiler says.

    pip install '.[tpu-aot]'
    python -m benchmarks.tpu_aot
    python -m benchmarks.tpu_aot --machines=v5e-8 --models=bert-base --dtypes=bfloat16 \\
        --programs=collect

Each program is compiled for all chips of a machine, with the examples (in training, the seeds)
spread over them. If it does not fit their memory beside what else is there meanwhile, half the
batch is tried, and so on. Results are written as they come, to one JSON file for each kind of chip
and day, and what is there is not compiled again: `--date` goes on with the file of another day. A
program takes seconds to minutes of one core; small ones come first. `benchmarks/hlo.py` says how
costs are read from a program.
"""

import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import time

import jax
import numpy as np
from absl import app, flags
from jax.experimental import topologies
from jax.sharding import Mesh

from benchmarks.chips import MACHINES, Machine
from benchmarks.hlo import read_cost
from benchmarks.programs import MODELS, PROGRAMS, Program, Setup, model_config

COMPILED = [name for name, machine in MACHINES.items() if machine.topology]
_MACHINES = flags.DEFINE_multi_enum('machines', COMPILED, COMPILED, 'Machines to compile for.')
_MODELS = flags.DEFINE_multi_enum('models', ['bert-base', 'bert-large'], list(MODELS), 'Models.')
_DTYPES = flags.DEFINE_multi_enum(
    'dtypes', ['bfloat16', 'float32'], ['bfloat16', 'float32'], 'Types of their products.'
)
_PROGRAMS = flags.DEFINE_multi_enum('programs', list(PROGRAMS), list(PROGRAMS), 'Programs.')
_ROWS = flags.DEFINE_integer('rows', 512, 'Examples of a batch, over all chips.')
_LENGTH = flags.DEFINE_integer('length', 128, 'Tokens of an example.')
_MASKS = flags.DEFINE_integer('masks', 8, 'Masks in one call of a sweep.')
_MICRO_BATCH = flags.DEFINE_integer('micro_batch', 32, 'Examples of a seed in a training step.')
_DATE = flags.DEFINE_string('date', None, 'Day in the name of the files; today by default.')

RESULTS = pathlib.Path(__file__).parent / 'results' / 'compiled'
# The start of what the compiler says of a program that does not fit.
_TOO_LARGE = 'RESOURCE_EXHAUSTED'


def mesh_of(machine: Machine) -> Mesh:
    """Return the chips of a machine, which need not be there, along an axis `data`.

    Raises:
      RuntimeError: The compiler is missing.
    """
    # No server of a cloud is asked what machine this is, and no chip is looked for.
    os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'none')
    # No chip is taken, so other processes may compile too.
    os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
    try:
        importlib.metadata.version('libtpu')
    except importlib.metadata.PackageNotFoundError as error:
        raise RuntimeError("There is no TPU compiler: pip install '.[tpu-aot]'.") from error
    topology = topologies.get_topology_desc(platform='tpu', topology_name=machine.topology)
    return Mesh(np.array(topology.devices), ('data',))


def compile_for(machine: Machine, program: Program) -> dict:
    """Compile a program, and return what the compiler says about it, for each chip."""
    compiled = program.lower().compile()
    cost, memory = read_cost(compiled.as_text()), compiled.memory_analysis()
    parts = {
        'arguments': memory.argument_size_in_bytes - memory.alias_size_in_bytes,
        'results': memory.output_size_in_bytes,
        'temporary': memory.temp_size_in_bytes,
        'program': memory.generated_code_size_in_bytes,
        'meanwhile': sum(map(_bytes_on_a_chip, jax.tree.leaves(program.meanwhile))),
    }
    return {
        'memory': parts | {'total': sum(parts.values())},
        **dataclasses.asdict(cost),
        'seconds': cost.cycles / machine.clock,
    }


def _bytes_on_a_chip(array: jax.ShapeDtypeStruct) -> int:
    return math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize


def compile_largest(machine: Machine, program, setup: Setup) -> dict:
    """Compile a program, for a smaller batch if it does not fit, and return what is known of it."""
    too_large = []
    while setup.rows >= setup.devices and setup.micro_batch:
        start = time.perf_counter()
        size = {'rows': setup.rows, 'micro_batch': setup.micro_batch}
        try:
            found = compile_for(machine, program(setup))
        except jax.errors.JaxRuntimeError as error:
            if _TOO_LARGE not in str(error):
                raise
            found = None
        if found and found['memory']['total'] <= machine.memory:
            seconds = time.perf_counter() - start
            return {
                **size, 'length': setup.length, 'masks': setup.masks, 'too_large': too_large,
                'compile_seconds': seconds, **found,
            }  # fmt: skip
        too_large.append(size)
        setup = dataclasses.replace(setup, rows=setup.rows // 2, micro_batch=setup.micro_batch // 2)
    return {'too_large': too_large}


def file_of(mesh: Mesh, date: str) -> pathlib.Path:
    """Return the file of results for chips and a day."""
    kind = mesh.devices.flat[0].device_kind.replace(' ', '-')
    return RESULTS / f'{kind}-{date}.json'


def say(key: str, found: dict) -> None:
    """Print a line for a program."""
    if 'memory' not in found:
        print(f'{key:46} fits in no size')
        return
    transfers = ', '.join(
        f'{number} {kind} ({size / 1e6:.2g} MB)'
        for kind, (number, size) in found['collectives'].items()
    )
    smaller = f', {found["rows"]} rows and {found["micro_batch"]} a seed fit'
    print(
        f'{key:46}{found["memory"]["total"] / 1e9:7.2f} GB{found["operations"] / 1e12:9.3f} Tflop'
        f'{found["bytes"] / 1e9:8.2f} GB moved{found["seconds"] * 1e3:9.2f} ms  '
        f'{transfers or "no transfer"}{smaller if found["too_large"] else ""}',
        flush=True,
    )


def main(_):
    jax.config.update('jax_platforms', 'cpu')
    date = _DATE.value or datetime.date.today().isoformat()
    meshes = {name: mesh_of(MACHINES[name]) for name in _MACHINES.value}
    RESULTS.mkdir(exist_ok=True)
    order = itertools.product(_PROGRAMS.value, _MODELS.value, _DTYPES.value, _MACHINES.value)
    print(f'{"program, model, type, machine":46}   on each chip:')
    for program, model, dtype, name in order:
        mesh = meshes[name]
        path = file_of(mesh, date)
        results = json.loads(path.read_text()) if path.exists() else {
            'device': mesh.devices.flat[0].device_kind,
            'versions': {each: importlib.metadata.version(each) for each in ('jax', 'libtpu')},
            'programs': {},
        }  # fmt: skip
        key = f'{program} {model} {dtype} {name}'
        if key not in results['programs']:
            setup = Setup(
                model_config(model, dtype), _ROWS.value, _LENGTH.value, _MASKS.value,
                _MICRO_BATCH.value, mesh,
            )  # fmt: skip
            found = compile_largest(MACHINES[name], PROGRAMS[program], setup)
            results['programs'][key] = found
            path.write_text(json.dumps(results, indent=1) + '\n')
            jax.clear_caches()
        say(key, results['programs'][key])


if __name__ == '__main__':
    app.run(main)
