"""Which heads help, hurt or do not matter, when all others may go, too? (Nam et al. 2025)

    python -m experiments.head_gating --config=configs/quickstart.py --workdir=results/quickstart

Gates are trained twice: once open heads cost, once they are paid.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('head_gating')
