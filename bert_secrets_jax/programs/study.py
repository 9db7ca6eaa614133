"""A run: its settings, its folder, and what was loaded or computed once."""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_secrets_jax.compute import Compute
from bert_secrets_jax.configs.ranges import parse_axes
from bert_secrets_jax.data.tasks import get_task
from bert_secrets_jax.devices import make_mesh
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.result import Subject
from bert_secrets_jax.runs.run import Run, digest


class Study:
    """One model and its texts, as the settings name them; `run` keeps the results.

    Attributes:
      watched: The names of the sections whose statistics one pass measures together.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path, *, writable: bool = True):
        self.config = config
        self.run = Run(folder, writable=writable)
        self.folder = self.run.folder
        self.watched: tuple[str, ...] = ()
        self._once: dict[Any, Any] = {}

    def release(self) -> None:
        """Free the memory of everything loaded and computed; kept results stay in the folder."""
        self._once.clear()
        self.run.forget()

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Compute a value, or raise its error, once; later calls have the same."""
        if key not in self._once:
            try:
                self._once[key] = compute()
            except Exception as error:
                self._once[key] = error
        value = self._once[key]
        if isinstance(value, Exception):
            raise value
        return value

    @property
    def model_name(self) -> str:
        """The name of the model: that of its folder, or that on the hub."""
        name = self.config.model.name
        is_folder = name.startswith(('/', '.', '~')) or pathlib.Path(name).is_dir()
        return pathlib.PurePath(name).name if is_folder else name

    @property
    def subject(self) -> Subject:
        """The names of the model, the texts and the task of GLUE, for sentences and captions."""
        data = self.config.data
        task = get_task(data.task).name if data.source == 'glue' else None
        return Subject(self.model_name, inputs.text_name(data, data.split), task)

    @property
    def corpus(self) -> str:
        """The name of the texts without that of their split: 'MRPC' of 'MRPC dev'."""
        return self.subject.texts.removesuffix(f' {self.config.data.split}').removesuffix(',')

    @property
    def has_trees(self) -> bool:
        """Whether the texts are sentences of a treebank, whose words they have."""
        return self.config.data.source == 'treebank'

    @property
    def has_pairs(self) -> bool:
        """Whether the texts are pairs of which one asks how alike they are."""
        data = self.config.data
        if data.source == 'glue':
            return get_task(data.task).is_regression
        return data.source == 'file' and data.text_b is not None

    @property
    def has_training(self) -> bool:
        """Whether there are texts to fine-tune on."""
        data = self.config.data
        match data.source:
            case 'segments' | 'treebank':
                return False
            case 'tags' | 'questions':
                return data.train_file is not None
            case 'file':
                return None not in (data.label, data.train_file)
        return True

    @property
    def as_it_is(self) -> bool:
        """Whether the model itself is ablated, and none that is fine-tuned here."""
        return self.config.ablation.checkpoint == 'model'

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of fine-tuning."""
        return tuple(self.config.seed + run for run in range(self.config.train.num_seeds))

    @property
    def ablated_seeds(self) -> tuple[int, ...]:
        """The seeds whose models are ablated; empty if a model is ablated as it is."""
        if self.as_it_is or not self.has_training:
            return ()
        return self.seeds[: self.config.ablation.seeds or None]

    def finetuning_folder(self, made: Call) -> pathlib.Path:
        """Return the folder with the checkpoints of a fine-tuning."""
        return self.folder / 'finetune' / f'{made.named["start"]}-{digest(made.key)}'

    def mesh_with(self, second: str) -> jax.sharding.Mesh | None:
        """Return the devices along `data`, and a second axis if the settings name it; None: one."""
        return make_mesh(parse_axes(self.config.mesh), second)

    def compute(self, folder: pathlib.Path | None = None, *, second: str = '') -> Compute:
        """Return how passes are computed, along a `second` axis, too, if the settings name it."""
        return Compute(
            max_length=self.config.encoding.max_length,
            tokens_per_batch=self.config.encoding.tokens_per_batch,
            chunk_tokens=self.config.ablation.chunk_tokens or None,
            mesh=self.mesh_with(second),
            folder=folder,
        )
