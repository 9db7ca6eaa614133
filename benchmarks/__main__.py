"""All benchmarks in one run, each compared with the fastest alternative of a user.

    python -m benchmarks --glue_dir=GLUE
    python -m benchmarks --only=sweep,patterns --models=all-MiniLM-L6-v2,bert-base
    python -m benchmarks --smoke --results=/tmp/results
    python -m benchmarks --device=gpu --dtype=bfloat16 --tokens=65536 --micro_batch=32 --matrix=8192

Each way does the same work, which is checked, and all ways take turns. What was measured is written
as soon as it is there, to a file named by device and date, in which a later run of the same day
replaces only what it measures again. Memory and the time to the first result are those of a process
of its own for each way (Linux). `python -m benchmarks.table` writes the table of
docs/reference/speed.md.
"""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
from absl import app, flags, logging

from benchmarks import (
    attention_statistics,
    cases,
    divergences,
    finetuning,
    forward,
    growth,
    norms,
    paths,
    patterns,
    products,
    removal,
    sweep,
    table,
    timing,
)
from bert_secrets_jax.model.config import COMPUTE_DTYPES

PARTS = {
    'products': products,
    'forward': forward,
    'statistics': attention_statistics,
    'sweep': sweep,
    'training': finetuning,
    'patterns': patterns,
    'clusters': divergences,
    'norms': norms,
    'removal': removal,
    'paths': paths,
    'growth': growth,
}
_DEFAULT = cases.Settings()

_ONLY = flags.DEFINE_list('only', list(PARTS), f'Parts to run, of {", ".join(PARTS)}.')
_MODELS = flags.DEFINE_list(
    'models',
    ['all-MiniLM-L6-v2', 'bert-base'],
    f'Folders, names on the hub, or shapes of random weights: {", ".join(cases.SHAPES)}.',
)
_DEVICE = flags.DEFINE_enum('device', 'cpu', ['cpu', 'gpu', 'tpu'], 'What to run on.')
_SMOKE = flags.DEFINE_bool('smoke', False, 'Everything once at tiny sizes, to see that it runs.')
_MEMORY = flags.DEFINE_bool('memory', True, "Each way's memory, in a process of its own.")
_PYTORCH = flags.DEFINE_bool('pytorch', True, "PyTorch's ways too, where it is installed.")
_RESULTS = flags.DEFINE_string('results', str(table.RESULTS), 'Folder of the files of results.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded texts without.')
_EXAMPLES = flags.DEFINE_integer('examples', None, 'How many examples.')
_FEW = flags.DEFINE_integer('few', None, 'How many for clusters and norms.')
_LENGTH = flags.DEFINE_integer('length', None, 'The greatest length, and that of equal ones.')
_ROUNDS = flags.DEFINE_integer('rounds', None, 'Interleaved rounds.')
_HEADS = flags.DEFINE_integer('heads', None, 'On how many heads all but the sweep are timed.')
_BATCH_SIZES = flags.DEFINE_list('batch_sizes', None, 'Examples per batch, of removal.')
_THREADS = flags.DEFINE_integer('threads', None, "PyTorch's threads.")
_STEPS = flags.DEFINE_integer('steps', None, 'Training steps in a round.')
_MATRIX = flags.DEFINE_integer('matrix', None, 'The side of the matrices that show the peak.')
_DTYPE = flags.DEFINE_enum('dtype', None, COMPUTE_DTYPES, 'The type of products, on both sides.')
_TOKENS = flags.DEFINE_integer('tokens', None, 'The greatest number of tokens of a batch.')
_MICRO_BATCH = flags.DEFINE_integer('micro_batch', None, 'Examples that training takes at once.')
# How the command calls itself for the memory of one way.
_FRESH = flags.DEFINE_string('fresh', None, 'JSON of one way that alone is run.')


