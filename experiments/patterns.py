"""The five patterns of attention and their shares (the paper, section 4.1, Figures 1 and 2).

    python -m experiments.patterns --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('patterns')
