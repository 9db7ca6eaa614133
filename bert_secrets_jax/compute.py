"""How things are computed: the length of texts, the size of batches, the devices, the folder."""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, TypedDict

from jax.sharding import Mesh

from bert_secrets_jax.devices import DATA

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
