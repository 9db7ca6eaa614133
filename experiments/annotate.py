"""Label attention maps of your own model by eye, on a local page (the paper, section 4.1).

    python -m experiments.annotate --config=configs/paper.py:mrpc \\
        --config.data.glue_dir=... --config.model.name=... --workdir=results/labels

draws `patterns.count` maps at random into `maps_to_label.npz` and writes every decision into
`labels.csv` at once; stopped (Ctrl-C) and started again, it goes on. `--shipped` takes the 1,546
maps that ship instead; `--port` fixes the address of the page.
"""

from absl import flags

from bert_secrets_jax.programs.given import Study
from tools import launch
from tools.patterns import programs

_PORT = flags.DEFINE_integer('port', 0, 'Of the page on 127.0.0.1; 0 takes any that is free.')
_SHIPPED = flags.DEFINE_bool('shipped', False, 'Label the maps that ship, without their labels.')


def main(study: Study) -> None:
    """Serve the page until it is stopped."""
    programs.annotate(study, shipped=_SHIPPED.value, port=_PORT.value)


if __name__ == '__main__':
    launch.launch_study(main)
