"""The defaults of all settings, as a config."""

from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_secrets_jax.configs.schema import SETTINGS


def get_config(arg: str = '') -> ConfigDict:
    """Return the defaults; the other files of this folder change them.

    Args:
      arg: '', or 'smoke' for a run of seconds.

    Raises:
      ValueError: The argument is something else.
    """
    if arg not in ('', 'smoke'):
        raise ValueError(f"The config 'base' takes no argument but ':smoke', got {arg!r}.")
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
    config.data.max_examples = 12
    config.maps.examples = 1
    config.ablation.max_examples = 12
    config.outliers.max_examples = 12
    config.outliers.draws = 19
    config.treebank.max_train = 12
    config.treebank.max_dev = 12
    config.probe.num_seeds = 2
    config.probe.epochs = 1
    config.gates.epochs = 1
    config.importance.max_examples = 12
    config.attribution.max_examples = 6
    config.prune.draws = 2
    config.prune.batch_sizes = ''
    config.replacements.max_examples = 8
    config.replacements.passes = 1
    config.train.max_examples = 16
    config.train.max_dev_examples = 64
    config.train.epochs = 1
    config.train.num_seeds = 2
    config.train.batch_size = 8
    return config
