"""Parameters from the tensors of checkpoints, and tensors from parameters: each has one place."""

import collections
import functools
import math
import mmap
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from bert_secrets_jax.model.bert import all_heads, own_heads
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.families.tensors import Arrays
from bert_secrets_jax.model.positions.rotary import frequencies_of, saved_sinusoids

# Rotary positions of ESM: in one place, or in each layer.
FREQUENCIES = 'rotary_embeddings.inv_freq'
_leaves: Callable[[Any], dict[str, Any]] = functools.partial(
    flax.traverse_util.flatten_dict, sep='/'
)
_LEAVES = {'kernel': 'weight', 'embedding': 'weight', 'scale': 'weight', 'bias': 'bias'}
# Modules of some layers, and what these layers are.
_OF_SOME = {'layers/attention_norm': 'normed', 'layers/conv_norm': 'convolved'}
# A trained weight is far below this.
_MOST_WEIGHT = 1e6
_DTYPES = ('float16', 'bfloat16', 'float32', 'float64')


# Where a checkpoint has one of our arrays: path, names, shape, and whether its axes are turned.
_Place = tuple[str, list[str | None], tuple[int, ...], bool]


def _place(config: BertConfig, path: str, shape: tuple[int, ...]) -> _Place:
    """Return the place of an array in a checkpoint, by our path and shape.

    The path is without the number of a layer that stands apart. The names are those of the tensor
    of each layer, None where it has no such module. The shape is that of one PyTorch tensor: linear
    weights are [out, in], heads are flat. Its axes may be those of ours in reverse.
    """
    apart = re.match(r'layers/(\d+)/', path)
    if apart:
        path, shape = f'layers/{path[apart.end() :]}', (1, *shape)
    module, leaf = path.rsplit('/', 1)
    name = f'{config.family.modules(config.head)[module]}.{_LEAVES[leaf]}'
    names: list[str | None] = [name]
    if module.startswith('layers/'):
        kind_of = _OF_SOME.get(module)
        names = [
            name.format(group) if kind_of is None or getattr(kind, kind_of) else None
            for group, kind in zip(config.groups, config.layer_kinds, strict=True)
        ]
        names = [names[int(apart[1])]] if apart else names
        shape = shape[1:]
    turned = leaf == 'kernel'
    if turned and module != 'embeddings/conv':
        inputs = 2 if module == 'layers/attention/output' else 1
        shape = math.prod(shape[inputs:]), math.prod(shape[:inputs])
    elif turned:
        shape = shape[::-1]
    elif leaf != 'embedding':
        shape = (math.prod(shape),)
    return path, names, shape, turned


def params_from_tensors(
    config: BertConfig,
    tensors: Arrays,
    *,
    initial: Mapping[str, Any],
    fresh: Sequence[str] = (),
    source: str = 'checkpoint',
    keep_dtype: bool = False,
) -> dict[str, Any]:
    """Turn Hugging Face tensors (names without the prefix `bert.`) into parameters.

    Modules that are `fresh`, and all shapes, are those of `initial`. Tensors are taken out of the
    dictionary, so that memory holds no model twice. ValueError lists all tensors that are missing,
    unexpected or misshapen, not floating-point, or hold NaN or infinity.
    """
    result = _leaves(initial)
    own = _leaves(jax.eval_shape(functools.partial(own_heads, config), initial))
    wrong: list[str] = []
    places = {
        path: _place(config, path, leaf.shape)
        for path, leaf in own.items()
        if path.split('/')[0] not in fresh
    }
    # Layers that stand apart may be one layer in the file.
    uses = collections.Counter(name for _, names, *_ in places.values() for name in {*names})
    for path, (_, names, shape, turned) in places.items():
        for name in filter(None, names):
            tensor = tensors.get(name)
            if tensor is None:
                wrong.append(f'missing: {name} {list(shape)}')
            elif tensor.shape != shape:
                wrong.append(f'misshapen: {name} {list(tensor.shape)}, expected {list(shape)}')
            elif unusable := why_unusable(tensor):
                wrong.append(f'unusable: {name} {unusable}')
            elif (largest := float(np.abs(tensor).max(initial=0))) > _MOST_WEIGHT:
                logging.warning(
                    '%s: %s has a weight of %.2g. No trained model has, and what is computed '
                    'with it may mean nothing.', source, name, largest,
                )  # fmt: skip
        if wrong:
            continue
        none = np.full(shape, path.endswith('scale'), np.float32)
        parts = [none if name is None else tensors[name] for name in names]
        types = {tensors[name].dtype for name in names if name is not None}
        kept = keep_dtype and [each.itemsize for each in types] == [2]
        stack = np.stack(
            [part.T if turned else part for part in parts],
            dtype=types.pop() if kept else np.float32,
            casting='unsafe',
        )
        result[path] = jnp.asarray(stack.reshape(own[path].shape), stack.dtype)
        # Two copies of a whole model are never in memory.
        del parts, stack
        uses.subtract({*names})
        for name in tensors.keys() & {*names}:
            if not uses[name]:
                _forget(tensors.pop(name))
    wrong += [
        f'unexpected: {name} {list(tensors[name].shape)}'
        for name in sorted(tensors.keys() - uses.keys())
    ]
    if wrong:
        listing = '\n'.join(wrong)
        raise ValueError(
            f'{source} does not fit its config.json ({config.summary}) in {len(wrong)} tensors, '
            f'first {wrong[0]}: is it another architecture, or a damaged file?\n{listing}'
        )
    return all_heads(config, flax.traverse_util.unflatten_dict(result, sep='/'))


