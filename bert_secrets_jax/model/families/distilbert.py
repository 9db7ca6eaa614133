"""DistilBERT (Sanh et al. 2019): a BERT of fewer layers, without segments.

The output of attention is not dropped. The layer under the classifier is a part of it, with ReLU.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.tensors import lm_names

FAMILY = replace(
    BERT,
    model_type='distilbert',
    name='DistilBert',
    pooler_act='relu',
    pooler_is_of_classifier=True,
    dropout_after_attention=False,
    keys={
        'hidden_size': 'dim',
        'num_hidden_layers': 'n_layers',
        'num_attention_heads': 'n_heads',
        'intermediate_size': 'hidden_dim',
        'hidden_act': 'activation',
        'hidden_dropout_prob': 'dropout',
        'attention_probs_dropout_prob': 'attention_dropout',
        'classifier_dropout': 'seq_classif_dropout',
    },
    defaults={'classifier_dropout': 0.2},
    always={'type_vocab_size': 0, 'layer_norm_eps': 1e-12},
    prefix='distilbert.',
    encoder=BERT.encoder
    | {
        'layers/attention/query': 'transformer.layer.{}.attention.q_lin',
        'layers/attention/key': 'transformer.layer.{}.attention.k_lin',
        'layers/attention/value': 'transformer.layer.{}.attention.v_lin',
        'layers/attention/output': 'transformer.layer.{}.attention.out_lin',
        'layers/attention_norm': 'transformer.layer.{}.sa_layer_norm',
        'layers/intermediate': 'transformer.layer.{}.ffn.lin1',
        'layers/output': 'transformer.layer.{}.ffn.lin2',
        'layers/output_norm': 'transformer.layer.{}.output_layer_norm',
    },
    pooler={'pooler': 'pre_classifier'},
    pooler_of_encoder=False,
    lm=lm_names('vocab_transform', 'vocab_layer_norm', 'vocab_projector'),
    second_bias='',
    other_heads=(),
    tiny={'classifier_dropout': 0.2},
)
