"""How much a sweep saves that stops paying for decided heads, on tasks of GLUE.

    python -m benchmarks.stopping --glue_dir=GLUE --tasks=rte,qnli --folder=/tmp/stopping
    python -m benchmarks.stopping --logits=mrpc.npz
    python -m benchmarks.stopping --glue_dir=GLUE --tasks=mrpc --timed

A model is fine-tuned on some texts of each task, and swept whole over its dev set, head by head.
`bs.replay_until_decided` then says, for several orders of the texts, what the other sweep would
have computed. With `--folder` both go on after an interruption. A file of `--logits` has the arrays
`logits` [1 + heads, examples, classes], the intact model first, and `labels` of such a sweep.
"""

import pathlib
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks import timing
from benchmarks.table import markdown
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.stats.effects import VERDICTS

_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'GLUE.')
_TASKS = flags.DEFINE_list('tasks', [], 'Tasks of GLUE.')
_LOGITS = flags.DEFINE_list('logits', [], 'Files with the logits of whole sweeps.')
_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'A folder, or a name on the hub.')
_TEXTS = flags.DEFINE_integer('texts', 1000, 'Texts to fine-tune on.')
_EPOCHS = flags.DEFINE_integer('epochs', 1, 'Epochs of fine-tuning.')
_EXAMPLES = flags.DEFINE_integer('examples', 0, 'The most dev texts; 0 takes all.')
_ORDERS = flags.DEFINE_integer('orders', 5, 'Orders of the texts.')
_TIMED = flags.DEFINE_bool('timed', False, 'Both sweeps are run and timed, as CPU seconds.')
_FOLDER = flags.DEFINE_string('folder', None, 'The folder for unfinished work.')
COLUMNS = (
    'sweep', 'dev texts', 'passes saved', *VERDICTS, 'by a test of all texts: worse', 'better',
    'does not matter',
)  # fmt: skip


def row(name: str, logits: np.ndarray, labels: np.ndarray, *, orders: int) -> list[str]:
    """Return the row of a sweep: means over orders, and the range of what is saved."""
    names = [f'head {index}' for index in range(1, len(logits))]
    decided = [
        bs.replay_until_decided(logits, labels, names=names, seed=seed) for seed in range(orders)
    ]
    saved = np.array([each.saved for each in decided])
    counts = {
        verdict: np.mean([each.counts[verdict] for each in decided])
        for verdict in decided[0].counts
    }
    fixed = assess_outcomes([logits], labels, names=names)['discrimination']
    return [
        name,
        f'{len(labels):,}',
        f'{saved.mean():.0%} ({saved.min():.0%} to {saved.max():.0%})',
        *(f'{count:.1f}' for count in counts.values()),
        *(f'{(fixed.verdict == verdict).sum()}' for verdict in VERDICTS[:-1]),
    ]


def tuned(task: bs.Task, folder: pathlib.Path | None) -> tuple[bs.Pretrained, list[bs.Example]]:
    """Return a model that was fine-tuned on the task, and the dev texts."""
    train, dev = (bs.read_glue(_GLUE_DIR.value, task, split) for split in ('train', 'dev'))
    dev = bs.draw(dev, _EXAMPLES.value, seed=0)
    made = bs.finetune(
        bs.from_pretrained(_MODEL.value),
        bs.draw(train, _TEXTS.value, seed=0),
        dev,
        seeds=[0],
        epochs=_EPOCHS.value,
        folder=folder and folder / 'finetune',
    )
    return made.models[0], dev


def whole(model: bs.Pretrained, dev: list[bs.Example], folder: pathlib.Path | None) -> np.ndarray:
    """Return the logits of the intact model and of each head's mask."""
    masks = bs.masks.with_intact(bs.masks.single_heads(model.config))
    compute = bs.Compute(folder=folder and folder / 'sweep')
    return bs.sweep_examples(model, dev, masks, compute=compute).logits


def seconds(work: Callable[..., object], *given: object) -> float:
    """Return the CPU seconds of this process, of all threads together, that some work takes."""
    start = time.process_time()
    work(*given)
    return time.process_time() - start


def rows() -> Iterator[list[str]]:
    """Yield the row of each file and of each task."""
    for path in _LOGITS.value:
        with np.load(path) as arrays:
            yield row(path, arrays['logits'], arrays['labels'], orders=_ORDERS.value)
    for name in _TASKS.value:
        task = bs.get_task(name)
        folder = pathlib.Path(_FOLDER.value) / name if _FOLDER.value else None
        model, dev = tuned(task, folder)
        if _TIMED.value:
            # The second of each finds all programs compiled.
            for turn in ('with compiling', 'compiled'):
                times = seconds(bs.sweep_until_decided, model, dev)
                every = seconds(whole, model, dev, None)
                print(f'{name}, {turn}: {times:.0f} s until decided, {every:.0f} s whole')
        labels = np.array([each.label for each in dev])
        yield row(name, whole(model, dev, folder), labels, orders=_ORDERS.value)


def main(_):
    jax.config.update('jax_platforms', 'cpu')
    print(f'{timing.processor()}\n\n{markdown(COLUMNS, list(rows()))}')


if __name__ == '__main__':
    app.run(main)
