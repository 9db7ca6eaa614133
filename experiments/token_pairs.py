"""Which pairs of tokens make two texts similar? (Moeller et al. 2024)

    python -m experiments.token_pairs --config=configs/quickstart.py --workdir=results/quickstart

compares integrated Jacobians with what the similarity is without the tokens. The texts are pairs.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('token_pairs')
