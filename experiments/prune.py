"""How many heads can go, in which order, and what does that save? (Michel et al. 2019, section 4)

    python -m experiments.prune --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

removes tenths of the heads of every fine-tuned model, and writes the sparsest one that is as good
as the full one, with its heads cut out, to a folder `pruned/model-...` of the run.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('prune')
