"""The defaults of all settings, as a config."""

from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_secrets_jax.brief import check_name
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
