"""The numbers that Kovaleva et al. (2019) published, to put beside one's own."""

import functools
import json
from importlib import resources
from typing import Any

import numpy as np
import scipy.stats


@functools.cache
def published() -> dict[str, Any]:
    """Return `published.json`: tables as printed, figures digitised, grids as [layer][head].

    `digitisation_error` says how far a digitised number may be off.
    """
    file = resources.files(__name__) / 'published.json'
    return json.loads(file.read_text(encoding='utf-8'))


def special_token_attention(task_title: str) -> dict[str, np.ndarray]:
    """Return Figure 6 for a task ('MRPC', 'STS-B' …): {'[CLS]': [12, 12], '[SEP]': [12, 12]}.

    The figure is of BERT-base fine-tuned on the task.

    Raises:
      KeyError: the task is not in the paper.
    """
    return {
        f'[{name}]': np.asarray(published()[f'fig6_{name}'][task_title]) for name in ('CLS', 'SEP')
    }


def rank_correlation(ours: np.ndarray, theirs: np.ndarray | None) -> str:
    """Say how alike two grids [L, N] order heads and layers; nothing for models of other shapes."""
    if theirs is None or np.shape(ours) != np.shape(theirs):
        return ''
    rank = lambda one, other: scipy.stats.spearmanr(one, other).statistic
    heads = rank(np.ravel(ours), np.ravel(theirs))
    layers = rank(np.mean(ours, axis=1), np.mean(theirs, axis=1))
    return f'Rank correlation with the paper: {heads:.2f} (heads), {layers:.2f} (layers).'
