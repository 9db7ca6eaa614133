"""Do the last layers change most because of the task, or of the learning rates?

    python -m experiments.where_it_changes --config=configs/paper.py:mrpc --workdir=results/mrpc

fine-tunes under several schedules and layer decays: hours on a CPU.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('where_it_changes')
