"""Pairs of heads: what disabling both does beyond the sum of the two.

    python -m experiments.interactions --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --config.ablation.pairs_of=L1-H2,L7-H6 --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('interactions')
