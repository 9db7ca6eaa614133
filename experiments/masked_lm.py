"""Which heads a masked LM needs as it is: the loss without each, without any fine-tuning.

    python -m experiments.masked_lm --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('masked_lm')
