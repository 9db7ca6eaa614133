"""Outlier dimensions of LayerNorm: which there are, and what the model is without them.

    python -m experiments.outliers --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

The loss is that of a masked LM. A report that fine-tunes has the score of its first model, too:
`python -m experiments.reproduce ... --sections=finetune,outliers`.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('outliers')
