"""What a sweep leaves: predictions under every mask, in a file that a killed run goes on from."""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from jax.sharding import Mesh

from bert_secrets_jax.ablation.sweep import default_chunk_tokens, sweep_batches
from bert_secrets_jax.data.encoding import Batch, encode, in_order
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress

# Calls of `chunk_tokens` between two files, about: what a killed run can lose, and how often
# progress shows.
_CALLS_PER_FILE = 64


@dataclasses.dataclass(frozen=True)
class Swept:
    """Predictions under every mask.

    Attributes:
      masks: [K, L, N], the first of which keeps all heads.
      logits: [K, E, C].
      labels: [E].
    """

    masks: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    @property
    def predictions(self) -> np.ndarray:
        """[K, E] class ids, or values of a regression."""
        if self.logits.shape[-1] == 1:
            return self.logits[..., 0]
        return self.logits.argmax(axis=-1)


def sweep_to_file(
    file: pathlib.Path,
    pretrained: Pretrained,
    examples: Sequence[Example],
    masks: np.ndarray,
    *,
    encoding: Mapping[str, Any],
    baseline: str = 'uniform',
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Swept:
    """Sweep masks, or go on where a former run of the same was killed.

    Args:
      file: of the result, .npz; unfinished parts lie in a folder of the same name. The caller names
        it so that other masks, models or texts have another.
      pretrained: with a classifier.
      examples: labelled.
      masks: [K, L, N], as in `sweep`; the intact model is added.
      encoding: further arguments of `encode`.
      baseline, chunk_tokens, mesh: as in `sweep`.

    Raises:
      ValueError: as `sweep`, or when a part is damaged; names the file to delete.
    """
    masks = np.concatenate([np.ones_like(masks[:1]), masks])
    chunk_tokens = chunk_tokens or default_chunk_tokens()
    tokens = max(chunk_tokens * _CALLS_PER_FILE // len(masks), 1)
    tokens = min(tokens, encoding.get('tokens_per_batch', tokens))
    batches = encode(pretrained.tokenizer, examples, **{**encoding, 'tokens_per_batch': tokens})
    directory = file.with_suffix('')
    parts = [directory / f'{index:05}.npz' for index in range(len(batches))]
    waiting = [
        (part, batch) for part, batch in zip(parts, batches, strict=True) if not _done(part, batch)
    ]
    if len(waiting) < len(batches):
        logging.info('%d of %d batches are done.', len(batches) - len(waiting), len(batches))
    found = sweep_batches(
        pretrained.bert,
        pretrained.params,
        progress(
            [batch for _, batch in waiting],
            f'Ablation ({len(masks)} masks)',
            size=lambda batch: batch.size * len(masks),
            unit='masks x examples',
        ),
        masks,
        baseline=baseline,
        chunk_tokens=chunk_tokens,
        mesh=mesh,
    )
    for logits, (part, batch) in zip(found, waiting, strict=True):
        write_arrays(part, {'example': batch.example, 'logits': logits})
    done = [read_arrays(part) for part in parts]
    swept = Swept(
        masks=masks,
        logits=in_order([of['example'] for of in done], [of['logits'] for of in done], axis=1),
        labels=np.array([example.label for example in examples]),
    )
    write_arrays(file, vars(swept))
    shutil.rmtree(directory)
    return swept


def read_swept(file: pathlib.Path) -> Swept:
    """Read what `sweep_to_file` wrote.

    Raises:
      ValueError: when the file is damaged.
    """
    return Swept(**read_arrays(file))


def _done(part: pathlib.Path, batch: Batch) -> bool:
    """Whether a former run wrote this batch; another number of devices makes other batches."""
    return part.exists() and np.array_equal(read_arrays(part)['example'], batch.example)
