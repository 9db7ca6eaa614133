"""Fine-tuning, several seeds at once (the paper, Table 1).

    python -m experiments.finetune --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

Each start and seed leaves its last and its best checkpoint in Hugging Face's layout, in
`finetune/pretrained-.../seed0/last` and so on.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('finetune')
