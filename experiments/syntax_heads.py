"""Do single heads find dependency relations? (Clark et al. 2019, section 4.2, Table 1)

    python -m experiments.syntax_heads --config=configs/quickstart.py --workdir=results/quickstart

chooses heads and offsets on one part of a treebank and measures them on the other: the embedded
sample, or files in CoNLL-U (`--config.treebank.train`, `--config.treebank.dev`).
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('syntax_heads')
