"""Do heads do the same in several languages? (Ravishankar et al. 2021)

    python -m experiments.across --config=configs/quickstart.py --workdir=results/quickstart \\
        --config.across.files="('en.conllu', 'tr.conllu')"

measures the same heads on treebanks of parallel sentences, and how far they agree.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('across')
