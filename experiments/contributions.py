"""Vectors that heads move, beside their attention (Kobayashi et al. 2020, 2021).

    python -m experiments.contributions --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is: norms beside weights, how much of a token comes from others, and heads
that are inactive. In a report that disables heads (`python -m experiments.reproduce ...
--sections=finetune,ablate,contributions`) it also says whether losing these matters.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('contributions')
