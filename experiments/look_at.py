"""Attention: where it goes, how evenly, and how much it matters (Clark et al. 2019, section 3).

    python -m experiments.look_at --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is. `--config.data.source=segments --config.data.file=wiki.txt` takes
segments of running text, as the paper did.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('look_at')
