"""What every program starts with: flags, the run's folder, a model and its texts."""

import functools
import hashlib
import logging as python_logging
import pathlib
import traceback
from collections.abc import Callable

import jax
import numpy as np
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

import bert_secrets_jax as bs
from bert_secrets_jax.data.corpus import LABELS
from bert_secrets_jax.data.encoding import Encoded, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.model.weights import fingerprint
from bert_secrets_jax.workdir import open_workdir, remember_input

# Errors that a user can mend.
MENDABLE = (ValueError, OSError, ImportError, FloatingPointError)
# Settings that may change within a folder: results of the ablation lie in files of their own, and
# texts are known by their content, wherever they are.
_FREE = ('ablation', 'data.glue_dir', 'data.tfds_dir')

_CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'Settings, such as configs/quickstart.py.', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the results; the same one resumes.')


class Study:
    """One run. Model and texts are loaded when they are first needed, so that a resumed run whose
    parts are all finished loads nothing.

    Attributes:
      config: all settings.
      workdir: folder of the results.
      failures: errors of the steps that have failed, by step and arguments (`fails_once`).
    """

    def __init__(self, config: ConfigDict, workdir: pathlib.Path):
        self.config = config
        self.workdir = workdir
        self.failures = {}

    @functools.cached_property
    def pretrained(self) -> bs.Pretrained:
        """The model that is studied, without any classifier."""
        return self.load(label_names=())

    def load(self, **changes) -> bs.Pretrained:
        """Load the configured model; `changes` are further arguments of `from_pretrained`."""
        model = self.config.model
        weights = fingerprint(model.name, revision=model.revision)
        remember_input(self.workdir, 'weights', weights)
        return bs.from_pretrained(
            model.name,
            dtype=model.dtype,
            revision=model.revision,
            ignore_config=model.ignore_config,
            **changes,
        )

    @functools.cached_property
    def examples(self) -> list[bs.Example]:
        """The texts that are analysed: `data.max_examples` of `dev`."""
        return draw(self.dev, self.config.data.max_examples, self.config.seed)

    @functools.cached_property
    def dev(self) -> list[bs.Example]:
        """All examples of `data.split`."""
        return self._read(self.config.data.split)

    @functools.cached_property
    def train(self) -> list[bs.Example]:
        """The training examples: `train.max_examples` of them."""
        return draw(self._read('train'), self.config.train.max_examples, self.config.seed)

    def _read(self, split: str) -> list[bs.Example]:
        examples = _read(self.config.data, split)
        content = hashlib.sha256(repr(examples).encode()).hexdigest()
        remember_input(self.workdir, f'texts ({split})', content)
        return examples

    @functools.cached_property
    def batches(self) -> list[bs.Batch]:
        """The texts that are analysed, encoded."""
        return self.encode(self.examples)

    @functools.cached_property
    def encoded(self) -> Encoded:
        """The texts that are analysed, tokenised, with marks of what spaCy finds in them."""
        # The texts first: a mistake in them shows before a large model is fetched.
        examples, max_length = self.examples, self.config.encoding.max_length
        encoded = tokenize(self.pretrained.tokenizer, examples, max_length=max_length)
        pipeline = self.config.linguistics.pipeline
        if not pipeline:
            return encoded
        return mark(
            encoded, annotate(examples, pipeline=pipeline, cache=self.workdir / 'linguistics')
        )

    def encode(self, examples: list[bs.Example], **changes) -> list[bs.Batch]:
        """Encode examples as configured, but for the given changes."""
        return bs.encode(self.pretrained.tokenizer, examples, **(self.encoding | changes))

    @property
    def encoding(self) -> dict:
        """Settings of `encode`."""
        return self.config.encoding.to_dict() | {'batch_multiple': jax.device_count()}

    @property
    def glue_task(self) -> bs.Task | None:
        """The task of GLUE, of which the paper has numbers; None for other texts."""
        data = self.config.data
        return bs.get_task(data.task) if data.source == 'glue' else None

    @functools.cached_property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes; a single one for regression."""
        data = self.config.data
        match data.source:
            case 'corpus':
                return LABELS
            case 'glue':
                return bs.get_task(data.task).labels or ('score',)
        if data.label is None:
            raise ValueError('Fine-tuning needs labels: --config.data.label=COLUMN.')
        labels = [example.label for example in self.train]
        if any(isinstance(label, float) for label in labels):
            return ('score',)
        return data.labels or tuple(f'LABEL_{index}' for index in range(max(labels) + 1))

    def metrics(self, classes: int) -> tuple[str, ...]:
        """Return the names of the metrics: GLUE's for its tasks, else by the number of classes."""
        if self.glue_task:
            return self.glue_task.metrics
        match classes:
            case 1:
                return ('pearson', 'spearman')
            case 2:
                return ('f1', 'accuracy')
            case _:
                return ('accuracy',)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh | None:
        """All devices, along `data`; None for a single one."""
        if jax.device_count() == 1:
            return None
        return jax.make_mesh(
            (jax.device_count(),), ('data',), axis_types=(jax.sharding.AxisType.Auto,)
        )

    @property
    def model_name(self) -> str:
        """What the model is called in figures: the folder's name, or the name on the hub."""
        name = self.config.model.name
        return pathlib.PurePath(name).name if name.startswith(('/', '.', '~')) else name

    def text_name(self, split: str) -> str:
        """Return what the texts of a split are called in figures."""
        data = self.config.data
        match data.source:
            case 'glue':
                return f'{bs.get_task(data.task).title} {split}'
            case 'corpus':
                return f'embedded corpus, {split}'
            case _:
                return pathlib.PurePath(_file(data, split)).name


