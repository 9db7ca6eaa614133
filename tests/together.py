"""What several processes compute together in the tests; started as a program, it is one of them."""

import argparse
import os
import pathlib
import signal
import sys
from collections.abc import Mapping

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.devices import make_mesh, parse_axes
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.model.weights import without_head

TEXTS = ['the cat saw', 'a dog .', 'not he', 'the big red bird liked the old small house', 'it'] * 2
EXAMPLES = [
    Example(text, f'{("dog", "cat")[index % 2]} ran', index % 2, str(index))
    for index, text in enumerate(TEXTS)
]
TRAINING = {
    'seeds': 2, 'epochs': 2, 'batch_size': 8, 'micro_batch': 8, 'learning_rate': 5e-3,
    'max_length': 16, 'log_every': 1, 'checkpoint_every': 1,
}  # fmt: skip


def measured(model, mesh) -> dict[str, np.ndarray]:
    """Return the moments and the values of statistics, and the logits of a sweep."""
    devices = 1 if mesh is None else mesh.shape['data']
    batches = bs.encode(model.tokenizer, TEXTS, tokens_per_batch=32, batch_multiple=devices)
    names = ['[CLS]', 'entropy (nats)']
    tables = bs.collect(model, batches, names, mesh=mesh, keep_values=True)
    found = {}
    for name, table in tables.items():
        found |= {f'{name} mean': table.mean, f'{name} variance': table.variance}
        found[f'{name} values'] = table.values
    return found


def swept(model, mesh, folder, baseline='uniform') -> dict[str, np.ndarray]:
    """Return the logits of a sweep, which goes on in its folder."""
    masks = bs.masks.single_heads(model.config)
    options = {'tokens_per_batch': 64, 'chunk_tokens': 64, 'mesh': mesh, 'folder': folder}
    found = sweep_examples(model, TEXTS, masks, max_length=16, baseline=baseline, **options)
    return {f'logits {baseline}': found.logits}


def tuned(model, mesh, folder) -> dict[str, np.ndarray]:
    """Return the answers of two models that were fine-tuned together, and their curves."""
    bare = without_head(model)
    found = bs.finetune(bare, EXAMPLES, EXAMPLES, folder=folder, mesh=mesh, **TRAINING)
    (batch,) = bs.encode(model.tokenizer, EXAMPLES)
    answers = [
        each.bert.apply({'params': each.params}, **batch.inputs).logits for each in found.models
    ]
    losses = np.array([row['loss'] for row in found.history])
    return {'answers': np.array(answers), 'losses': losses}


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise an error unless all arrays are the same but for the rounding of float32.

    Steps of Adam make more of it.
    """
    assert found
    for name, value in found.items():
        atol = 2e-4 if name in ('answers', 'losses') else 1e-5
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=atol, err_msg=name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('checkpoint')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('work')
    parser.add_argument('--mesh', default='')
    parser.add_argument('--address')
    parser.add_argument('--count', type=int)
    parser.add_argument('--id', type=int)
    parser.add_argument('--heartbeat', type=int, default=20)
    parser.add_argument('--killed-at', type=int, default=-1)
    given = parser.parse_args()
    with processes.together(
        coordinator_address=given.address,
        num_processes=given.count,
        process_id=given.id,
        heartbeat_seconds=given.heartbeat,
    ):
        axes = parse_axes(given.mesh)
        model = bs.from_pretrained(given.checkpoint)
        found = {}
        if 'collect' in given.work:
            found |= measured(model, make_mesh(axes))
        if 'sweep' in given.work:
            for baseline in ('uniform', 'resample'):
                folder = given.folder / 'sweep'
                found |= swept(model, make_mesh(axes, 'masks'), folder, baseline)
        if given.killed_at >= 0:
            kill_at_step(given.killed_at)
        if 'finetune' in given.work:
            found |= tuned(model, make_mesh(axes, 'seeds'), given.folder / 'tuned')
        np.savez(given.folder / f'found{given.id or 0}.npz', **found)


def kill_at_step(step: int) -> None:
    """Kill this process when it comes to a step of a fine-tuning."""
    rows_of_step = loop.rows_of_step

    def counted(seed, at, *arguments):
        if at == step:
            print('killed', flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return rows_of_step(seed, at, *arguments)

    loop.rows_of_step = counted


if __name__ == '__main__':
    sys.exit(main())
