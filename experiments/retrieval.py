"""Which heads a search with embeddings needs: ranks of paraphrases without each head or layer.

python -m experiments.retrieval --config=configs/quickstart.py --workdir=results/quickstart
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('retrieval')
