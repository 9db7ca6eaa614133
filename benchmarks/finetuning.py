"""Training steps per second: PyTorch `transformers` against `bs.finetune`.

Both take the same steps of 32 examples, with dropout and AdamW. PyTorch pads a step's examples to
its longest, as a careful user would, and to one length, as the authors' script does; ours sorts
them by length into micro-batches.
"""

import jax
import numpy as np

from benchmarks.cases import Case, read, to_torch, wait_for
from benchmarks.formulas import forward_operations
from benchmarks.timing import Question, Way
from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.finetune import seeds
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.steps import Data, Steps

_ROWS = 32


def pytorch_step(model, optimizer, inputs, labels, *, rounded: bool) -> None:
    """Take one step, of which nothing is read: a GPU need not wait for it."""
    import torch

    with torch.autocast(labels.device.type, torch.bfloat16, enabled=rounded):
        loss = model(**inputs, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def questions(case: Case) -> list[Question]:
    """Return the question of training steps."""
    examples = read(case.settings.glue_dir, 'train')
    labels = np.array([example.label for example in examples])
    length = case.settings.length
    accelerated = jax.default_backend() != 'cpu'
    rounded = case.settings.dtype == 'bfloat16'
    config = FinetuneConfig(
        learning_rate=1e-5, max_length=length, micro_batch=case.settings.micro_batch
    )
    tokens = tokenize(case.ours.tokenizer, examples, max_length=length)
    data = Data(tokens, labels, [], [], labels, ())
    training = Steps(
        case.ours.bert, seeds._loss, seeds.optimizer_for(config, 1000), data, config, seeds=(0,)
    )
    # The last step of an epoch, which may be short, is left out.
    per_epoch = max(training.per_epoch - 1, 1)
    numbers = [step % per_epoch for step in range(case.settings.steps)]
    drawn = [training.rows(step) for step in numbers]
    steps = [rows[rows >= 0] for rows in drawn]

    def ours():
        state = training.begin(jax.tree.map(lambda leaf: leaf[None], case.ours.params))

        def run():
            nonlocal state
            for step in numbers:
                state, _ = training.take(state, step)
            jax.block_until_ready(state)

        return run

    def theirs(attention, length_of):
        import torch

        model = case.theirs(attention, classifier=True, train=True)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-5, weight_decay=0.01, fused=accelerated or None
        )
        batches = [data.train.batch(rows, length_of(rows)) for rows in steps]

        def run():
            for rows, batch in zip(steps, batches, strict=True):
                given = torch.from_numpy(labels[rows]).long().to(model.device)
                inputs = to_torch(batch, model)
                pytorch_step(model, optimizer, inputs, given, rounded=rounded)
            wait_for(model)

        return run

    def longest(rows) -> int:
        return int(data.train.lengths[rows].max())

    def operations(batches) -> int:
        # Backward, each product of a layer is two: for its inputs and for its weights.
        return 3 * forward_operations(case.ours.config, batches)

    flat = lambda batch: jax.tree.map(lambda array: array[0], batch)
    mine = [flat(batch) for rows in drawn for batch, _ in training.micro_batches(rows)]
    per_step = [data.train.batch(rows, longest(rows)) for rows in steps]

    def torch_way(attention):
        return Way(lambda: theirs(attention, longest), 1, operations(per_step), True, True)

    return [
        Question(
            name='training steps',
            unit='examples',
            amount=sum(map(len, steps)),
            about=(
                f'{len(steps)} steps of {_ROWS}, {data.train.lengths.mean():.0f} tokens on average'
            ),
            ways={
                'ours': Way(ours, operations=operations(mine)),
                'PyTorch, eager': torch_way('eager'),
                'PyTorch, sdpa': torch_way('sdpa'),
                f'PyTorch, padded to {length}': Way(
                    lambda: theirs('sdpa', lambda rows: length), in_pytorch=True
                ),
            },
        )
    ]
