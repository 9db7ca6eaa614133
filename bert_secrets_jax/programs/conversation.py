"""How a program talks to its user: what it prints, what its log holds, and how it ends."""

import contextlib
import logging as python_logging
import pathlib
import traceback
from collections.abc import Callable, Iterator, Sequence

from absl import flags, logging
from ml_collections import ConfigDict

from bert_secrets_jax import processes
from bert_secrets_jax.brief import MENDABLE, summary
from bert_secrets_jax.cache import enable_cache
from bert_secrets_jax.configs import ranges
from bert_secrets_jax.data.tasks import get_task
from bert_secrets_jax.files import open_regular
from bert_secrets_jax.programs.comparing import compare_runs
from bert_secrets_jax.programs.report import PAGE, one_line, write_report
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.folder import open_folder


def run_in(
    workdir: str | pathlib.Path, config: ConfigDict, main: Callable[[Sequence[Study]], object]
) -> None:
    """Open the folder of a run, and call a function with its studies; a mendable error ends it."""
    workdir = pathlib.Path(workdir)
    enable_cache()
    try:
        studies = open_studies(config, workdir)
        with _logged(workdir / 'log.txt') if processes.is_first() else contextlib.nullcontext():
            main(studies)
    except MENDABLE as error:
        if processes.is_loss(error):
            raise
        logging.debug('%s', traceback.format_exc())
        raise SystemExit(f'error: {one_line(error, workdir)}') from None


@contextlib.contextmanager
def _logged(path: pathlib.Path) -> Iterator[None]:
    """Add the lines of the log to a file."""
    if path.exists():
        # A pipe would be waited for without end.
        open_regular(path).close()
    log = python_logging.FileHandler(path, encoding='utf-8', errors='backslashreplace')
    log.setFormatter(logging.PythonFormatter())
    logging.get_absl_logger().addHandler(log)
    try:
        yield
    finally:
        logging.get_absl_logger().removeHandler(log)
        log.close()


def answer(studies: Sequence[Study], chosen: Sequence[str] | None) -> None:
    """Answer sections, and print warnings, findings (of a report, claims) and where the page is."""
    folder = studies[0].folder.parent if len(studies) > 1 else studies[0].folder
    try:
        for answers in write_report(studies, chosen):
            if not processes.is_first():
                continue
            lead = f'{answers.group}: ' if answers.group else ''
            # Warnings come before anything else, whatever was asked for.
            found = [each for result in answers.results.values() for each in result.findings()]
            warnings = {finding.name: finding for finding in reversed(found) if finding.warning}
            # The page says the rest of a whole report.
            whole = chosen is None or list(chosen) == ['all']
            asked = answers.results_of(['claims'] if whole else chosen).values()
            others = [each for result in asked for each in result.findings() if not each.warning]
            for finding in (*warnings.values(), *others):
                print(f'{lead}{finding.sentence}')
    finally:
        page = folder / PAGE
        if processes.is_first() and page.exists():
            print(f'Report: {page.resolve()}')


def compare(runs: Sequence[str], out: str) -> None:
    """Compare finished runs, and print the findings and the path of the page."""
    try:
        for finding in compare_runs(runs, out=out).findings():
            print(finding.sentence)
    except MENDABLE as error:
        logging.debug('%s', traceback.format_exc())
        raise SystemExit(f'error: {summary(error)}') from None
    print(f'Report: {(pathlib.Path(out) / PAGE).resolve()}')


def set_up_logging() -> None:
    """Show only the log lines of this package; other libraries log much at the same level."""
    # `absl.app` has done both, the command line has not: it has no flags of absl.
    logging.use_absl_handler()
    flags.FLAGS.mark_as_parsed()
    # A log that cannot be written, on a full disk for one, is no reason for a traceback.
    python_logging.raiseExceptions = False
    verbose = logging.get_verbosity() >= logging.DEBUG
    python_logging.getLogger().setLevel(python_logging.WARNING)
    logging.get_absl_logger().setLevel('DEBUG' if verbose else 'INFO')
    logging.get_absl_logger().addFilter(lambda record: 'orbax' not in record.pathname)


def open_studies(config: ConfigDict, workdir: pathlib.Path) -> list[Study]:
    """Return a study for each task that `data.task` names, each in a folder of its own, opened."""
    ranges.check(config)
    tasks = config.data.task.split(',') if config.data.source == 'glue' else []
    names = [get_task(task).name for task in tasks]
    if len(tasks) < 2:
        return [_open(config, workdir)]
    if len(set(names)) < len(names):
        raise ValueError(f'A task is given twice: {config.data.task}.')
    if processes.exists(workdir / 'config.json'):
        raise ValueError(f'{workdir} holds a run of one task: choose another folder.')
    studies = []
    for name in names:
        of_task = config.copy_and_resolve_references()
        of_task.data.task = name
        studies.append(_open(of_task, workdir / name))
    return studies


def _open(config: ConfigDict, folder: pathlib.Path) -> Study:
    processes.on_first(lambda: open_folder(folder, config.to_dict()))
    # Says so if this process has another folder of that name.
    processes.exists(folder / 'config.json')
    return Study(config, folder)
