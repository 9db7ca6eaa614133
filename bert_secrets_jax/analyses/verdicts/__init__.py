# ruff: noqa: F403  (the imports are the public names)
"""Which claims of the papers hold for a model: each claim has a test that gives a verdict.

A claim holds where the data refute its contrary at 5 %, does not hold where they refute the claim
itself at 5 %, and is undecided at this sample size otherwise: neither error is made more often than
once in twenty. Where one of the two could not come out at all, it is not decidable.

Every verdict says for what it is. Of one model, the examples are the sample: the verdict is about
this model on such texts, and not about fine-tuning it again. Of five or more fine-tuned models, it
is about most fine-tunings of this recipe, and its number is their median. Fewer decide nothing.

Claims are in `claims.toml`, their tests in a module for each topic. These share `verdict.py`, and
what is computed of several models is in `stats.over_runs`.
"""

from bert_secrets_jax.analyses.verdicts.attention import *
from bert_secrets_jax.analyses.verdicts.claims import *
from bert_secrets_jax.analyses.verdicts.disabling import *
from bert_secrets_jax.analyses.verdicts.links import *
from bert_secrets_jax.analyses.verdicts.training import *
from bert_secrets_jax.analyses.verdicts.verdict import *
from bert_secrets_jax.runs.verdict import *
from bert_secrets_jax.stats.corrections import corrected as corrected
