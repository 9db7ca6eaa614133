"""Attention maps of example sentences (the paper, Figures 1 and 4), as figures and to explore.

    python -m experiments.maps --config=configs/quickstart.py --workdir=results/quickstart

shows the model as it is. What this run has also done, it shows too: the fine-tuned model beside it,
and what disabling a head does; nothing is fine-tuned or ablated for it.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('maps')
