"""What every program starts with: flags, the run's folder, a model and its texts."""

import functools
import logging as python_logging
import pathlib
import traceback
from collections.abc import Callable

import jax
import numpy as np
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

import bert_secrets_jax as bs
from bert_secrets_jax.workdir import open_workdir

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
    """

    def __init__(self, config: ConfigDict, workdir: pathlib.Path):
        self.config = config
        self.workdir = workdir

    @functools.cached_property
    def pretrained(self) -> bs.Pretrained:
        """The model that is studied."""
        model = self.config.model
        return bs.from_pretrained(model.name, dtype=model.dtype, revision=model.revision)

    @functools.cached_property
    def examples(self) -> list[bs.Example]:
        """The texts: all of them, or `max_examples` drawn at random with the run's seed."""
        examples = _read(self.config.data)
        wanted = self.config.data.max_examples
        if len(examples) <= wanted:
            return examples
        chosen = np.random.default_rng(self.config.seed).permutation(len(examples))[:wanted]
        logging.info(
            '%d of %d examples drawn (seed %d).',
            wanted,
            len(examples),
            self.config.seed,
        )
        return [examples[index] for index in sorted(chosen)]

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """All devices, along `data`."""
        return jax.make_mesh(
            (jax.device_count(),), ('data',), axis_types=(jax.sharding.AxisType.Auto,)
        )

    @functools.cached_property
    def batches(self) -> list[bs.Batch]:
        """The texts, encoded."""
        settings = self.config.encoding
        return bs.encode(
            self.pretrained.tokenizer,
            self.examples,
            max_length=settings.max_length,
            tokens_per_batch=settings.tokens_per_batch,
            batch_multiple=jax.device_count(),
        )

    @property
    def model_name(self) -> str:
        """What the model is called in figures: the folder's name, or the name on the hub."""
        name = self.config.model.name
        return pathlib.Path(name).name if pathlib.Path(name).is_dir() else name

    @property
    def text_name(self) -> str:
        """What the texts are called in figures."""
        data = self.config.data
        match data.source:
            case 'glue':
                return f'{bs.get_task(data.task).title} {data.split}'
            case 'corpus':
                return f'embedded corpus, {data.split}'
            case _:
                return pathlib.Path(data.file).name


def _read(data: ConfigDict) -> list[bs.Example]:
    match data.source:
        case 'corpus':
            return bs.read_corpus(data.split)
        case 'file':
            if data.file is None:
                raise ValueError("source 'file' needs --config.data.file=... (.tsv, .csv, .jsonl).")
            return bs.read_table(
                data.file,
                text_a=data.text_a,
                text_b=data.text_b,
                bad_rows=data.bad_rows,
            )
        case 'glue' if data.glue_dir is not None:
            task = bs.get_task(data.task)
            return bs.read_glue(data.glue_dir, task, data.split, bad_rows=data.bad_rows)
        case 'glue':
            try:
                return bs.read_tfds(bs.get_task(data.task), data.split, data_dir=data.tfds_dir)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f'{error} Or name the folder of the original TSV files: '
                    '--config.data.glue_dir=...'
                ) from error
        case _:
            raise ValueError(f"data.source is 'glue', 'corpus' or 'file', not {data.source!r}.")


def launch(main: Callable[[Study], None]) -> None:
    """Run a program. What its user can mend is one line; `--verbosity=1` shows where it arose."""

    def run(_):
        # Our own lines; other libraries chatter at this level (JAX on accelerators it did not
        # find, fontTools on every glyph).
        verbose = logging.get_verbosity() >= logging.DEBUG
        python_logging.getLogger().setLevel(python_logging.WARNING)
        logging.get_absl_logger().setLevel('DEBUG' if verbose else 'INFO')
        try:
            workdir = open_workdir(_WORKDIR.value, _CONFIG.value.to_dict())
            log = python_logging.FileHandler(workdir / 'log.txt')
            log.setFormatter(logging.PythonFormatter())
            logging.get_absl_logger().addHandler(log)
            main(Study(_CONFIG.value, workdir))
        except (ValueError, OSError) as error:
            logging.debug('%s', traceback.format_exc())
            raise SystemExit(f'error: {error}') from None

    flags.mark_flags_as_required(['config', 'workdir'])
    app.run(run)
