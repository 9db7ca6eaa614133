"""How time grows with batch, length, heads and corpus: slopes of time and of operations.

A slope is that of a line through the logarithms of sizes and of seconds: 1 where twice as much
takes twice as long. Models have three layers and otherwise the shape of the case, with random
weights; more heads are as wide as fewer, so that the hidden size grows with them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import bert_secrets_jax as bs
from benchmarks.attention_statistics import STATISTICS
from benchmarks.cases import Case
from benchmarks.formulas import forward_operations, sweep_operations
from benchmarks.timing import Question, Way
from bert_secrets_jax.model.bert import init_params

_LAYERS = 3


def questions(case: Case) -> list[Question]:
    """Return a question for each kind of work and what grows."""
    doublings = 2 ** np.arange(case.settings.growth + 1)
    tokens = case.settings.length
    axes = {
        'batch': [(rows, tokens // 2, None) for rows in (4 * doublings).tolist()],
        'length': [(8, length, None) for length in (tokens // 4 * doublings).tolist()],
        'heads': [(4, tokens // 2, heads) for heads in (2 * doublings).tolist()],
    }
    place = {'batch': 0, 'length': 1, 'heads': 2}
    works = {'forward pass with all maps': _FORWARD, 'disabling every head': _SWEEP}
    found = [
        _question(
            case,
            f'{name}, by {axis}',
            [size[place[axis]] for size in sizes],
            [_of_shape(case, work, *size) for size in sizes],
        )
        for name, work in works.items()
        for axis, sizes in axes.items()
    ]
    counts = (case.settings.examples // doublings[-1] * doublings).tolist()
    works = {f'{len(STATISTICS)} statistics': _COLLECT, 'disabling every head': _SWEEP}
    return found + [
        _question(case, f'{name}, by corpus', counts, [_of_texts(case, work, n) for n in counts])
        for name, work in works.items()
    ]


def _question(case: Case, name: str, sizes: Sequence[int], ways: Sequence[Way]) -> Question:
    return Question(
        name=f'growth: {name}',
        unit='runs',
        amount=1,
        about=f'{_LAYERS} layers',
        ways={str(size): way for size, way in zip(sizes, ways, strict=True)},
        agree=lambda found: {'sizes': list(sizes)},
    )


def _of_shape(case: Case, work: 'Work', rows: int, length: int, heads: int | None) -> Way:
    return _way(case, work, case.alike(rows, length, tokens=rows * length), heads)


def _of_texts(case: Case, work: 'Work', count: int) -> Way:
    tokenizer, length = case.ours.tokenizer, case.settings.length
    return _way(case, work, bs.encode(tokenizer, case.examples[:count], max_length=length), None)


def _way(case: Case, work: 'Work', batches: Sequence[bs.Batch], heads: int | None) -> Way:
    config = _config(case.ours.config, heads)

    def prepare():
        bert = bs.Bert(config)
        return work.run(bs.Pretrained(bert, init_params(bert, 0), case.ours.tokenizer), batches)

    return Way(prepare, operations=work.operations(config, batches))


def _config(config: bs.BertConfig, heads: int | None) -> bs.BertConfig:
    config = dataclasses.replace(config, num_hidden_layers=_LAYERS)
    if heads is None:
        return config
    width = config.hidden_size // config.num_attention_heads * heads
    return dataclasses.replace(
        config, num_attention_heads=heads, hidden_size=width, intermediate_size=4 * width
    )


@dataclasses.dataclass(frozen=True)
class Work:
    """A computation with a model and batches.

    Attributes:
      run: Takes both, and returns the function to time.
      operations: Takes a config and batches, and returns the multiply-adds.
    """

    run: Callable[[bs.Pretrained, Sequence[bs.Batch]], Callable[[], Any]]
    operations: Callable[[bs.BertConfig, Sequence[bs.Batch]], int]


def _forward(model: bs.Pretrained, batches: Sequence[bs.Batch]):
    forward = jax.jit(
        lambda params, inputs: model.bert.apply({'params': params}, **inputs).attentions
    )
    placed = [jax.device_put(batch.inputs) for batch in batches]
    return lambda: jax.block_until_ready([forward(model.params, inputs) for inputs in placed])


def _sweep(model: bs.Pretrained, batches: Sequence[bs.Batch]):
    masks = bs.masks.single_heads(model.config)
    return lambda: bs.sweep(model, batches, masks)


def _collect(model: bs.Pretrained, batches: Sequence[bs.Batch]):
    return lambda: bs.collect(model, batches, STATISTICS)


_FORWARD = Work(_forward, forward_operations)
_SWEEP = Work(_sweep, sweep_operations)
_COLLECT = Work(_collect, forward_operations)
