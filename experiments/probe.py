"""How much syntax is in attention? Probes that find dependency heads (Clark et al. 2019, section 5)

    python -m experiments.probe --config=configs/quickstart.py --workdir=results/quickstart

trains them on one part of a treebank and measures them on the other: the embedded sample, or files
in CoNLL-U (`--config.treebank.train`, `--config.treebank.dev`). Probes that read words need word
vectors (`--config.probe.vectors=glove.6B.100d.txt`).
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('probe')
