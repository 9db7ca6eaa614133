"""Which claims of the paper hold for a model: each claim has a test that gives a verdict.

A claim holds where the data refute its contrary at 5 %, does not hold where they refute the claim
itself at 5 %, and is undecided at this sample size otherwise: neither error is made more often than
once in twenty. Where one of the two could not come out at all, it is not decidable.

Every verdict says for what it is. Of one model, the examples are the sample: the verdict is about
this model on such texts, and not about fine-tuning it again. Of three or more fine-tuned models,
there is an interval over their seeds, and the verdict is about any fine-tuning of this recipe.

Claims are in a module for each topic, and `verdict.py` has what all of them share.
"""

from bert_secrets_jax.analyses.populations import ANY_FINETUNING, THESE_MODELS, THIS_MODEL
from bert_secrets_jax.analyses.verdicts.disabling import (
    FRAME_HEADS,
    HEAD_HELPS,
    LAYER_HELPS,
    PRACTICAL_GAIN,
    RANDOM_HEAD_HELPS,
    SAME_HEADS,
    Effects,
    a_random_head_helps,
    effects_on_examples,
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
from bert_secrets_jax.analyses.verdicts.patterns import (
    FEW_HETEROGENEOUS,
    MOST,
    few_are_heterogeneous,
)
from bert_secrets_jax.analyses.verdicts.probing import (
    ATTENTION_BEYOND_RANDOM,
    LEAD_OVER_RANDOM,
    LEAD_OVER_WORDS,
    PROBE_BEYOND_WORDS,
    probe_leads,
)
from bert_secrets_jax.analyses.verdicts.syntax import (
    NO_HEAD_FOR_ALL,
    PRACTICAL_LEAD,
    RELATION_HEADS,
    no_head_for_all,
    relations_have_heads,
)
from bert_secrets_jax.analyses.verdicts.together import corrected
from bert_secrets_jax.analyses.verdicts.tokens import (
    FEATURES,
    HALF,
    LAST_CLS,
    NEARLY_ALL,
    NEGLIGIBLE,
    VERTICAL,
    cls_attends_most_to_sep,
    features_are_negligible,
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

__all__ = [
    'ANY_FINETUNING',
    'ATTENTION_BEYOND_RANDOM',
    'CLS_THEN_SEP',
    'DOES_NOT_HOLD',
    'FEATURES',
    'FEW_HETEROGENEOUS',
    'FINETUNING_GAINS',
    'FRAMES',
    'FRAME_HEADS',
    'HALF',
    'HEAD_HELPS',
    'HOLDS',
    'LAST_CLS',
    'LAST_LAYERS',
    'LAYER_HELPS',
    'LEAD_OVER_RANDOM',
    'LEAD_OVER_WORDS',
    'LEVEL',
    'MOST',
    'NEARLY_ALL',
    'NEGLIGIBLE',
    'NOT_MEASURED',
    'NOUN_PRONOUN',
    'NO_HEAD_FOR_ALL',
    'PRACTICAL_GAIN',
    'PRACTICAL_LEAD',
    'PRACTICAL_SHARE',
    'PRACTICAL_SIMILARITY',
    'PRACTICAL_TREND',
    'PRETRAINING',
    'PROBE_BEYOND_WORDS',
    'RANDOM_HEAD_HELPS',
    'RELATION_HEADS',
    'SAME_HEADS',
    'THESE_MODELS',
    'THIS_MODEL',
    'TOO_FEW',
    'UNDECIDED',
    'VERB_SUBJECT',
    'VERTICAL',
    'Claim',
    'Effects',
    'Gain',
    'Verdict',
    'a_random_head_helps',
    'attention_moves_from_cls_to_sep',
    'cls_attends_most_to_sep',
    'corrected',
    'effects_on_examples',
    'features_are_negligible',
    'few_are_heterogeneous',
    'finetuning_gains',
    'heads_are_not_needed',
    'heads_follow_links',
    'in_all_runs',
    'last_layers_change_most',
    'no_head_for_all',
    'not_measured',
    'position_explains',
    'pretraining_helps',
    'probe_leads',
    'published_gain',
    'relations_have_heads',
    'same_heads_are_needed',
    'some_mask_helps',
    'unseen_change',
    'vertical_patterns_are_special',
]
