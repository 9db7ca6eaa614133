# ruff: noqa: F401  (the imports are the public names)
"""Which claims of the papers hold for a model: each claim has a test that gives a verdict.

A claim holds where the data refute its contrary at 5 %, does not hold where they refute the claim
itself at 5 %, and is undecided at this sample size otherwise: neither error is made more often than
once in twenty. Where one of the two could not come out at all, it is not decidable.

Every verdict says for what it is. Of one model, the examples are the sample: the verdict is about
this model on such texts, and not about fine-tuning it again. Of five or more fine-tuned models, it
is about most fine-tunings of this recipe, and its number is their median. Fewer decide nothing.

Claims are in a module for each topic, and `verdict.py` has what all of them share.
"""

from bert_secrets_jax.analyses.verdicts.disabling import (
    FRAME_HEADS,
    HEAD_HELPS,
    LAYER_HELPS,
    PRACTICAL_GAIN,
    RANDOM_HEAD_HELPS,
    SAME_HEADS,
    Effects,
    a_random_head_helps,
    heads_are_not_needed,
    same_heads_are_needed,
    some_mask_helps,
    unseen_change,
)
from bert_secrets_jax.analyses.verdicts.layers import (
    CLS_THEN_SEP,
    LAST_LAYERS,
    PRACTICAL_SIMILARITY,
    PRACTICAL_TREND,
    attention_moves_from_cls_to_sep,
    cls_then_sep,
    last_layers_change_most,
)
from bert_secrets_jax.analyses.verdicts.links import (
    FRAMES,
    NOUN_PRONOUN,
    PRACTICAL_SHARE,
    VERB_SUBJECT,
    heads_follow_links,
    position_explains,
)
from bert_secrets_jax.analyses.verdicts.looking import (
    BROAD_CLS,
    BROADLY,
    MOSTLY_SEP,
    NEARLY_ALL_SEP,
    SEP_HALF,
    SEP_MOVES_LITTLE,
    SEP_NO_OP,
    SEP_TO_SEP,
    cls_looks_broadly,
    heads_look_at_sep,
    layers_between,
    sep_is_a_no_op,
    sep_looks_at_sep,
    sep_moves_little,
)
from bert_secrets_jax.analyses.verdicts.pruning import (
    HEADS_CAN_GO,
    LOSS_OF_OUTLIERS,
    NOTICEABLE,
    ORDER_TELLS,
    OUTLIERS_NEEDED,
    SHARE_THAT_CAN_GO,
    heads_can_go,
    order_tells,
    outliers_are_needed,
)
from bert_secrets_jax.analyses.verdicts.runs import (
    each_of,
    known,
    known_in_all,
    named_runs,
    on_runs,
)
from bert_secrets_jax.analyses.verdicts.syntax import (
    ATTENTION_BEYOND_RANDOM,
    LEAD_OVER_RANDOM,
    LEAD_OVER_WORDS,
    NO_HEAD_FOR_ALL,
    PRACTICAL_LEAD,
    PROBE_BEYOND_WORDS,
    RELATION_HEADS,
    no_head_for_all,
    probe_leads,
    relations_have_heads,
    uas_contrasts,
)
from bert_secrets_jax.analyses.verdicts.together import corrected
from bert_secrets_jax.analyses.verdicts.tokens import (
    FEATURES,
    FEW_HETEROGENEOUS,
    HALF,
    LAST_CLS,
    MOST,
    NEARLY_ALL,
    NEGLIGIBLE,
    VERTICAL,
    cls_attends_most_to_sep,
    features_are_negligible,
    few_are_heterogeneous,
    vertical_patterns_are_special,
)
from bert_secrets_jax.analyses.verdicts.training import (
    FINETUNING_GAINS,
    PRETRAINING,
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
    in_all_runs,
    not_measured,
)
from bert_secrets_jax.runs.verdict import ANY_FINETUNING, MOST_FINETUNINGS, THESE_MODELS, THIS_MODEL
