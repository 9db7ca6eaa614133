"""Disabling heads and layers, and what of it is real (the paper, section 4.6, Figures 8 and 9).

    python -m experiments.ablate --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

ablates what this run fine-tunes (or has fine-tuned). A checkpoint that is fine-tuned already:

    ... --config.model.name=CHECKPOINT --config.ablation.checkpoint=model
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('ablate')