def fails_once(step: Callable) -> Callable:
    """Make a step that several sections share fail at once when it has failed before.

    Args:
      step: function of a study and further hashable arguments.
    """

    @functools.wraps(step)
    def remembered(study: Study, *arguments):
        key = (step.__module__, step.__name__, *arguments)
        if key in study.failures:
            raise study.failures[key]
        try:
            return step(study, *arguments)
        except Exception as error:
            study.failures[key] = error
            raise

    return remembered


def draw(examples: list[bs.Example], wanted: int, seed: int) -> list[bs.Example]:
    """Return at most `wanted` examples, drawn at random, in their order; all for 0."""
    if wanted < 0:
        raise ValueError(f'max_examples={wanted} must be at least 1, or 0 for all.')
    if wanted == 0 or len(examples) <= wanted:
        return examples
    chosen = np.random.default_rng(seed).permutation(len(examples))[:wanted]
    logging.info('%d of %d examples drawn (seed %d).', wanted, len(examples), seed)
    return [examples[index] for index in sorted(chosen)]


def _read(data: ConfigDict, split: str) -> list[bs.Example]:
    match data.source:
        case 'corpus':
            return bs.read_corpus(split)
        case 'glue' if data.glue_dir is not None:
            task = bs.get_task(data.task)
            return bs.read_glue(data.glue_dir, task, split, bad_rows=data.bad_rows)
        case 'glue':
            try:
                return bs.read_tfds(bs.get_task(data.task), split, data_dir=data.tfds_dir)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    'Name the folder of the original TSV files, --config.data.glue_dir=..., or '
                    f'prepare them: {error}'
                ) from error
        case _:
            return bs.read_table(
                _file(data, split),
                text_a=data.text_a,
                text_b=data.text_b,
                label=data.label,
                labels=data.labels or None,
                bad_rows=data.bad_rows,
            )


def _file(data: ConfigDict, split: str) -> str:
    """Return the table that a split is read from."""
    if data.source != 'file':
        raise ValueError(f"data.source is 'glue', 'corpus' or 'file', not {data.source!r}.")
    name = 'train_file' if split == 'train' else 'file'
    if data[name] is None:
        raise ValueError(f'--config.data.{name} is not given (.tsv, .csv or .jsonl).')
    return data[name]


def launch(main: Callable[[Study], object]) -> None:
    """Run a program for each task. What its user can mend is one line; `--verbosity=1` shows where
    it arose."""
    launch_all(lambda studies: [main(study) for study in studies])


