"""All sections for one model, on one task or several, and the report on them.

    python -m experiments.reproduce --config=configs/quickstart.py --workdir=results/quickstart
    python -m experiments.reproduce --config=configs/paper.py:mrpc,rte \\
        --config.data.glue_dir=... --workdir=results/paper

Several tasks have a folder each (results/paper/mrpc, ...) and one report. `--sections=maps,ablate`
computes only these, and what they need; what is finished stays on the page. A section that fails is
reported and does not stop the others; the exit code is then 1, and the same command tries it again.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_report()
