"""Changes of maps from one model to another: the layer that changes most, and the last two.

Runs are the tables of each fine-tuned model, by its seed.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.tables import Tables, mean_finding
from bert_secrets_jax.runs.result import Finding

SOURCE = 'Kovaleva et al. 2019, section 4.3, Figure 5'
UNIT = 'cosine similarity'
# The statistic that measures each reading of Figure 5.
READINGS = {'paper': 'cosine', 'notebook': 'cosine (padded)'}


def similarity(runs: Mapping[str, Tables], reading: str = 'paper') -> Float[np.ndarray, 'L N']:
    """Return the similarity of the maps of each head before and after, mean over runs."""
    return np.mean([run[READINGS[reading]].mean for run in runs.values()], axis=0)


def last_layers(runs: Mapping[str, Tables]) -> list[verdicts.Verdict]:
    """Return the verdict, if there is a run, on the claim that the last two layers change most."""

    def change_most(runs: Sequence[Tables]) -> verdicts.Verdict:
        return verdicts.last_layers_change_most(verdicts.each_of(runs, READINGS['paper']))

    return verdicts.on_runs(verdicts.named_runs(runs), change_most)


def layer_changed_most(runs: Mapping[str, Tables], reading: str) -> Finding:
    """Return the layer whose maps change most, and the one after it."""
    layers = similarity(runs, reading).mean(axis=1)
    first, *others = np.argsort(layers).tolist()
    numbers, most = {}, ' most' * bool(others)
    template = (
        f'Fine-tuning changes {{where}}{most} (similarity before and after: {{estimate:.2f}})'
    )
    if others:
        template += ', then layer {second} ({next:.2f})'
        numbers = {'second': others[0] + 1, 'next': float(layers[others[0]])}
    return mean_finding(
        f'similarity of the layer that changes most, reading {reading}',
        list(runs.values()),
        [READINGS[reading]],
        first,
        **{'unit': UNIT, 'source': SOURCE, 'where': f'layer {first + 1}'},
        template=f'{template}.',
        numbers=numbers,
    )
