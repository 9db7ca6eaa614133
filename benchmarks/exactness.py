"""How far maps, logits and gradients are from PyTorch's in float64, in each precision.

    python -m benchmarks.exactness --device=gpu --glue_dir=GLUE
    python -m benchmarks.exactness --shapes=tiny

Both sides have the same random weights and the same pairs of texts. Of maps and logits it is the
greatest difference; of the gradient of the loss, the norm of the difference divided by the norm.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import jax
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks import cases, timing
from benchmarks.table import markdown
from bert_secrets_jax.model.config import COMPUTE_DTYPES

_DEVICE = flags.DEFINE_enum('device', 'cpu', ['cpu', 'gpu'], 'What to run on.')
_SHAPES = flags.DEFINE_enum('shapes', 'bert-base', list(cases.SHAPES), 'The sizes of the model.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded texts without.')
# The pairs of texts, and the number of tokens to which they are padded.
_PAIRS, _LENGTH = 8, 96


@dataclasses.dataclass(frozen=True)
class Found:
    """Maps [B, L, N, T, S], logits [B, C], and the gradient of the word embeddings."""

    maps: np.ndarray
    logits: np.ndarray
    gradient: np.ndarray


def ours(
    case: cases.Case, batch: bs.LabelledBatch, dtype: str, device: jax.Device | None = None
) -> Found:
    """Return what this library computes in a type of products; None is JAX's default device."""
    with jax.default_device(device):
        model = bs.from_pretrained(case.directory, dtype=dtype)

    def loss(params, batch):
        output = model.bert.apply({'params': params}, **batch.inputs)
        return bs.task_loss(output, batch).mean(), (output.attentions, output.logits)

    with jax.default_device(device):
        gradients, (maps, logits) = jax.jit(jax.grad(loss, has_aux=True))(model.params, batch)
    (words,) = jax.tree.leaves(gradients['embeddings']['word'])
    return Found(*(np.asarray(each, np.float64) for each in (maps, logits, words)))


def theirs(case: cases.Case, batch: bs.LabelledBatch, dtype: str, precision: str) -> Found:
    """Return what PyTorch computes: in float64 on the CPU, in other types on JAX's device."""
    import torch

    model = case.theirs(classifier=True)
    torch.set_float32_matmul_precision(precision)
    model = model.to('cpu' if dtype == 'float64' else model.device, getattr(torch, dtype))
    labels = torch.from_numpy(np.asarray(batch.labels)).long().to(model.device)
    output = model(**cases.to_torch(batch, model), labels=labels, output_attentions=True)
    output.loss.backward()
    words = model.bert.embeddings.word_embeddings.weight.grad
    arrays = (torch.stack(output.attentions, 1), output.logits, words)
    return Found(*(each.detach().double().cpu().numpy() for each in arrays))


def ways(case: cases.Case, batch: bs.LabelledBatch) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Yield each way to compute, by name."""
    accelerated = jax.default_backend() != 'cpu'
    for dtype in COMPUTE_DTYPES if accelerated else ('float32', 'bfloat16'):
        yield f'`{dtype}`', lambda dtype=dtype: ours(case, batch, dtype)
    if accelerated:
        yield '`float32` on the CPU', lambda: ours(case, batch, 'float32', jax.devices('cpu')[0])
        yield "PyTorch's TF32", lambda: theirs(case, batch, 'float32', 'high')
    yield "PyTorch's float32", lambda: theirs(case, batch, 'float32', 'highest')
    yield "PyTorch's bfloat16", lambda: theirs(case, batch, 'bfloat16', 'highest')


def differences(found: Found, expected: Found, batch: bs.Batch) -> tuple[float, float, float]:
    """Return those of the maps of real tokens, of the logits, and of the gradient."""
    real = np.asarray(batch.attention_mask)[:, None, None, :, None]
    maps = np.abs(found.maps - expected.maps) * real
    logits = np.abs(found.logits - expected.logits)
    gradient = np.linalg.norm(found.gradient - expected.gradient)
    return maps.max(), logits.max(), gradient / np.linalg.norm(expected.gradient)


def batch_of(case: cases.Case, length: int) -> list[bs.LabelledBatch]:
    """Return the pairs of a case with their labels, padded to one length in one batch."""
    return bs.encode(
        case.ours.tokenizer, case.examples, labels=True, max_length=length, buckets=(),
        tokens_per_batch=len(case.examples) * length,
    )  # fmt: skip


def main(_):
    jax.config.update('jax_platforms', 'cuda,cpu' if _DEVICE.value == 'gpu' else 'cpu')
    sizes = cases.Settings(glue_dir=_GLUE_DIR.value, examples=_PAIRS)
    with tempfile.TemporaryDirectory() as folder:
        case = cases.prepare(_SHAPES.value, pathlib.Path(folder), sizes)
        (batch,) = batch_of(case, _LENGTH)
        expected = theirs(case, batch, 'float64', 'highest')
        rows = []
        for name, compute in ways(case, batch):
            apart = differences(compute(), expected, batch)
            rows.append([name, *(f'{each:.2g}' for each in apart)])
    logits = f'logits, up to {np.abs(expected.logits).max():.2g}'
    print(f'{timing.processor()}\n\n{markdown(("products", "maps", logits, "gradients"), rows)}')


if __name__ == '__main__':
    app.run(main)
