"""Offline, on what the `quickstart` extra brings: all-MiniLM-L6-v2 on the embedded corpus.

    python -m experiments.reproduce --config=configs/quickstart.py --workdir=results/quickstart

`configs/quickstart.py:smoke` is the same on 12 sentence pairs.
"""

from configs import base


def get_config(arg: str = ''):
    """Return the config; `arg` is '' or 'smoke'."""
    if arg not in ('', 'smoke'):
        raise ValueError(f"configs/quickstart.py takes no argument but ':smoke', got {arg!r}.")
    config = base.get_config()
    config.model.name = 'all-MiniLM-L6-v2'
    config.data.source = 'corpus'
    return base.shrink(config) if arg else config
