"""Disabling heads and layers in several fine-tuned models: what holds for any fine-tuning.

    python -m experiments.ablate_seeds --config=configs/paper.py:mrpc \\
        --config.train.num_seeds=10 --config.data.glue_dir=... --workdir=results/mrpc

sweeps the model of every seed, keeps each sweep, and treats seeds and examples as samples. With
fewer than six seeds nothing can be significant by flips of seeds.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('ablate_seeds')
