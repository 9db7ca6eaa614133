"""Work that several processes share in the tests; started as a program, it is one of them."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import signal
import sys
from collections.abc import Iterator, Mapping

import jax
import numpy as np
from absl import logging

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from bert_secrets_jax.ablation import layers
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.compute import make_mesh
from bert_secrets_jax.configs.schema import parse_axes
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune import steps
from bert_secrets_jax.model.weights import without_head
from bert_secrets_jax.pruning.gates import train_gates

TEXTS = ['the cat saw', 'a dog .', 'not he', 'the big red bird liked the old small house', 'it'] * 2
EXAMPLES = [
    Example(text, f'{("dog", "cat")[index % 2]} ran', index % 2, str(index))
    for index, text in enumerate(TEXTS)
]
TRAINING = {
    'seeds': 2, 'epochs': 2, 'batch_size': 8, 'micro_batch': 8, 'learning_rate': 5e-3,
    'max_length': 16, 'log_every': 1, 'checkpoint_every': 1,
}  # fmt: skip

# Results that steps of Adam have made.
TRAINED = ('answers', 'losses', 'gates', 'gated', 'rounded')


def measured(model, mesh) -> dict[str, np.ndarray]:
    """Return the moments and the values of statistics, and the logits of a sweep."""
    devices = 1 if mesh is None else mesh.shape['data']
    batches = bs.encode(model.tokenizer, TEXTS, tokens_per_batch=32, batch_multiple=devices)
    names = ['[CLS]', 'entropy (nats)']
    tables = bs.collect(model, batches, names, mesh=mesh, keep_values=True)
    return {
        f'{name} {part}': getattr(table, part)
        for name, table in tables.items()
        for part in ('mean', 'variance', 'values')
    }


def swept(model, mesh, folder, baseline='uniform') -> dict[str, np.ndarray]:
    """Return the logits of a sweep, which goes on in its folder."""
    masks = bs.masks.single_heads(model.config)
    compute = bs.Compute(
        max_length=16, tokens_per_batch=64, chunk_tokens=64, mesh=mesh, folder=folder
    )
    found = sweep_examples(model, TEXTS, masks, compute=compute, baseline=baseline)
    return {f'logits {baseline}': found.logits}


@contextlib.contextmanager
def shares() -> Iterator[dict[str, np.ndarray]]:
    """Note what share of the work of many masks one device does, and which rows it holds.

    Yields a dictionary that gets, for the first call of the pieces of a sweep which has several
    masks, 'share NAME', the operations of the program of one device by those of the program for all
    rows, and 'rows NAME', the first row and the end of what each device of this process holds.
    """
    found, pieces = {}, {name: getattr(layers, name) for name in ('close_layer', 'run_layer')}

    def noted(name, setting, *arguments):
        result = pieces[name](setting, *arguments)
        examples = len(arguments[1] if name == 'close_layer' else arguments[2].visible)
        if setting.spread is not None and len(result) > examples and f'share {name}' not in found:
            bare = [
                jax.tree.map(
                    lambda leaf: jax.ShapeDtypeStruct(
                        leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)
                    ),
                    each,
                )
                for each in arguments
            ]
            alone = dataclasses.replace(setting, spread=None)
            of_one, of_all = (
                pieces[name].lower(*given).compile().cost_analysis()['flops']
                for given in ((setting, *arguments), (alone, *bare))
            )
            held = [each.index[0].indices(len(result))[:2] for each in result.addressable_shards]
            found[f'share {name}'] = np.array(of_one / of_all)
            found[f'rows {name}'] = np.array(held)
        return result

    for name in pieces:
        setattr(layers, name, functools.partial(noted, name))
    try:
        yield found
    finally:
        for name, piece in pieces.items():
            setattr(layers, name, piece)


def pruned(model, mesh) -> dict[str, np.ndarray]:
    """Return gates of four runs, by the loss of a task."""
    gated = train_gates(
        model, EXAMPLES, EXAMPLES, coefficients=(0.0, 0.5), seeds=2, epochs=1, batch_size=8,
        micro_batch=8, max_length=16, gate_learning_rate=0.5, frozen=False, mesh=mesh,
    )  # fmt: skip
    return {'gates': gated.log_alpha, 'gated': gated.gated, 'rounded': gated.rounded}


def tuned(model, mesh, folder) -> dict[str, np.ndarray]:
    """Return the answers of two models that were fine-tuned together, and their curves."""
    bare = without_head(model)
    found = bs.finetune(bare, EXAMPLES, EXAMPLES, folder=folder, mesh=mesh, **TRAINING)
    (batch,) = bs.encode(model.tokenizer, EXAMPLES)
    answers = [forward(each.bert, each.params, batch.inputs) for each in found.models]
    losses = np.array([row['loss'] for row in found.history])
    return {'answers': np.array(answers), 'losses': losses}


@functools.partial(jax.jit, static_argnums=0)
def forward(bert, params, inputs):
    """Return logits; by itself each operation would be compiled."""
    return bert.apply({'params': params}, **inputs).logits


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise an error unless all arrays are the same but for rounding, of which Adam makes more."""
    assert found
    for name, value in found.items():
        atol = 2e-4 if name in TRAINED else 1e-5
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=atol, err_msg=name)


def main(checkpoint: str, home: str, *options: str) -> None:
    folder = pathlib.Path(home)
    given = dict.fromkeys(('masks', 'seeds', 'killed-at', 'prune', 'fails'), '')
    given |= dict(option.removeprefix('--').split('=') for option in options)
    # The lines of progress of a script stand in the way of what is said at its end.
    logging.set_verbosity(logging.ERROR)
    with processes.together(
        coordinator_address=given['address'],
        num_processes=int(given['count']),
        process_id=int(given['id']),
        heartbeat_seconds=int(given.get('heartbeat', 20)),
    ):
        masks, seeds = parse_axes(given['masks']), parse_axes(given['seeds'])
        model = bs.from_pretrained(checkpoint)
        if given['killed-at']:
            kill_at_step(int(given['killed-at']))
        found = tuned(model, make_mesh(seeds, 'seeds'), folder / 'tuned')
        found |= measured(model, make_mesh(masks))
        with shares() as held:
            for baseline in ('uniform', 'resample'):
                found |= swept(model, make_mesh(masks, 'masks'), folder / 'sweep', baseline)
        if given['prune']:
            found |= pruned(model, make_mesh(seeds))
        np.savez(folder / f'found{given["id"]}.npz', **found)
        np.savez(folder / f'held{given["id"]}.npz', **held)
        if given['fails']:
            fail(given['fails'])


def fail(which: str) -> None:
    """Meet an error that one process has, or all; both after one that the first tells to all."""
    try:
        processes.on_first(fill_disk)
    except OSError as error:
        if processes.may_differ(error):
            raise
    if which == 'all' or not processes.is_first():
        raise SystemExit('error: no such file')
    # The first one waits for the other.
    processes.exists(pathlib.Path())


def fill_disk() -> None:
    """Write to a disk that is full."""
    with open('/dev/full', 'w') as file:
        file.write('x')


def kill_at_step(step: int) -> None:
    """Kill this process when it comes to a step of a fine-tuning."""
    rows_of_step = steps.rows_of_step

    def counted(seed, at, *arguments):
        if at == step:
            print('killed', flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return rows_of_step(seed, at, *arguments)

    steps.rows_of_step = counted


if __name__ == '__main__':
    main(*sys.argv[1:])
