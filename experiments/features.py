"""Attention to linguistic features, before and after fine-tuning (the paper, 4.4, Figure 6).

    python -m experiments.features --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('features')
