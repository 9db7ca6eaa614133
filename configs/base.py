"""The defaults of all settings: BERT-base on MRPC.

    python -m experiments.maps --config=configs/base.py \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from bert_secrets_jax.configs.base import get_config  # noqa: F401
