"""Changes of maps from one model to another: how they are measured, and the last two layers.

Runs are the tables of each fine-tuned model, by its seed.
"""

from collections.abc import Mapping, Sequence

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.tables import Tables

SOURCE = 'Kovaleva et al. 2019, section 4.3, Figure 5'
UNIT = 'cosine similarity'
# The statistic that measures each reading of Figure 5.
READINGS = {'paper': 'cosine', 'notebook': 'cosine (padded)'}


def last_layers(runs: Mapping[str, Tables]) -> list[verdicts.Verdict]:
    """Return the verdict, if there is a run, on the claim that the last two layers change most."""

    def change_most(runs: Sequence[Tables]) -> verdicts.Verdict:
        return verdicts.last_layers_change_most(verdicts.each_of(runs, READINGS['paper']))

    return verdicts.on_runs(verdicts.named_runs(runs), change_most)
