"""Are the heads that survive pruning the ones to train? (Prasanna et al. 2020)

    python -m experiments.subnetworks --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

trains the heads that survive, as many others and as many at random again from the pre-trained
weights, for every seed. It takes three times as long as fine-tuning.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('subnetworks')
