"""Which of ten hypotheses about heads does this model refute? They were chosen on other models.

python -m experiments.hypotheses --config=configs/quickstart.py --workdir=results/quickstart
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('hypotheses')
