"""The numbers of every head, for a grid of heads on a page: from any frame that has them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax.runs.grids import sets_of_heads

if TYPE_CHECKING:
    import pandas

# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60


def grids(
    frames: 'Mapping[str, pandas.DataFrame]', heads: tuple[str, int, int] | None
) -> list[dict[str, Any]]:
    """Return what the grids of a page draw, of all frames that have rows for every head.

    Args:
      frames: The frames by the names of their files.
      heads: The numbers of layers and of heads in each, at places 1 and 2; None for no model.

    Returns:
      For each such frame its name and caption, the names of its columns of numbers, and `sets`: the
      name of each set of all heads, such as '[SEP]', and the numbers [column][head], heads in the
      order of layers, None for NaN.
    """
    if heads is None:
        return []
    shape = heads[1:]
    found = []
    for name, frame in frames.items():
        if not len(frame) or len(frame) > _MOST_ROWS * np.prod(shape):
            continue
        sets = [each for each in sets_of_heads(frame) if each[1].index.levshape == shape]
        if sets and len(sets[0][1].columns):
            found.append(
                {
                    'name': name,
                    'caption': frame.attrs.get('caption', ''),
                    'columns': [str(each).replace('_', ' ') for each in sets[0][1].columns],
                    'sets': [
                        {'of': told, 'values': [_listed(rows[each]) for each in rows]}
                        for told, rows in sets
                    ],
                }
            )
    return found


def _listed(values: 'pandas.Series') -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
