"""Head masks [M, L, N], which keep a head with 1 and disable it with 0."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Float, Shaped

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.checks import check_different, check_enough, check_shape
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.intervention import check_amounts
from bert_secrets_jax.names import head_name
from bert_secrets_jax.ranges import Range

Masks = Float[np.ndarray, 'M L N']
# Masks as people give them, which may be of whole numbers or of booleans.
GivenMasks = Shaped[np.ndarray, 'M L N']
# A layer and a head of it, from 0.
Place = tuple[int, int]
_NAME = re.compile(r'L(\d+)-H(\d+)', re.IGNORECASE)


@checked
def none(config: BertConfig) -> Masks:
    """Return one mask, which keeps all heads: the intact model, to compare others with."""
    return _ones(config, 1)


@checked
def single_heads(config: BertConfig) -> Masks:
    """Return one mask per head, which disables it alone, layer by layer (the paper, Figure 8)."""
    return disable(config, [[head] for head in all_heads(config)])


@checked
def single_layers(config: BertConfig) -> Masks:
    """Return one mask per layer, which disables all its heads (the paper, Figure 9)."""
    layers, heads = map(range, _shape(config))
    return disable(config, [[(layer, head) for head in heads] for layer in layers])


@checked
def one_head_left(config: BertConfig) -> Masks:
    """Return one mask per head, which disables all others of its layer (Michel et al. 2019)."""
    every = range(config.num_attention_heads)
    others = [
        [(layer, each) for each in every if each != kept] for layer, kept in all_heads(config)
    ]
    return disable(config, others)


@checked
def pairs(config: BertConfig, heads: Sequence[Place] | None = None) -> Masks:
    """Return one mask per pair of heads, in the order of `itertools.combinations`.

    Heads are (layer, head) counted from 0, at least two, each once (else ValueError); None takes
    all.
    """
    chosen = all_heads(config) if heads is None else [(int(at), int(head)) for at, head in heads]
    check_enough('heads to make pairs of', chosen, 2)
    check_different('heads', chosen)
    return disable(config, itertools.combinations(chosen, 2))


@checked
def random_sets(
    config: BertConfig, *, size: int, count: Annotated[int, Range(1, 100_000)], seed: int
) -> Masks:
    """Return `count` masks that disable `size` random heads; ValueError if it has fewer."""
    if not 0 <= size <= config.num_heads:
        raise ValueError(f'{size=} heads of a model that has {config.num_heads}.')
    rng = np.random.default_rng(seed)
    heads = all_heads(config)
    drawn = (rng.choice(len(heads), size, replace=False) for _ in range(count))
    return disable(config, [[heads[index] for index in each] for each in drawn])


@checked
def disable(config: BertConfig, sets: Iterable[Iterable[Place]]) -> Masks:
    """Return one mask per set of heads, which are (layer, head) counted from 0.

    ValueError if the model does not have one of them, TypeError if a head is given for a set.
    """
    sets = [list(heads) for heads in sets]
    masks = _ones(config, len(sets))
    for mask, heads in zip(masks, sets, strict=True):
        for layer, head in heads:
            if not (0 <= layer < masks.shape[1] and 0 <= head < masks.shape[2]):
                raise ValueError(
                    f'{head_name(layer, head)} does not exist: the model has {masks.shape[1]} '
                    f'layers of {masks.shape[2]} heads, counted from 1.'
                )
            mask[layer, head] = 0
    return masks


@checked
def parse_heads(text: str) -> list[Place]:
    """Read a list of heads as a person writes it, as (layer, head) counted from 0.

    >>> parse_heads('L1-H2,L7-H6')
    [(0, 1), (6, 5)]

    Raises:
      ValueError: A part of the text is not a head; the message names it.
    """
    heads = []
    for part in filter(None, (part.strip() for part in text.split(','))):
        match = _NAME.fullmatch(part)
        if match is None or 0 in map(int, match.groups()):
            raise ValueError(f"{part!r} is not a head: write 'L1-H2' for layer 1, head 2.")
        heads.append((int(match[1]) - 1, int(match[2]) - 1))
    return heads


@checked
def with_intact(masks: Masks) -> Float[np.ndarray, 'M+1 L N']:
    """Return the masks [M, L, N] behind one that keeps all heads, as an array [M + 1, L, N]."""
    return np.concatenate([np.ones_like(masks[:1]), masks])


@checked
def describe(mask: Float[np.ndarray, 'L N']) -> str:
    """Name the heads that a mask disables; '' if it keeps all.

    'L1-H2' is a head, 'L3' a whole layer, 'L3 but L3-H1' all but one of it; '+' joins several.
    ValueError for several masks at once.
    """
    mend = ': [bs.masks.describe(mask) for mask in masks] names each of several'
    check_shape('mask', mask, mend, layers=None, heads=None)
    names = []
    for layer, row in enumerate(np.asarray(mask)):
        off = [head_name(layer, head) for head in np.flatnonzero(row != 1).tolist()]
        on = [head_name(layer, head) for head in np.flatnonzero(row == 1).tolist()]
        if not on:
            names.append(f'L{layer + 1}')
        elif len(on) == 1 and len(off) > 1:
            names.append(f'L{layer + 1} but {on[0]}')
        else:
            names += off
    return '+'.join(names)


@checked
def check_masks(config: BertConfig, masks: GivenMasks) -> Masks:
    """Return masks as float32, if there are some and they fit the model (else ValueError)."""
    masks, (layers, heads) = np.asarray(masks, np.float32), _shape(config)
    check_shape('masks', masks, masks=None, layers=layers, heads=heads)
    check_enough('masks', masks)
    check_amounts(masks)
    return masks


def all_heads(config: BertConfig) -> list[Place]:
    """Return every head of the model as (layer, head), counted from 0."""
    return list(np.ndindex(_shape(config)))


def _ones(config: BertConfig, count: int) -> Masks:
    return np.ones((count, *_shape(config)), np.float32)


def _shape(config: BertConfig) -> tuple[int, int]:
    return config.num_hidden_layers, config.num_attention_heads
