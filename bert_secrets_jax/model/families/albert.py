"""ALBERT (Lan et al. 2020): layers share their weights, in groups of some in a row.

Embeddings are narrower than the model and always projected. The feed-forward layer drops nothing.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.tensors import lm_names

_LAYER = 'encoder.albert_layer_groups.{}.albert_layers.0'
FAMILY = replace(
    BERT,
    model_type='albert',
    name='Albert',
    projects_always=True,
    dropout_after_feed_forward=False,
    reads=('embedding_size', 'num_hidden_groups'),
    keys={'classifier_dropout': 'classifier_dropout_prob'},
    defaults={
        'embedding_size': 128,
        'num_hidden_groups': 1,
        'hidden_act': 'gelu_new',
        'hidden_dropout_prob': 0.0,
        'attention_probs_dropout_prob': 0.0,
        'classifier_dropout': 0.1,
    },
    # A group of several layers would be another order of them.
    must_be={'inner_group_num': (1,)},
    ignored=('down_scale_factor', 'gap_size', 'net_structure_type', 'num_memory_blocks'),
    prefix='albert.',
    encoder=BERT.encoder
    | {
        'embeddings/project': 'encoder.embedding_hidden_mapping_in',
        'layers/attention/query': f'{_LAYER}.attention.query',
        'layers/attention/key': f'{_LAYER}.attention.key',
        'layers/attention/value': f'{_LAYER}.attention.value',
        'layers/attention/output': f'{_LAYER}.attention.dense',
        'layers/attention_norm': f'{_LAYER}.attention.LayerNorm',
        'layers/intermediate': f'{_LAYER}.ffn',
        'layers/output': f'{_LAYER}.ffn_output',
        'layers/output_norm': f'{_LAYER}.full_layer_layer_norm',
    },
    pooler={'pooler': 'pooler'},
    lm=lm_names('predictions.dense', 'predictions.LayerNorm', 'predictions.decoder'),
    second_bias='predictions.bias',
    other_heads=('sop_classifier.',),
    tiny={'embedding_size': 16, 'num_hidden_groups': 2, 'classifier_dropout': 0.1},
)
