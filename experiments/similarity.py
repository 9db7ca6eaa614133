"""Which heads make two texts alike: cosines of embeddings without each head or layer.

    python -m experiments.similarity --config=configs/quickstart.py --workdir=results/quickstart

The pairs are those of the run, if they have scores as STS-B does, and otherwise the embedded ones.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('similarity')
