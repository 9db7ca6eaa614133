"""Train and judge the classifier of patterns (the paper, section 4.1).

    python -m experiments.train_patterns --config=configs/quickstart.py --workdir=results/patterns

Cross-validates, then trains on all maps and writes `classifier.safetensors`. Learns from the maps
that ship, or from yours: `--config.patterns.annotated=` a folder that `experiments.annotate` wrote.
The report shows it with `--config.patterns.classifier=` that file.
"""

from tools import launch
from tools.patterns import programs

if __name__ == '__main__':
    launch.launch_study(programs.train)
