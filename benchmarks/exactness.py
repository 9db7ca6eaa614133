"""How far maps, logits and gradients are from PyTorch's in float64, in each precision.

    python -m benchmarks.exactness --device=gpu --glue_dir=GLUE
    python -m benchmarks.exactness --model=tiny

Both sides have the same random weights and the same pairs of texts. Of maps and logits it is the
greatest difference; of the gradient of the loss, the norm of the difference divided by the norm.
"""

import contextlib
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
_MODEL = flags.DEFINE_enum('model', 'bert-base', list(cases.SHAPES), 'The shapes of the model.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded texts without.')
_PAIRS = flags.DEFINE_integer('pairs', 8, 'The number of pairs of texts.')
_LENGTH = flags.DEFINE_integer('length', 96, 'The number of tokens to which they are padded.')


@dataclasses.dataclass(frozen=True)
class Found:
    """Maps [B, L, N, T, S], logits [B, C], and the gradient of the word embeddings."""

    maps: np.ndarray
    logits: np.ndarray
    gradient: np.ndarray


def ours(case: cases.Case, batch: bs.LabelledBatch, dtype: str) -> Found:
    """Return what this library computes in a type of products, on JAX's default device."""
    model = bs.from_pretrained(case.directory, dtype=dtype)

    def loss(params, batch):
        output = model.bert.apply({'params': params}, **batch.inputs)
        return bs.task_loss(output, batch).mean(), (output.attentions, output.logits)

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
        yield '`float32` on the CPU', lambda: ours(case, batch, 'float32')
        yield "PyTorch's TF32", lambda: theirs(case, batch, 'float32', 'high')
    yield "PyTorch's float32", lambda: theirs(case, batch, 'float32', 'highest')
    yield "PyTorch's bfloat16", lambda: theirs(case, batch, 'bfloat16', 'highest')


def row(found: Found, expected: Found, real: np.ndarray) -> list[str]:
    """Return the differences of one way: of maps between real tokens, logits, the gradient."""
    maps = np.abs(found.maps - expected.maps) * real[:, None, None, :, None]
    gradient = np.linalg.norm(found.gradient - expected.gradient)
    greatest = (maps.max(), np.abs(found.logits - expected.logits).max())
    return [f'{each:.2g}' for each in (*greatest, gradient / np.linalg.norm(expected.gradient))]


def main(_):
    jax.config.update('jax_platforms', 'cuda,cpu' if _DEVICE.value == 'gpu' else 'cpu')
    sizes = cases.Settings(glue_dir=_GLUE_DIR.value, examples=_PAIRS.value)
    with tempfile.TemporaryDirectory() as folder:
        case = cases.prepare(_MODEL.value, pathlib.Path(folder), sizes)
        (batch,) = bs.encode(
            case.ours.tokenizer, case.examples, labels=True, max_length=_LENGTH.value,
            buckets=(), tokens_per_batch=_PAIRS.value * _LENGTH.value,
        )  # fmt: skip
        expected = theirs(case, batch, 'float64', 'highest')
        rows = []
        for name, compute in ways(case, batch):
            on_cpu = jax.default_device(jax.devices('cpu')[0])
            with on_cpu if name.endswith('CPU') else contextlib.nullcontext():
                rows.append([name, *row(compute(), expected, np.asarray(batch.attention_mask))])
    logits = f'logits, up to {np.abs(expected.logits).max():.2g}'
    print(f'{timing.processor()}\n\n{markdown(("products", "maps", logits, "gradients"), rows)}')


if __name__ == '__main__':
    app.run(main)
