"""Offline, on what the `quickstart` extra brings: all-MiniLM-L6-v2 on the embedded corpus."""

from bert_secrets_jax.brief import check_name
from bert_secrets_jax.configs import base


def get_config(arg: str = ''):
    """Return the config; `arg` is '' or 'smoke'."""
    check_name('arg', arg, ('', 'smoke'))
    config = base.get_config()
    config.model.name = 'all-MiniLM-L6-v2'
    config.data.source = 'corpus'
    # 380 pairs want more passes, and a higher rate, than the paper's thousands.
    config.train.epochs = 4
    config.train.learning_rate = 1e-4
    config.train.num_seeds = 1
    # Fewer texts and draws, so that all sections together take minutes.
    config.importance.max_examples = 80
    config.attribution.max_examples = 10
    config.outliers.draws = 19
    config.prune.draws = 2
    return base.shrink(config) if arg else config
