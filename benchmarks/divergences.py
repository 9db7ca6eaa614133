"""Divergences between all heads: a loop over heads, as the authors' code has it, against ours.

    python -m benchmarks.divergences --model=all-MiniLM-L6-v2

Both get the same maps. The loop is in NumPy: for each text and each head, the divergence from all
heads at once (Clark et al. 2019, the code beside section 6). Ours is the statistic of the streaming
pass (`measure/divergence.py`). Runs are interleaved and the medians compared.
"""

import jax
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from benchmarks.timing import interleaved, print_table
from bert_secrets_jax.measure.divergence import SMOOTHING, head_divergences

_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'Directory, or name on the hub.')
_TEXTS = flags.DEFINE_integer('texts', 8, 'How many texts, of one length.')
_LENGTH = flags.DEFINE_integer('length', 128, 'How many tokens each has at most.')
_REPEATS = flags.DEFINE_integer('repeats', 5, 'Interleaved runs of each.')


def by_a_loop(maps: list[np.ndarray]) -> np.ndarray:
    """Return the divergences [H, H], added up over all tokens of all texts [L, N, T, T]."""
    heads = maps[0].shape[0] * maps[0].shape[1]
    total = np.zeros((heads, heads))
    for of_text in maps:
        length = of_text.shape[-1]
        rows = of_text.reshape(heads, length, length)
        for head in range(heads):
            one, all_of_them = (
                (1 - SMOOTHING) * each + SMOOTHING / length for each in (rows[head][None], rows)
            )
            middle = (one + all_of_them) / 2
            divergence = one * np.log(one / middle) + all_of_them * np.log(all_of_them / middle)
            total[head] += divergence.sum(axis=(1, 2)) / 2
    return total


def main(_):
    pretrained = bs.from_pretrained(_MODEL.value)
    corpus = bs.read_corpus('train')
    # Long texts of one length, so that a single program is compiled.
    words = ' '.join(example.text_a for example in corpus).split()
    step = _LENGTH.value
    texts = [' '.join(words[step * row : step * (row + 1)]) for row in range(_TEXTS.value)]
    batches = bs.encode(pretrained.tokenizer, texts, max_length=step, buckets=())
    outputs = [
        pretrained.bert.apply({'params': pretrained.params}, **batch.inputs).attentions
        for batch in batches
    ]
    rows = [
        (at, row) for at, batch in enumerate(batches) for row in np.flatnonzero(batch.example >= 0)
    ]
    lengths = [int(batches[at].lengths[row]) for at, row in rows]
    maps = [
        np.asarray(outputs[at][row, :, :, :length, :length])
        for (at, row), length in zip(rows, lengths, strict=True)
    ]
    shared = jax.jit(
        lambda attentions, token: jax.lax.map(
            lambda each: head_divergences(each[0], {'token': each[1]})[0], (attentions, token)
        )
    )
    tokens = [batch.marks['token'] for batch in batches]

    def ours():
        total = 0
        for output, token in zip(outputs, tokens, strict=True):
            found = np.asarray(shared(output, token), np.float64)
            total = total + (found * token.sum(axis=1)[:, None, None, None]).sum(axis=0)
        return total.reshape(total.shape[-1], -1)

    ways = {'ours': ours, 'a loop over heads': lambda: by_a_loop(maps)}
    expected = by_a_loop(maps)
    np.testing.assert_allclose(ours(), expected, atol=1e-5 * sum(lengths))
    seconds = interleaved(ways, rounds=_REPEATS.value)
    print(
        f'{_MODEL.value}, {expected.shape[0]} heads, {len(texts)} texts of {min(lengths)} to '
        f'{max(lengths)} tokens, {jax.devices()[0].device_kind}; equal to 1e-5 nats per token.'
    )
    print_table(seconds, len(texts), 'texts')


if __name__ == '__main__':
    app.run(main)
