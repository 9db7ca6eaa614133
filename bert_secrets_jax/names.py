"""What heads are called wherever a person reads of them."""

import numpy as np


def head_name(layer: int | np.integer, head: int | np.integer) -> str:
    """Return the name of a head, which counts from 1, for numbers that count from 0.

    >>> head_name(0, 1)
    'L1-H2'
    """
    return f'L{layer + 1}-H{head + 1}'
