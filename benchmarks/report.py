"""The report end to end: how long a person waits, from the command to the last section.

    python -m benchmarks.report
    python -m benchmarks.report --only=quickstart,again
    python -m benchmarks.report --smoke --results=/tmp/results

Each case is one command in a fresh process, with a fresh folder and no compiled programs. 'again'
repeats the quickstart in its folder. Beside the seconds stands the rate of a float32 product of
1024 x 1024 in the same minute, so that different machines compare. What was measured is written to
`benchmarks/results/report/`, and the table of docs/reference/speed.md with it.
"""

import collections
import csv
import dataclasses
import datetime
import json
import logging as python_logging
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks import timing
from benchmarks.table import DOCUMENT, RESULTS, ROOT, between, markdown
from bert_secrets_jax.files import read_json, read_text, write_json, write_text

FOLDER = RESULTS / 'report'
BEGIN, END = '<!-- python -m benchmarks.report -->', '<!-- end of the times of reports -->'
# The cases, each the arguments of `bert-secrets report`. {rows} and {train} are tables of 200 rows.
CASES: Mapping[str, Sequence[str]] = {
    'quickstart': ('--config=quickstart',),
    'again': ('--config=quickstart',),
    'all sections': ('--config=quickstart', '--sections=all'),
    'table': ('--model=all-MiniLM-L6-v2', '--texts={rows}', '--text-b=text_b'),
    'table with training': (
        '--model=all-MiniLM-L6-v2', '--texts={rows}', '--text-b=text_b', '--train={train}',
        '--label=label', '--set', 'train.num_seeds=1',
    ),
}  # fmt: skip
# Texts of the page that only the finished thing has: the first picture, and the grid.
PICTURE, GRID = '<figure', 'ablation_heads'
# The names that JAX gives to the parts of a compilation.
_COMPILING = '/jax/core/compile/backend_compile_duration'
_TRACING = ('/jax/core/compile/jaxpr_trace_duration',
            '/jax/core/compile/jaxpr_to_mlir_module_duration')  # fmt: skip
_ROWS = 200
_PRODUCT = 1024

_ONLY = flags.DEFINE_list('only', list(CASES), f'Cases to run, of {", ".join(CASES)}.')
_SMOKE = flags.DEFINE_bool('smoke', False, 'Twelve examples, to see that it runs.')
_RESULTS = flags.DEFINE_string('results', str(FOLDER), 'Folder of the files of results.')
# How the command calls itself for one case.
_CHILD = flags.DEFINE_string('child', None, 'JSON of the one command that is run and watched.')


@dataclasses.dataclass
class Watch:
    """Notes what a report spends on each section, in the process that makes it.

    Attributes:
      name: The name of the section that runs.
      started: The wall and CPU seconds at which it began.
      sections: The seconds of each section that has ended.
      said: How long the run said, before it began, that it would take.
    """

    name: str = 'start'
    started: tuple[float, float] = dataclasses.field(
        default_factory=lambda: (time.perf_counter(), time.process_time())
    )
    sections: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    spent: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    said: str = ''

    def listen(self, event: str, seconds: float, **_: Any) -> None:
        """Take a duration that JAX tells."""
        if event == _COMPILING:
            self.spent['compilations'] += 1
            self.spent['compiling'] += seconds
        elif event in _TRACING:
            self.spent['tracing'] += seconds

    def begin(self, name: str) -> None:
        """End the section that runs, and begin another one."""
        now = time.perf_counter(), time.process_time()
        self.sections.append(
            {
                'section': self.name,
                'seconds': now[0] - self.started[0],
                'cpu': now[1] - self.started[1],
                'compilations': self.spent['compilations'],
                'compiling': self.spent['compiling'],
                'tracing': self.spent['tracing'],
            }
        )
        self.name, self.started = name, now
        self.spent.clear()


