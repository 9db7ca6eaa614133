"""Token to token: do heads follow relations, or only distances? (the paper, section 4.5)

python -m experiments.relations --config=configs/quickstart.py --workdir=results/quickstart
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('relations')
