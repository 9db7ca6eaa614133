"""Attention to special tokens, neighbours, and its entropy (the paper, section 4.4, Figure 6).

python -m experiments.special_tokens --config=configs/quickstart.py --workdir=results/quickstart

`--config.statistics` chooses what is measured; your own go as `package.module:name`.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('special_tokens')
