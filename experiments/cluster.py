"""Which heads do alike: divergences between all heads, on a plane (Clark et al. 2019, section 6).

python -m experiments.cluster --config=configs/quickstart.py --workdir=results/quickstart
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('cluster')