class _Sections(python_logging.Handler):
    """Tells a watch of each section that the log names."""

    def __init__(self, watch: Watch):
        super().__init__()
        self._watch = watch

    def emit(self, record: python_logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith('Section '):
            self._watch.begin(message.rpartition(': ')[2])
        if 'To compute: ' in message:
            self._watch.said = message.rpartition('. About ')[2].partition(' on this')[0]


def watched(arguments: Sequence[str]) -> dict[str, Any]:
    """Run `bert-secrets` in this process, and return what each section took and what it said."""
    from absl import logging

    from bert_secrets_jax.programs import cli

    watch = Watch()
    jax.monitoring.register_event_duration_secs_listener(watch.listen)
    logging.get_absl_logger().addHandler(_Sections(watch))
    cli.main(arguments)
    watch.begin('end')
    return {'sections': watch.sections, 'said': watch.said}


def measured(name: str, arguments: Sequence[str], out: pathlib.Path) -> dict[str, Any]:
    """Run one case in a process of its own, and return what a person waited for.

    Args:
      name: The name of the case.
      arguments: Those of `bert-secrets report`, without `--out`.
      out: The folder of the report.
    """
    page, told = out / 'report.html', out.parent / f'{name.replace(" ", "_")}.json'
    arguments = ['report', *arguments, f'--out={out}']
    command = [
        sys.executable,
        '-m',
        'benchmarks.report',
        f'--child={json.dumps([str(told), arguments])}',
    ]
    rate = product_rate()
    written = page.stat().st_mtime if page.exists() else None
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    waits: dict[str, float] = {}
    log = (out.parent / 'log.txt').open('a')
    with subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as process:
        while process.poll() is None:
            time.sleep(0.1)
            if not page.exists() or page.stat().st_mtime == written:
                continue
            written = page.stat().st_mtime
            text = page.read_text('utf-8')
            now = time.perf_counter() - start
            for what, sign in (('first picture', PICTURE), ('grid of heads', GRID)):
                if sign in text:
                    waits.setdefault(what, now)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f'{" ".join(arguments)} ended with {process.returncode}: {log.name}')
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        'case': name,
        'command': f'bert-secrets {" ".join(arguments[:-1])}',
        'seconds': seconds,
        'cpu': after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        'waits': waits,
        **json.loads(told.read_text()),
        'product Tflop/s': (rate + product_rate()) / 2,
    }


def product_rate() -> float:
    """Return the float32 operations per second of a product of two matrices, in 10 ** 12."""
    multiply = timing.product(_PRODUCT, 'float32')
    multiply()
    seconds = timing.interleaved({'product': multiply}, rounds=30)['product']
    return 2e-12 * _PRODUCT**3 / sorted(seconds)[len(seconds) // 2]


def tables(folder: pathlib.Path, rows: int) -> dict[str, str]:
    """Write two tables of pairs with labels, and return their paths."""
    texts = [*bs.read_corpus('train'), *bs.read_corpus('dev')]
    paths = {}
    for name, part in (('rows', texts[rows : 2 * rows]), ('train', texts[:rows])):
        path = folder / f'{name}.csv'
        with path.open('w', encoding='utf-8', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(('text_a', 'text_b', 'label'))
            writer.writerows((each.text_a, each.text_b, each.label) for each in part)
        paths[name] = str(path)
    return paths


def as_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the cases; the files of results have each section, too."""
    head = ('report', 's', 'first picture', 'MiB')
    rows = [
        [
            f'{each["case"]}: `{each["command"]}`',
            f'{each["seconds"]:.0f}',
            f'{each["waits"]["first picture"]:.0f}' if 'first picture' in each['waits'] else '',
            f'{each["MiB"]:.0f}',
        ]
        for each in results
    ]
    return markdown(head, rows)


def main(_) -> None:
    if _CHILD.value:
        path, arguments = json.loads(_CHILD.value)
        told = watched(arguments)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        write_json(pathlib.Path(path), {**told, 'MiB': peak})
        return
    unknown = set(_ONLY.value) - CASES.keys()
    if unknown:
        raise app.UsageError(f'--only={",".join(unknown)}: cases are {", ".join(CASES)}.')
    if 'again' in _ONLY.value and 'quickstart' not in _ONLY.value:
        raise app.UsageError('--only=again repeats the quickstart: name that, too.')
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        found = []
        paths = tables(folder, 12 if _SMOKE.value else _ROWS)
        for name in [each for each in CASES if each in _ONLY.value]:
            out = folder / ('quickstart' if name == 'again' else name.replace(' ', '_'))
            os.environ['JAX_COMPILATION_CACHE_DIR'] = str(folder / f'compiled {out.name}')
            arguments = [each.format(**paths) for each in CASES[name]]
            if _SMOKE.value:
                arguments = [each.replace('=quickstart', '=quickstart:smoke') for each in arguments]
                arguments += ['--set', 'train.epochs=1']
            result = measured(name, arguments, out)
            result['command'] = result['command'].replace(f'{folder}/', '')
            found.append(result)
            print(as_markdown([result]), flush=True)
        keep(found, pathlib.Path(_RESULTS.value))


def keep(found: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> None:
    """Write results into the file of this device and date; the project's own into its document."""
    about = {
        'date': datetime.date.today().isoformat(),
        'device': timing.processor(),
        'commit': subprocess.run(
            ['git', 'describe', '--always', '--dirty'], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    device = about['device'].replace(', ', '-').replace(' ', '-')
    path = folder / f'{device}-{about["date"]}.json'
    names = {each['case'] for each in found}
    former = (
        [each for each in read_json(path) if each['case'] not in names] if path.exists() else []
    )
    results = [*former, *({**each, **about} for each in found)]
    results.sort(key=lambda each: list(CASES).index(each['case']))
    write_json(path, results)
    if folder == FOLDER:
        document = between(read_text(DOCUMENT), BEGIN, END, as_markdown(results))
        write_text(DOCUMENT, document)


if __name__ == '__main__':
    app.run(main)
