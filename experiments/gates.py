"""Gates of heads that learn to close: how many heads a fine-tuned model needs (Voita et al. 2019).

    python -m experiments.gates --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --config.gates.coefficients=0.001,0.01,0.1 \\
        --workdir=results/mrpc

Every price of a head is tried at the same time, `--config.gates.frozen=False` trains the weights,
too.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('gates')