def launch_all(main: Callable[[list[Study]], object]) -> None:
    """Run a program for all tasks together, as `launch` does."""

    def run(_):
        # Our own lines; other libraries chatter at this level (JAX on accelerators it did not
        # find, fontTools on every glyph, Orbax on every step of a checkpoint).
        verbose = logging.get_verbosity() >= logging.DEBUG
        python_logging.getLogger().setLevel(python_logging.WARNING)
        logging.get_absl_logger().setLevel('DEBUG' if verbose else 'INFO')
        logging.get_absl_logger().addFilter(lambda record: 'orbax' not in record.pathname)
        # What was compiled once is read the next time. $JAX_COMPILATION_CACHE_DIR is another place,
        # JAX_ENABLE_COMPILATION_CACHE=false does without.
        if jax.config.jax_compilation_cache_dir is None:
            cache = pathlib.Path.home() / '.cache' / 'bert_secrets_jax' / 'compiled'
            jax.config.update('jax_compilation_cache_dir', str(cache))
            jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.3)
        workdir = pathlib.Path(_WORKDIR.value)
        try:
            studies = _open(_CONFIG.value, workdir)
            log = python_logging.FileHandler(workdir / 'log.txt')
            log.setFormatter(logging.PythonFormatter())
            logging.get_absl_logger().addHandler(log)
            main(studies)
        except MENDABLE as error:
            logging.debug('%s', traceback.format_exc())
            raise SystemExit(f'error: {one_line(error, workdir)}') from None

    app.run(run, flags_parser=_parse_flags)


def one_line(error: Exception, workdir: pathlib.Path) -> str:
    """Return the first line of an error; what it lists below is added to a file of the folder."""
    summary, *listing = str(error).splitlines() or [type(error).__name__]
    if listing:
        details = workdir / 'error.txt'
        former = details.read_text() if details.exists() else ''
        if f'{error}\n' not in former:
            write_atomically(details, f'{former}{error}\n'.encode())
        summary += f' All of them: {details}'
    return summary


def _open(config: ConfigDict, workdir: pathlib.Path) -> list[Study]:
    """Open the folder of the one task, or a folder in it for each of several."""
    tasks = config.data.task.split(',') if config.data.source == 'glue' else []
    if len(tasks) < 2:
        return [Study(config, open_workdir(workdir, config.to_dict(), free=_FREE))]
    names = [bs.get_task(task).name for task in tasks]
    if len(set(names)) < len(names):
        raise ValueError(f'A task is given twice: {config.data.task}.')
    if (workdir / 'config.json').exists():
        raise ValueError(f'{workdir} holds a run of one task: choose another --workdir.')
    studies = []
    for name in names:
        of_task = config.copy_and_resolve_references()
        of_task.data.task = name
        folder = open_workdir(workdir / name, of_task.to_dict(), free=_FREE)
        studies.append(Study(of_task, folder))
    return studies


def _parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line; a mistake in it is one line."""
    try:
        arguments = flags.FLAGS(argv)
        if not (_CONFIG.value and _WORKDIR.value):
            raise SystemExit(
                'error: Name settings and a folder for the results: '
                '--config=configs/quickstart.py --workdir=results/quickstart, for one.'
            )
        # A config file that is missing is an error only when it is looked at.
        _CONFIG.value.to_dict()
    except (AttributeError, KeyError) as error:
        # ml_collections on settings that do not exist, with what may have been meant.
        while isinstance(error.args[0], Exception):
            error = error.args[0]
        words = '. '.join(error.args[0].splitlines())
        raise SystemExit(f'error: No such setting: {words}') from None
    except (flags.Error, OSError) as error:
        # An error of a config file comes with its traceback, of which the last line says it.
        raise SystemExit(f'error: {str(error).strip().splitlines()[-1].strip()}') from None
    if len(arguments) > 1:
        # A space behind a comma, for one: what stands behind it would not be done.
        raise SystemExit(f'error: These words belong to no flag: {" ".join(arguments[1:])}')
    return arguments
