"""Offline, on what the `quickstart` extra brings: all-MiniLM-L6-v2 on the embedded corpus.

    python -m experiments.reproduce --config=configs/quickstart.py --workdir=results/quickstart

`configs/quickstart.py:smoke` is the same on 12 sentence pairs.
"""

from bert_secrets_jax.configs.base import quickstart as get_config  # noqa: F401
