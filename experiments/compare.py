"""Finished runs side by side: several models, or several tasks.

    python -m experiments.compare results/mrpc results/rte --out=results/compared

reads what the other programs have kept in these folders, and computes nothing on a model.
"""

import sys

from bert_secrets_jax.programs import cli

if __name__ == '__main__':
    cli.main(['compare', *sys.argv[1:]])
