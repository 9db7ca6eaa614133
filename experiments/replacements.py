"""How much of a head's importance is the harm of its replacement? (Li and Janson 2024)

    python -m experiments.replacements --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

replaces each head by nothing, even attention, its mean, another text's output, and the constant
that does the least harm. It takes a gradient of each training example for every head and pass.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('replacements')
