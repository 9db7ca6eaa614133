"""What several runs' tables have to say together."""

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.tables import significant_change


def test_heads_that_seem_to_change_in_few_examples_are_chance():
    """Nothing changes, three examples: heads are called significant in about 5 % of corpora."""
    rng = np.random.default_rng(0)
    errors = 0
    for _ in range(300):
        values = rng.normal(size=(3, 6, 12))
        changed = bs.HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 3.0)
        errors += np.any(significant_change(changed) != 0)
    assert errors <= 30
    assert significant_change(bs.HeadTable(values[0], values[0], 1.0)) is None
