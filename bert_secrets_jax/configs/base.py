"""The configs with which runs begin: the defaults of all settings, the paper, the quickstart."""

from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.configs.schema import SETTINGS


def get_config(arg: str = '') -> ConfigDict:
    """Return the defaults, which the other files change; 'smoke' is a run of seconds."""
    check_name('arg', arg, ('', 'smoke'))
    tree: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        *path, last = name.split('.')
        group = tree
        for part in path:
            group = group.setdefault(part, {})
        left_out = setting.default is None
        group[last] = config_dict.placeholder(str) if left_out else setting.default
    config = ConfigDict(tree)
    return shrink(config) if arg else config


def shrink(config: ConfigDict) -> ConfigDict:
    """Make a run of seconds: the same path on a handful of examples."""
    small = {name: each.smoke for name, each in SETTINGS.items() if each.smoke is not None}
    config.update_from_flattened_dict(small)
    return config


def paper(arg: str = 'mrpc') -> ConfigDict:
    """Return the setting of the paper: BERT-base on GLUE, at most 1,000 examples of each dev set.

    `arg` is '<task>[,<task>...]', with or without ':smoke' behind it.
    """
    tasks, _, smoke = arg.partition(':')
    if smoke not in ('', 'smoke'):
        raise ValueError(
            f"The config 'paper' takes '<task>[,<task>...]' and ':smoke' behind it, got {arg!r}."
        )
    config = get_config()
    config.data.task = tasks
    # Table 1.
    config.train.starts = ('pretrained', 'random')
    return shrink(config) if smoke else config


def quickstart(arg: str = '') -> ConfigDict:
    """Return what runs offline: all-MiniLM-L6-v2 on the embedded corpus; `arg` is '' or 'smoke'."""
    check_name('arg', arg, ('', 'smoke'))
    config = get_config()
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
    return shrink(config) if arg else config