def settings() -> cases.Settings:
    """Return the sizes that the flags say."""
    given = {
        'glue_dir': _GLUE_DIR.value,
        'examples': _EXAMPLES.value,
        'few': _FEW.value,
        'length': _LENGTH.value,
        'rounds': _ROUNDS.value,
        'heads': _HEADS.value,
        'batch_sizes': _BATCH_SIZES.value and tuple(map(int, _BATCH_SIZES.value)),
        'threads': _THREADS.value,
        'steps': _STEPS.value,
        'matrix': _MATRIX.value,
        'dtype': _DTYPE.value,
        'tokens': _TOKENS.value,
        'micro_batch': _MICRO_BATCH.value,
    }
    start = cases.SMOKE if _SMOKE.value else _DEFAULT
    return dataclasses.replace(start, **{k: v for k, v in given.items() if v is not None})


def fresh(case: cases.Case, part: str, number: int, way: str) -> dict[str, float]:
    """Return memory and first result of one way, from a process of its own."""
    about = {
        'name': case.name,
        'directory': str(case.directory),
        'settings': dataclasses.asdict(case.settings),
        'way': [part, number, way],
    }
    command = [sys.executable, '-m', 'benchmarks', f'--device={_DEVICE.value}']
    said = subprocess.check_output([*command, f'--fresh={json.dumps(about)}'], text=True)
    return json.loads(said.splitlines()[-1])


def run_fresh(about: dict) -> None:
    """Run one way, and print what it took as JSON."""
    sizes = about['settings'] | {'batch_sizes': tuple(about['settings']['batch_sizes'])}
    directory = pathlib.Path(about['directory'])
    case = cases.Case(about['name'], directory, cases.Settings(**sizes))
    part, number, way = about['way']
    question = PARTS[part].questions(case)[number]
    print(json.dumps(timing.first_result(question.ways[way])))


def results_of(case: cases.Case, part: str):
    """Yield what was measured for each question of a part."""
    pytorch = _PYTORCH.value and cases.has_pytorch()
    for number, question in enumerate(PARTS[part].questions(case)):
        ways = {name: way for name, way in question.ways.items() if pytorch or not way.in_pytorch}
        question = dataclasses.replace(question, ways=ways)
        # Growth asks about time; its sizes are no ways that a user chooses between.
        apart = _MEMORY.value and part != 'growth'
        alone = {name: fresh(case, part, number, name) for name in ways if apart}
        found = timing.measured(
            question,
            rounds=case.settings.rounds,
            matrix=case.settings.matrix,
            dtype=case.settings.dtype,
        )
        found['ways'] = [way | alone.get(way['name'], {}) for way in found['ways']]
        yield {'part': part, 'model': case.label} | found


def circumstances(sizes: cases.Settings) -> dict:
    """Return what else a number depends on."""
    git = subprocess.run(
        ['git', 'describe', '--always', '--dirty'], cwd=table.ROOT, capture_output=True, text=True
    )
    return {
        'date': datetime.date.today().isoformat(),
        'device': timing.processor(),
        'commit': git.stdout.strip(),
        'load': os.getloadavg()[0],
        'versions': {
            name: importlib.metadata.version(name)
            for name in ('jax', 'jaxlib', 'flax', 'torch', 'transformers')
            if cases.has_pytorch() or name != 'torch'
        },
        # The place of the data is nobody else's.
        'settings': dataclasses.asdict(sizes) | {'glue_dir': sizes.glue_dir and 'GLUE'},
    }


def main(_):
    # Texts are cut on purpose.
    logging.set_verbosity(logging.ERROR)
    # Both sides and the fresh processes share an accelerator.
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    jax.config.update('jax_platforms', {'gpu': 'cuda'}.get(_DEVICE.value, _DEVICE.value))
    if _FRESH.value:
        run_fresh(json.loads(_FRESH.value))
        return
    unknown = set(_ONLY.value) - PARTS.keys()
    if unknown:
        raise app.UsageError(f'--only={",".join(unknown)}: parts are {", ".join(PARTS)}.')
    sizes = settings()
    models = ['tiny'] if _SMOKE.value and not flags.FLAGS['models'].present else _MODELS.value
    for model in models:
        with tempfile.TemporaryDirectory() as directory:
            case = cases.prepare(model, pathlib.Path(directory), sizes)
            for part in _ONLY.value:
                for result in results_of(case, part):
                    result |= circumstances(sizes)
                    print(table.as_text(result), flush=True)
                    table.keep(result, pathlib.Path(_RESULTS.value))


if __name__ == '__main__':
    app.run(main)
