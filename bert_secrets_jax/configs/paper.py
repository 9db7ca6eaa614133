"""The setting of the paper: BERT-base on tasks of GLUE, at most 1,000 examples of each dev set."""

from bert_secrets_jax.configs import base


def get_config(arg: str = 'mrpc'):
    """Return the config; `arg` is '<task>[,<task>...]', with or without ':smoke' behind it."""
    tasks, _, smoke = arg.partition(':')
    if smoke not in ('', 'smoke'):
        raise ValueError(
            f"The config 'paper' takes '<task>[,<task>...]' and ':smoke' behind it, got {arg!r}."
        )
    config = base.get_config()
    config.data.task = tasks
    # Table 1.
    config.train.starts = ('pretrained', 'random')
    return base.shrink(config) if smoke else config
