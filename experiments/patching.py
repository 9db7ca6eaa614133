"""Which heads carry the difference between two texts? (activation patching)

    python -m experiments.patching --config=configs/quickstart.py --workdir=results/quickstart

Each head of one text is put into the run on another text, which has another predicted class.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('patching')
