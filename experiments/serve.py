"""Type sentences on a local page and see what every head attends to in them.

    python -m experiments.serve --config=configs/quickstart.py --workdir=results/serve

`--config.model.name` is the model, which may be a fine-tuned folder; `--port` fixes the address.
"""

from typing import TYPE_CHECKING

from absl import flags

from tools import launch

if TYPE_CHECKING:
    from bert_secrets_jax.programs.given import Study

_PORT = flags.DEFINE_integer('port', 0, 'Of the page on 127.0.0.1; 0 takes any that is free.')


def main(study: 'Study') -> None:
    """Serve the page until it is stopped."""
    from bert_secrets_jax.programs import conversation

    conversation.serve_maps(study, port=_PORT.value)


if __name__ == '__main__':
    launch.launch_study(main)
