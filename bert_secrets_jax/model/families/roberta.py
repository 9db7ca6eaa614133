"""RoBERTa (Liu et al. 2019): positions count from the number of [PAD] on; texts have one segment.

The pooler is a part of the classifier, which also drops what it reads.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.tensors import lm_names

FAMILY = replace(
    BERT,
    model_type='roberta',
    name='Roberta',
    positions_after_padding=True,
    pooler_is_of_classifier=True,
    dropout_before_pooler=True,
    lm_act='gelu',
    defaults={'pad_token_id': 1},
    prefix='roberta.',
    pooler={'pooler': 'classifier.dense'},
    pooler_of_encoder=False,
    classifier='classifier.out_proj',
    lm=lm_names('lm_head.dense', 'lm_head.layer_norm', 'lm_head.decoder'),
    second_bias='lm_head.bias',
    # No classifier stands on the pooler of the encoder.
    other_heads=('pooler.',),
    tiny={'vocab_size': 400, 'type_vocab_size': 1, 'pad_token_id': 1},
)
