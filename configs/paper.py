"""The setting of the paper: BERT-base on a task of GLUE, at most 1,000 examples of its dev set.

    python -m experiments.reproduce --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

The tasks are mrpc, sts-b, sst-2, qqp, rte, qnli and mnli; `configs/paper.py:mrpc:smoke` is a run on
12 examples. Without `glue_dir`, GLUE is read from tensorflow-datasets (`--config.data.tfds_dir`).
Figure 6 of the paper is about fine-tuned models: give one with `--config.model.name`.
"""

from configs import base


def get_config(arg: str = 'mrpc'):
    """Return the config; `arg` is '<task>' or '<task>:smoke'."""
    task, _, smoke = arg.partition(':')
    if smoke not in ('', 'smoke'):
        raise ValueError(f"configs/paper.py takes '<task>' or '<task>:smoke', got {arg!r}.")
    config = base.get_config()
    config.data.task = task
    return base.shrink(config) if smoke else config
