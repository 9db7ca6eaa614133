"""Answer one section of the page, whichever you name.

    python -m experiments.section NAME --config=configs/quickstart.py --workdir=results/quickstart

`bert-secrets NAME --help` lists the settings of a section: `--set=prune.draws=50` there is
`--config.prune.draws=50` here.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section()
