"""Which claims of the paper hold for this model.

    python -m experiments.claims --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --workdir=results/mrpc

reads what the other programs have measured in the same folder, and measures nothing itself.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('claims')