def tensors_from_params(config: BertConfig, params: Mapping[str, Any]) -> Arrays:
    """Turn parameters into Hugging Face tensors, named as `transformers` saves them."""
    family = config.family
    prefix = family.prefix if config.has_head else ''
    tensors, own = {}, own_heads(config, dict(params))
    if config.num_key_value_heads is not None:
        same = jax.tree.map(np.array_equal, dict(params), all_heads(config, own))
        if not all(jax.tree.leaves(same)):
            raise ValueError('Keys or values differ between heads that share them: change all.')
    for whole, leaf in _leaves(own).items():
        path, names, shape, turned = _place(config, whole, leaf.shape)
        layers = np.asarray(leaf, np.float32).reshape(len(names), -1)
        for name, layer in zip(names, layers, strict=True):
            if name is None:
                continue
            array = layer.reshape(shape[::-1]).T if turned else layer.reshape(shape)
            full = name if family.is_of(config.head, name) else prefix + name
            if not np.array_equal(tensors.get(full, array), array):
                raise ValueError(
                    f'{path} differs between layers that are one layer: with '
                    f'num_hidden_groups={config.num_hidden_groups}, '
                    f'{config.num_hidden_layers} layers share {full}.'
                )
            tensors[full] = np.ascontiguousarray(array)
    if 'lm' in params and family.second_bias:
        tensors[family.second_bias] = np.asarray(params['lm']['bias'], np.float32)
    if family.sinusoids:
        tensors[prefix + family.sinusoids] = saved_sinusoids(config, config.rotary_rounding)
    if family.saves_frequencies and config.rope_theta is not None and not config.has_positions:
        tensors[prefix + FREQUENCIES] = frequencies_of(config, config.rope_theta)
    return family.fuse(tensors)


def why_unusable(tensor: np.ndarray) -> str:
    """Return why an array cannot be weights; empty if it can."""
    if tensor.dtype.name not in _DTYPES:
        return f'is of type {tensor.dtype.name}, and weights are of {", ".join(_DTYPES)}'
    # A number that float32 cannot hold becomes infinite.
    with np.errstate(over='ignore'):
        finite = np.isfinite(tensor.astype(np.float32, copy=False))
    if not finite.all():
        return f'has NaN or infinity in {(~finite).sum():,} of {finite.size:,} numbers'
    return ''


def _forget(tensor: np.ndarray) -> None:
    """Give the memory back in which a mapped file lies; what is used again is read again."""
    base: Any = tensor
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = getattr(base, 'obj', None)
    # Other systems than Linux do without.
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, 'MADV_DONTNEED'):
        mapped.madvise(mmap.MADV_DONTNEED)
