"""MPNet (Song et al. 2020): RoBERTa with a learned bias of the scores for distance, no segments."""

from dataclasses import replace

from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

FAMILY = replace(
    ROBERTA,
    model_type='mpnet',
    name='MPNet',
    relative_buckets=32,
    # Release 4 left the bias of the scores as it was, which then did not fit the heads.
    pruned_key=OURS,
    # Its classifiers drop what all layers drop.
    always={'type_vocab_size': 0, 'classifier_dropout': None},
    # Whatever stands there, `transformers` counts positions on from 1.
    must_be={'relative_attention_num_buckets': (32,), 'pad_token_id': (1, None)},
    prefix='mpnet.',
    encoder=ROBERTA.encoder
    | {
        'embeddings/relative_position': 'encoder.relative_attention_bias',
        'layers/attention/query': 'encoder.layer.{}.attention.attn.q',
        'layers/attention/key': 'encoder.layer.{}.attention.attn.k',
        'layers/attention/value': 'encoder.layer.{}.attention.attn.v',
        'layers/attention/output': 'encoder.layer.{}.attention.attn.o',
        'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
    },
    tiny={'vocab_size': 400, 'pad_token_id': 1},
)
