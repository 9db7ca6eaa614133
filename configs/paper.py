"""The setting of the paper: BERT-base on tasks of GLUE, at most 1,000 examples of each dev set.

    python -m experiments.reproduce --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
    python -m experiments.reproduce --config=configs/paper.py:mrpc,rte \\
        --config.data.glue_dir=... --workdir=results/paper

The tasks are mrpc, sts-b, sst-2, qqp, rte, qnli and mnli; several have a folder each, within
`--workdir`. `configs/paper.py:mrpc:smoke` is a run on 12 examples. Without `glue_dir`, GLUE is read
from tensorflow-datasets (`--config.data.tfds_dir`). Table 1 fine-tunes random weights too;
`"--config.train.starts=('pretrained',)"` does without.
"""

from bert_secrets_jax.configs.base import paper as get_config  # noqa: F401
