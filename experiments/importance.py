"""Which heads matter, and which scores of heads tell? (Michel et al. 2019; Voita et al. 2019)

    python -m experiments.importance --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

compares gradients, confidence, relevance and (with `--config.importance.permutations=20`) Shapley
values with what losing each head does to the loss.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('importance')
