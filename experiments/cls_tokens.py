"""Attention of [CLS] in the last layer (the paper, section 4.5, Figure 7).

    python -m experiments.cls_tokens --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('cls_tokens')
