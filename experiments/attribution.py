"""Which tokens does a prediction come from, and which method explains this model? (DeYoung et al.)

    python -m experiments.attribution --config=configs/paper.py:sst-2 \\
        --config.data.glue_dir=... --config.attribution.max_examples=150 --workdir=results/sst-2

scores the tokens of the ablated texts by attention rollout and flow, value zeroing, ALTI, GlobEnc,
DecompX, gradients and others, and compares all with what the model does without these tokens.
"""

from tools import launch

if __name__ == '__main__':
    launch.launch_section('attribution')
