"""Long sweeps, which show their progress and go on where they were interrupted."""

import dataclasses
import hashlib
import os
import pathlib
import time
from collections.abc import Sequence

import jax
import numpy as np
from absl import logging
from jaxtyping import Int

from bert_secrets_jax import processes
from bert_secrets_jax.ablation.contexts import Donors, Means
from bert_secrets_jax.ablation.masks import GivenMasks
from bert_secrets_jax.ablation.sweep import Descent, Swept
from bert_secrets_jax.compute import Compute, Encoding
from bert_secrets_jax.data.encoding import Batch, encode, in_order, to_one_length
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.model.config import EMBEDDING
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress

# The most calls that a batch takes, because progress moves once per batch.
_CALLS_PER_BATCH = 64
# A batch that takes longer is also written while it is computed.
_SECONDS_BETWEEN_WRITES = 60


def sweep_examples(
    pretrained: Pretrained,
    examples: Sequence[Text],
    masks: GivenMasks,
    *,
    baseline: str = 'uniform',
    replacement: Means | None = None,
    donor_seed: int = 0,
    compute: Compute = Compute(),
) -> Swept:
    """Compute the logits of every example under every mask, and show the progress.

    With a folder, a sweep that was killed goes on where it was when it is called again with the
    same arguments; it loses about a minute of work. Delete the folder when the result is saved.
    Files in it that are damaged, or belong to something else, are ignored.

    Args:
      pretrained: A model with a classification or regression head.
      examples: Strings, pairs of strings or `Example`s, all of one kind.
      masks: [M, L, N] The masks, as in `sweep`. The intact model is not added.
      baseline, replacement, donor_seed: As in `sweep`. The mean and the donors are those of all
        examples.
      compute: How it is computed. Many masks make smaller batches, so that progress shows.

    Raises:
      TypeError: The model is not a `Pretrained`, or the examples are not texts.
      ValueError: There are no examples, or `sweep` would refuse the other arguments.
    """
    descent = Descent.start(pretrained, masks, baseline, replacement, compute)
    encoding = encoding_for(descent, compute)
    batches = encode(pretrained.tokenizer, examples, passes=descent.passes, **encoding)
    descent = descent.replacing(pretrained, batches, donor_seed, compute.mesh)
    logits = sweep_all(pretrained, batches, descent, folder=compute.folder)
    return Swept(masks=np.asarray(masks, np.float32), logits=logits)


def encoding_for(descent: Descent, compute: Compute) -> Encoding:
    """Return the arguments of `encode` and `bucket`, with batches so small that progress shows."""
    few = max(descent.tokens * _CALLS_PER_BATCH // len(descent.masks), 1)
    # A batch of more tokens than a call takes would be cut into pieces anyway.
    tokens = min(compute.tokens_per_batch, descent.tokens, few)
    return {**compute.encoding, 'tokens_per_batch': tokens}


def sweep_all(
    pretrained: Pretrained,
    batches: Sequence[Batch],
    descent: Descent,
    *,
    folder: str | os.PathLike[str] | None,
    members: Int[np.ndarray, ' wanted'] | None = None,
    what: str = '',
) -> np.ndarray:
    """Return the logits [M, E, ...] of all batches under a descent that lacks no replacement.

    `members` are the indices of the masks that are wanted; None takes all.
    """
    given = descent.which if members is None else descent.which[members]
    wanted = np.unique(given)
    files = [None] * len(batches)
    if folder is not None:
        files = _files(pathlib.Path(folder), pretrained, descent, batches)
    parts = [_read(file, descent, batch) for file, batch in zip(files, batches, strict=True)]
    waiting = [index for index, (_, done) in enumerate(parts) if not done[wanted].all()]
    if len(waiting) < len(batches):
        logging.info('%d of %d batches are done.', len(batches) - len(waiting), len(batches))
    masks = len(given)
    doing = 'Embedding' if descent.setting.config.head == EMBEDDING else 'Ablation'
    for index in progress(
        waiting,
        what or doing + f' ({masks} masks)' * (masks > 1),
        size=lambda index: batches[index].size * masks,
        unit='masks x ' * (masks > 1) + 'texts',
    ):
        _complete(parts[index], descent, batches[index], files[index], wanted)
    joined = to_one_length(logits for logits, _ in parts)
    return in_order([batch.example for batch in batches], joined, axis=1)[given]


def _files(
    folder: pathlib.Path, pretrained: Pretrained, descent: Descent, batches: Sequence[Batch]
) -> list[pathlib.Path]:
    """Name the file of each batch after all that its logits depend on."""
    # Where it is computed changes no result.
    setting = dataclasses.replace(descent.setting, spread=None)
    sweep = hashlib.sha256(repr(dataclasses.asdict(setting)).encode())
    replacement = descent.replacement
    means = [replacement] if isinstance(replacement, np.ndarray) else []
    _read_into(sweep, *jax.tree.leaves(pretrained.params), descent.masks, *means)
    files = []
    for batch in batches:
        content = sweep.copy()
        content.update(repr(batch.input_ids.shape).encode())
        _read_into(content, *jax.tree.leaves(dataclasses.replace(batch, marks={})))
        if isinstance(replacement, Donors):
            # Not the seed: other donors of other examples change nothing here.
            lent, tokens = replacement.of(batch, padding=descent.setting.config.pad_token_id)
            _read_into(content, *lent.inputs.values(), tokens)
        files.append(folder / f'{content.hexdigest()[:16]}.npz')
    return files


def _read_into(digest, *arrays) -> None:
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)


def _read(
    file: pathlib.Path | None, descent: Descent, batch: Batch
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits [M, B, ...] of a batch, and which of them [M, B] are computed."""
    logits = np.zeros((len(descent.masks), *descent.answer_shape(batch)), np.float32)
    # Filler rows are never computed.
    done = np.tile(np.asarray(batch.example) < 0, (len(descent.masks), 1))
    if file is None or not processes.exists(file):
        return logits, done
    try:
        arrays = read_arrays(file)
    except ValueError:
        arrays = {}
    # The file of another batch could have the same shapes.
    if str(arrays.get('key')) == file.stem and all(
        name in arrays and (arrays[name].shape, arrays[name].dtype) == (empty.shape, empty.dtype)
        for name, empty in (('logits', logits), ('done', done))
    ):
        return arrays['logits'], arrays['done']
    logging.warning('%s is damaged: this part of the sweep is computed again.', file)
    return logits, done


def _complete(
    part: tuple[np.ndarray, np.ndarray],
    descent: Descent,
    batch: Batch,
    file: pathlib.Path | None,
    wanted: Int[np.ndarray, ' wanted'],
) -> None:
    """Compute what is missing of a part, in place, and write it now and then and at the end."""
    logits, done = part

    def write() -> None:
        assert file is not None
        write_arrays(file, {'key': np.array(file.stem), 'logits': logits, 'done': done})

    written = time.monotonic()
    missing = wanted[~done[wanted].all(axis=1)]
    for members, rows, found in descent.steps(batch, missing):
        logits[np.ix_(members, rows)] = found
        done[np.ix_(members, rows)] = True
        # The clocks of several processes differ: they write together, at the end.
        together = file is None or jax.process_count() > 1
        if not together and time.monotonic() - written >= _SECONDS_BETWEEN_WRITES:
            write()
            written = time.monotonic()
    if file is not None:
        processes.on_first(write)
