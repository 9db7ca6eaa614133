"""Which heads add to the right answer themselves, and what is the answer after each layer?

    python -m experiments.direct_effects --config=configs/quickstart.py --workdir=results/quickstart

No head is disabled: parts of heads, feed-forward layers, embeddings and biases sum to the margin.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('direct_effects')
