"""A model before and after half of its heads are removed: speed and memory.

    python -m benchmarks.removal --model=all-MiniLM-L6-v2 --out=removal.json

Two sets of heads are removed: the same number from each layer, and the same number of all heads at
random, which leaves layers of different sizes. The model is run in four ways: whole; under the
mask, which saves nothing; whole with its layers apart, which shows what is gained by that alone;
and cut. All take turns (`bs.time_removal`). Beside them stands what Michel et al. (2019) report of
BERT-base with half of its heads, at 128 tokens.
"""

import json
import pathlib

import jax
import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from bert_secrets_jax.pruning.timing import BATCH_SIZES, LENGTH, WAYS, RemovalTimes

_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'Directory, or name on the hub.')
_SIZES = flags.DEFINE_list('batch_sizes', list(map(str, BATCH_SIZES)), 'Examples per batch.')
_LENGTH = flags.DEFINE_integer('length', LENGTH, 'Tokens of each example.')
_ROUNDS = flags.DEFINE_integer('rounds', 15, 'Interleaved runs of each.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the random heads.')
_OUT = flags.DEFINE_string('out', None, 'File for the numbers, as JSON.')

# Examples per second before and after, by size of a batch.
MICHEL = {1: (17.0, 17.3), 4: (67.3, 69.1), 16: (114.0, 134.0), 64: (124.7, 146.6)}


def half_of_each(layers: int, heads: int) -> np.ndarray:
    """Return a mask [L, N] that removes every other head."""
    return np.tile(np.arange(heads) % 2, (layers, 1))


def half_of_all(layers: int, heads: int, *, seed: int) -> np.ndarray:
    """Return a mask [L, N] that removes half of all heads at random."""
    mask = np.ones(layers * heads, int)
    mask[np.random.default_rng(seed).permutation(mask.size)[: mask.size // 2]] = 0
    return mask.reshape(layers, heads)


def print_times(name: str, found: RemovalTimes) -> None:
    """Print a table of one set of heads."""
    left = found.head_mask.sum(axis=1).tolist()
    print(f'\n{name}; heads left by layer: {", ".join(map(str, left))}')
    sizes = zip(WAYS, found.weight_bytes / 1e6, strict=True)
    print('weights: ' + ', '.join(f'{way} {megabytes:.1f} MB' for way, megabytes in sizes))
    print(
        f'{"batch":>5}'
        + ''.join(f'{way:>9}' for way in WAYS)
        + f'{"cut / whole":>26}{"cut / apart":>26}{"Michel et al.":>15}'
    )
    speeds, over_whole, over_apart = (
        found.examples_per_second.T, found.gains(), found.gains(over='apart'),
    )  # fmt: skip
    for row, size in enumerate(found.batch_sizes):
        gains = ''.join(
            f'{f"{100 * gain:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})":>26}'
            for gain, low, high in (over_whole[row], over_apart[row])
        )
        before, after = MICHEL.get(size, (np.nan, np.nan))
        theirs = f'{100 * (after / before - 1):+.1f} %' if size in MICHEL else ''
        print(
            f'{size:>5}'
            + ''.join(f'{speed:>9.1f}' for speed in speeds[row])
            + f'{gains}{theirs:>15}'
        )
    print('temporary MB:')
    for row, size in enumerate(found.batch_sizes):
        print(
            f'{size:>5}' + ''.join(f'{each / 1e6:>9.1f}' for each in found.temporary_bytes[:, row])
        )


def as_json(found: RemovalTimes) -> dict:
    """Return what a set of heads gave, by way and size of a batch."""
    return {
        'heads_left': found.head_mask.sum(axis=1).tolist(),
        'weight_bytes': dict(zip(WAYS, found.weight_bytes.tolist(), strict=True)),
        'examples_per_second': dict(zip(WAYS, found.examples_per_second.tolist(), strict=True)),
        'temporary_bytes': dict(zip(WAYS, found.temporary_bytes.tolist(), strict=True)),
        'seconds': dict(zip(WAYS, found.seconds.tolist(), strict=True)),
        'gain_over_whole': found.gains().tolist(),
        'gain_over_apart': found.gains(over='apart').tolist(),
    }


def main(_):
    pretrained = bs.from_pretrained(_MODEL.value, label_names=('no', 'yes'))
    shape = pretrained.config.num_hidden_layers, pretrained.config.num_attention_heads
    sizes = tuple(map(int, _SIZES.value))
    print(
        f'{_MODEL.value} ({pretrained.config.summary}), {_LENGTH.value} tokens, '
        f'{_ROUNDS.value} rounds, {jax.devices()[0].device_kind}; examples per second at the '
        'median; gains with intervals of 95 %.'
    )
    masks = {
        'half of each layer': half_of_each(*shape),
        'half of all heads at random': half_of_all(*shape, seed=_SEED.value),
    }
    numbers = {}
    for name, mask in masks.items():
        found = bs.time_removal(
            pretrained, mask, batch_sizes=sizes, length=_LENGTH.value, rounds=_ROUNDS.value
        )
        print_times(name, found)
        numbers[name] = as_json(found)
    if _OUT.value:
        about = {
            'model': _MODEL.value,
            'device': jax.devices()[0].device_kind,
            'length': _LENGTH.value,
            'batch_sizes': sizes,
            'michel': {str(size): speeds for size, speeds in MICHEL.items()},
        }
        text = json.dumps(about | {'removed': numbers}, indent=2)
        pathlib.Path(_OUT.value).write_text(text + '\n')


if __name__ == '__main__':
    app.run(main)
