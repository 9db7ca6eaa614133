# ruff: noqa: F401, F403  (the imports are the public names)
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

from bert_secrets_jax.analyses.verdicts.attention import (
    attention_moves_from_cls_to_sep,
    cls_attends_most_to_sep,
    cls_looks_broadly,
    cls_then_sep,
    features_are_negligible,
    few_are_heterogeneous,
    heads_look_at_sep,
    last_layers_change_most,
    layers_between,
    sep_is_a_no_op,
    sep_looks_at_sep,
    sep_moves_little,
    vertical_patterns_are_special,
)
from bert_secrets_jax.analyses.verdicts.claims import *
from bert_secrets_jax.analyses.verdicts.disabling import (
    Effects,
    a_random_head_helps,
    heads_are_not_needed,
    heads_can_go,
    order_tells,
    outliers_are_needed,
    same_heads_are_needed,
    some_mask_helps,
    unseen_change,
)
from bert_secrets_jax.analyses.verdicts.links import (
    heads_follow_links,
    no_head_for_all,
    position_explains,
    probe_leads,
    relations_have_heads,
    uas_contrasts,
)
from bert_secrets_jax.analyses.verdicts.training import (
    Gain,
    finetuning_gains,
    pretraining_helps,
    published_gain,
)
from bert_secrets_jax.analyses.verdicts.verdict import (
    DOES_NOT_HOLD,
    HOLDS,
    LEVEL,
    NOT_MEASURED,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Verdict,
    each_of,
    in_all_runs,
    known,
    known_in_all,
    named_runs,
    not_measured,
    on_runs,
)
from bert_secrets_jax.runs.verdict import ANY_FINETUNING, MOST_FINETUNINGS, THESE_MODELS, THIS_MODEL
from bert_secrets_jax.stats.corrections import corrected
