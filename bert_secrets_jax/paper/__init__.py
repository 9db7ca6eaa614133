"""The numbers that Kovaleva et al. (2019) published, to put beside one's own."""

import functools
import json
from importlib import resources
from typing import Any

import numpy as np


@functools.cache
def published() -> dict[str, Any]:
    """Return `published.json`: tables as printed, figures digitised, grids as [layer][head].

    `digitisation_error` says how far a digitised number may be off.
    """
    file = resources.files(__name__) / 'published.json'
    return json.loads(file.read_text(encoding='utf-8'))


def special_token_attention(task_title: str) -> dict[str, np.ndarray] | None:
    """Return Figure 6 for a task ('MRPC', 'STS-B' …): {'cls': [12, 12], 'sep': [12, 12]}.

    None for a task that is not in the paper. The figure is of BERT-base fine-tuned on the task.
    """
    grids = {name.lower(): published()[f'fig6_{name}'] for name in ('CLS', 'SEP')}
    if task_title not in grids['cls']:
        return None
    return {name: np.asarray(grid[task_title]) for name, grid in grids.items()}
