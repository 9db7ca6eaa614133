"""The claims of papers (`claims.toml`), and the sizes at which their tests call a number large."""

import tomllib
from pathlib import Path

from bert_secrets_jax.runs.verdict import Claim

# In the order in which a report lists them, which is that of the file.
CLAIMS = {
    name: Claim(**fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_name('claims.toml').read_text('utf-8')
    ).items()
}
(
    PRETRAINING,
    LAST_LAYERS,
    CLS_THEN_SEP,
    FEW_HETEROGENEOUS,
    VERTICAL,
    FEATURES,
    LAST_CLS,
    FRAMES,
    VERB_SUBJECT,
    NOUN_PRONOUN,
    HEAD_HELPS,
    RANDOM_HEAD_HELPS,
    LAYER_HELPS,
    FRAME_HEADS,
    SEP_HALF,
    SEP_TO_SEP,
    BROAD_CLS,
    SEP_NO_OP,
    SEP_MOVES_LITTLE,
    RELATION_HEADS,
    NO_HEAD_FOR_ALL,
    PROBE_BEYOND_WORDS,
    ATTENTION_BEYOND_RANDOM,
    HEADS_CAN_GO,
    ORDER_TELLS,
    OUTLIERS_NEEDED,
    FINETUNING_GAINS,
    SAME_HEADS,
) = CLAIMS.values()

# No data can tell whether an effect is exactly 0; below this bound it has no practical size. Half a
# point of a score: the paper's gains of single heads are 0.1 to 1.2 points.
PRACTICAL_GAIN = 0.005
# A share of the entropy of even attention.
BROADLY = 0.8
# "Predominantly, if not exclusively": this share of the heads at least.
NEARLY_ALL = 0.9
# The share of heads that can go on MNLI, the least of the published ones.
SHARE_THAT_CAN_GO = 0.4
# A score that is lower by a point is lower.
NOTICEABLE = 0.01
