"""How things are computed: the length of texts, the size of batches, the devices, the folder.

Every process holds the same batches, which cost the host little, and puts only its own share of
their rows on its devices. What comes back is whole on every process.
"""

import dataclasses
import math
import os
import pathlib
from typing import TYPE_CHECKING, Any, TypedDict

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

if TYPE_CHECKING:
    from bert_secrets_jax.model.config import BertConfig


class Encoding(TypedDict):
    """The keyword arguments of `data.encoding.encode` and `bucket` that a `Compute` has."""

    max_length: int | None
    tokens_per_batch: int
    batch_multiple: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compute:
    """How things are computed. Only `max_length` changes a result by more than rounding.

    Attributes:
      max_length: The greatest number of tokens. Longer inputs are cut, which a warning says. None
        cuts nothing, and a text with more tokens than the model reads is refused.
      tokens_per_batch: The greatest number of rows times padded length of a batch.
      chunk_tokens: The number of tokens, of all examples and masks together, that one call
        computes; None takes one that suits the device.
      mesh: The devices along an axis `data`, over which each batch is split; None uses a single
        device.
      folder: The folder for unfinished work, from which the same call goes on after an
        interruption; None keeps it in memory only.
    """

    max_length: int | None = None
    tokens_per_batch: int = 2048
    chunk_tokens: int | None = None
    mesh: Mesh | None = None
    folder: str | os.PathLike[str] | None = None

    @property
    def devices(self) -> int:
        """The number of devices that share a batch."""
        return 1 if self.mesh is None else self.mesh.shape[DATA]

    @property
    def encoding(self) -> Encoding:
        """The keyword arguments of `data.encoding.encode` and `bucket`."""
        return {
            'max_length': self.max_length,
            'tokens_per_batch': self.tokens_per_batch,
            'batch_multiple': self.devices,
        }

    def within(self, config: 'BertConfig') -> 'Compute':
        """Return the same with texts cut as a model prescribes (`config.longest`), or shorter."""
        most = config.longest
        return dataclasses.replace(self, max_length=min(self.max_length or most, most))

    def part(self, name: str) -> 'Compute':
        """Return the same with a folder of its own, in `folder`, for a part of the work."""
        folder = None if self.folder is None else pathlib.Path(self.folder) / name
        return dataclasses.replace(self, folder=folder)


# The axis of devices that share the examples, and the names of a second axis. Its devices share the
# masks of a sweep, or the seeds of a fine-tuning.
DATA, MASKS, SEEDS = 'data', 'masks', 'seeds'
# Shorter compilations are as quick as reading the file.
_WORTH_KEEPING_SECONDS = 0.3


def enable_cache(folder: str | os.PathLike | None = None) -> pathlib.Path:
    """Keep compiled programs on disk, so that what was compiled once is only read the next time.

    Without a folder, a cache that JAX already has is left as it is: set
    `$JAX_COMPILATION_CACHE_DIR` to have it elsewhere. `JAX_ENABLE_COMPILATION_CACHE=false` turns
    every cache off.
    The folder that is in use is returned, by default `~/.cache/bert_secrets_jax/compiled`.
    """
    used = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None and used is not None:
        return pathlib.Path(used)
    folder = pathlib.Path(folder or '~/.cache/bert_secrets_jax/compiled').expanduser()
    jax.config.update('jax_compilation_cache_dir', str(folder))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', _WORTH_KEEPING_SECONDS)
    return folder


def make_mesh(axes: dict[str, int], second: str | None = None) -> Mesh | None:
    """Return a mesh of devices, with the second axis that is wanted; None for a single device.

    ValueError if there are too few, or several processes would leave some of theirs out.
    """
    there = jax.device_count()
    count = math.prod(axes.values()) if axes else there
    if count > there or (jax.process_count() > 1 and count < there):
        wanted = ','.join(f'{name}:{number}' for name, number in axes.items())
        raise ValueError(
            f'mesh={wanted} needs {count} devices, and there are {there}'
            + (f' in {jax.process_count()} processes' if jax.process_count() > 1 else '')
            + ": choose other numbers, or '' for all devices."
        )
    if count == 1:
        return None
    along = {DATA: axes[DATA], second: axes[second]} if second in axes else {DATA: count}
    types = (AxisType.Auto,) * len(along)
    devices = None if count == there else jax.devices()[:count]
    return jax.make_mesh(tuple(along.values()), tuple(along), axis_types=types, devices=devices)


def place(tree: Any, sharding: Any) -> Any:
    """Put arrays that every process has on the devices; each process only moves its own share."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def shared(leaf):
        leaf = np.asarray(leaf)
        return jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__)

    return jax.tree.map(shared, tree)


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Put arrays on all devices; without a mesh they stay where they are."""
    return tree if mesh is None else place(tree, NamedSharding(mesh, PartitionSpec()))


def split(tree: Any, mesh: Mesh | None) -> Any:
    """Put arrays on the devices that share their rows; without a mesh on the usual device."""
    return place(tree, None if mesh is None else NamedSharding(mesh, PartitionSpec(DATA)))


def fetch(tree: Any) -> Any:
    """Return arrays of the devices as NumPy arrays, whole on every process."""
    return jax.tree.map(_fetched, tree)


def _fetched(leaf):
    if getattr(leaf, 'is_fully_addressable', True) or leaf.is_fully_replicated:
        return np.asarray(leaf)
    return multihost_utils.process_allgather(leaf, tiled=True)
