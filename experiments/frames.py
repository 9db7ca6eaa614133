"""Do heads connect frame elements with their target? (the paper, section 4.2, Figures 3 and 4)

    python -m experiments.frames --config=configs/quickstart.py --workdir=results/quickstart

measures the model as it is on the embedded sample, or on another one (`--config.frames.sample`): a
prepared .jsonl, FrameNet itself, or relations of your own (`data/annotation.py` has the format).
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('frames')
