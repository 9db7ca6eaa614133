"""How many passes a sender of `bs.patch_paths` costs, in one direction.

    python -m benchmarks.paths --shapes=bert-base

The texts fill one batch. All ways take turns, and of each the least time counts, which other work
on the machine disturbs least. What all senders share is a part of the cost.
"""

import functools
import pathlib
import tempfile

import jax
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks import cases, timing
from benchmarks.table import markdown

_SHAPES = flags.DEFINE_enum('shapes', 'minilm', list(cases.SHAPES), 'The sizes of the model.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Interleaved rounds.')
_PAIRS, _WORDS = 16, 62


def main(_):
    with tempfile.TemporaryDirectory() as directory:
        model = cases.prepare(_SHAPES.value, pathlib.Path(directory), cases.SMOKE).ours
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    texts = [[' '.join([word] * _WORDS)] * _PAIRS for word in ('the', 'of')]
    (batch,) = bs.encode(model.tokenizer, texts[0])
    forward = jax.jit(lambda params, given: model.bert.apply({'params': params}, **given).logits)
    last = [(layers - 1, head) for head in range(heads)]
    paths = functools.partial(bs.patch_paths, model, *texts)
    firsts = [(layer, 0) for layer in range(layers - 1)]
    to_last = functools.partial(paths, senders=firsts, into='query')
    patches = {
        'patch': (layers * heads, functools.partial(bs.patch, model, *texts)),
        'to the logits': (layers * heads, paths),
        'to a query of the last layer': (
            len(firsts),
            functools.partial(to_last, receivers=last[:1]),
        ),
        f'to {heads} queries of the last layer': (
            len(firsts),
            functools.partial(to_last, receivers=last),
        ),
    }
    ways = {'pass': lambda: jax.block_until_ready(forward(model.params, batch.inputs))}
    ways |= {name: run for name, (_, run) in patches.items()}
    seconds = timing.interleaved(ways, rounds=_ROUNDS.value, warm_up=1)
    least = {name: min(each) / min(seconds['pass']) for name, each in seconds.items()}
    rows = [(name, f'{least[name] / (2 * n):.2f}') for name, (n, _) in patches.items()]
    print(f'{batch.input_ids.size} tokens, {timing.processor()}')
    print(markdown(('way', 'passes for each head'), rows))


if __name__ == '__main__':
    app.run(main)
