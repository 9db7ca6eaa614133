"""How much fine-tuning changes each head's attention (the paper, section 4.3, Figure 5).

    python -m experiments.attention_change --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('attention_change')
