"""Training steps per second: PyTorch `transformers` against `bs.finetune`.

    python -m benchmarks.finetuning --model=all-MiniLM-L6-v2
    python -m benchmarks.finetuning --model=... --glue_dir=...

Both take the same steps of 32 examples in the same order, with dropout and AdamW. PyTorch pads a
step's examples to its longest, as a careful user would, and to 128, as the authors' script does;
ours sorts them by length into micro-batches. Steps are interleaved and medians compared.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.timing import interleaved, print_table
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.model import hub

_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'Directory, or name on the hub.')
_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE with MRPC; the embedded corpus without.')
_STEPS = flags.DEFINE_integer('steps', 12, 'Steps of each, after as many that warm up.')


def pytorch_step(model, optimizer, batch: bs.Batch, labels: np.ndarray) -> None:
    """Take one step."""
    inputs = {name: torch.from_numpy(array).long() for name, array in batch.inputs.items()}
    model(**inputs, labels=torch.from_numpy(labels).long()).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main(_):
    directory = hub.locate(_MODEL.value)
    ours = bs.from_pretrained(directory, label_names=('no', 'yes'))
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        directory, num_labels=2, dtype=torch.float32
    ).train()
    adamw = torch.optim.AdamW(theirs.parameters(), lr=1e-5, weight_decay=0.01)
    task = bs.get_task('mrpc')
    examples = (
        bs.read_glue(_GLUE_DIR.value, task, 'train') if _GLUE_DIR.value else bs.read_corpus('train')
    )
    labels = np.array([example.label for example in examples])
    data = loop.Data(tokenize(ours.tokenizer, examples), labels, [], [], labels, ())
    config = loop.FinetuneConfig(learning_rate=1e-5)
    optimizer = loop._optimizer(config, 1000)
    stacked = jax.tree.map(loop._stack, ours.params)
    state = loop.TrainState(jnp.int32(0), stacked, jax.vmap(optimizer.init)(stacked))
    zeros = jax.tree.map(jnp.zeros_like, ours.params)
    edges = loop.training_lengths(data, config, at_once=False)
    per_epoch = -(-len(examples) // 32)

    def our_step(step):
        nonlocal state, zeros
        state, zeros, _ = loop._step(
            ours.bert, optimizer, False, state, data, config, step, per_epoch, edges, zeros, None
        )
        jax.block_until_ready(state)

    def their_step(step, length=None):
        rows = loop.rows_of_step(0, step, len(examples), 32, per_epoch)
        rows = rows[rows >= 0]
        batch = data.train.batch(rows, length or int(data.train.lengths[rows].max()))
        pytorch_step(theirs, adamw, batch, labels[rows])

    ways = {
        'ours': our_step,
        'PyTorch, padded per step': their_step,
        'PyTorch, padded to 128': lambda step: their_step(step, 128),
    }

    def in_order(way):
        steps = itertools.count()
        return lambda: way(next(steps))

    seconds = interleaved(
        {name: in_order(way) for name, way in ways.items()},
        rounds=_STEPS.value,
        warm_up=_STEPS.value,
    )
    print(
        f'{_MODEL.value}, {_STEPS.value} steps of 32 examples of '
        f'{"MRPC" if _GLUE_DIR.value else "the embedded corpus"} (mean length '
        f'{data.train.lengths.mean():.0f}), {jax.devices()[0].device_kind}, '
        f'{torch.get_num_threads()} threads'
    )
    print_table(seconds, 32, 'examples')


if __name__ == '__main__':
    app.run(main)
