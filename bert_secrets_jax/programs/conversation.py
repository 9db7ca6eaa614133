"""How a program talks to its user: what it prints, what its log holds, and how it ends."""

import contextlib
import logging as python_logging
import pathlib
import re
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence

from absl import flags, logging
from ml_collections import ConfigDict

from bert_secrets_jax import processes
from bert_secrets_jax.checks import MENDABLE
from bert_secrets_jax.compute import enable_cache
from bert_secrets_jax.configs import schema
from bert_secrets_jax.data.rows import some_of
from bert_secrets_jax.files import open_regular
from bert_secrets_jax.local import serve_until_stopped
from bert_secrets_jax.programs.api import compare_runs
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.report import PAGE, one_line, open_studies, write_report
from bert_secrets_jax.programs.settings import as_flags
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.report import typed
from bert_secrets_jax.runs.folder import VERSIONS

# The files of a run that has computed nothing.
_NOTES = re.compile(r'(config|versions|inputs)\.json|log\.txt|(pace|offers|fact__\w+)-.*')


def run_in(
    workdir: str | pathlib.Path, config: ConfigDict, main: Callable[[Sequence[Study]], object]
) -> None:
    """Open the folder of a run, and call a function with its studies; a mendable error ends it."""
    workdir = pathlib.Path(workdir)
    enable_cache()
    studies: Sequence[Study] = ()
    with _as_it_was(workdir):
        try:
            studies = open_studies(config, workdir)
            with _logged(workdir / 'log.txt') if processes.is_first() else contextlib.nullcontext():
                _say_classes(config, studies)
                main(studies)
        except MENDABLE as error:
            if processes.is_loss(error):
                raise
            logging.debug('%s', traceback.format_exc())
            line = one_line(error, workdir)
            gone = [each.folder for each in studies if not each.folder.joinpath(VERSIONS).exists()]
            if gone and isinstance(error, OSError):
                line = (
                    f'{gone[0]} was deleted or moved while this run wrote there: what it had '
                    'computed is gone with it. Start it again, or move the folder back before.'
                )
            raise SystemExit(as_flags(f'error: {line}')) from None


@contextlib.contextmanager
def _as_it_was(folder: pathlib.Path) -> Iterator[None]:
    """Remove a new folder when an error ends the run before anything is computed."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except SystemExit as error:
        says_more = any(name in str(error) for name in ('log.txt', 'error.txt'))
        if processes.is_first() and missing and folder.exists() and not says_more:
            files = [each for each in folder.rglob('*') if not each.is_dir()]
            if all(_NOTES.fullmatch(each.name) for each in files):
                shutil.rmtree(folder)
                with contextlib.suppress(OSError):
                    for parent in missing[1:]:
                        parent.rmdir()
        raise


def _say_classes(config: ConfigDict, studies: Sequence[Study]) -> None:
    """Log the classes of labels that are words, if nobody has named them."""
    names = studies[0].config.data.labels
    if names and not config.data.labels:
        shown = some_of([f'{name} ({number})' for number, name in enumerate(names)], 10)
        other = as_flags('setting data.labels')
        logging.info('Classes, in sorted order: %s. %s sets another order.', shown, other)


@contextlib.contextmanager
def _logged(path: pathlib.Path) -> Iterator[None]:
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
            # Warnings come before anything else, whatever was asked for.
            found = [each for result in answers.results.values() for each in result.findings()]
            warnings = {finding.name: finding for finding in reversed(found) if finding.warning}
            # The page says the rest of a whole report.
            whole = chosen is None or list(chosen) == ['all']
            asked = answers.results_of(['claims'] if whole else chosen).values()
            others = [each for result in asked for each in result.findings() if not each.warning]
            for finding in (*warnings.values(), *others):
                print(f'{answers.lead}{finding.sentence}')
    finally:
        page = folder / PAGE
        if processes.is_first() and page.exists():
            print(f'Report: {page.resolve()}')


def compare(runs: Sequence[str], out: str) -> None:
    """Compare finished runs, and print the findings and the path of the page."""
    for finding in compare_runs(runs, out=out).findings():
        print(finding.sentence)
    print(f'Report: {(pathlib.Path(out) / PAGE).resolve()}')


def serve(config: ConfigDict, port: int) -> None:
    """Serve the page on which one types: it needs the model alone, and no folder of results."""
    enable_cache()
    schema.check(config)
    serve_maps(Study(config, pathlib.Path()), port=port)


def serve_maps(study: Study, *, port: int = 0) -> None:
    """Serve the page for the model of a study, on a port of 127.0.0.1; 0 takes any free one."""
    model, longest = Given(study).value('pretrained'), study.config.encoding.max_length
    serve_until_stopped(typed.serve(study.model_name, model, max_length=longest, port=port))


def set_up_logging() -> None:
    """Show only the log lines of this package; other libraries log much at the same level."""
    # `absl.app` has done both, the command line has not: it has no flags of absl.
    logging.use_absl_handler()
    logging.get_absl_handler().setFormatter(python_logging.Formatter('%(message)s'))
    flags.FLAGS.mark_as_parsed()
    # A log that cannot be written, on a full disk for one, is no reason for a traceback.
    python_logging.raiseExceptions = False
    verbose = logging.get_verbosity() >= logging.DEBUG
    python_logging.getLogger().setLevel(python_logging.WARNING)
    logging.get_absl_logger().setLevel('DEBUG' if verbose else 'INFO')
    logging.get_absl_logger().addFilter(lambda record: 'orbax' not in record.pathname)
