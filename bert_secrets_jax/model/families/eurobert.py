"""EuroBERT (Boizard et al. 2025): Llama's layers, read in both directions.

RMSNorm comes first, positions are rotary, feed-forward layers are gated by SiLU, and several heads
share keys and values. The layer under the classifier has GELU. It reads one token or the mean of
all; with 'late' pooling it reads each token. The masked LM is one row of weights per wordpiece.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.families.tensors import GATE_AND_UP, LLAMA

FAMILY = replace(
    BERT,
    model_type='eurobert',
    name='EuroBert',
    norm_first=True,
    gated=True,
    rms_norm=True,
    embedding_dropout=False,
    pooler_act='gelu',
    pooler_is_of_classifier=True,
    lm_plain=True,
    pruned_key=OURS,
    reads=('rope_theta', 'num_key_value_heads', 'attention_bias', 'mlp_bias', 'classifier_pooling'),
    keys={'layer_norm_eps': 'rms_norm_eps', 'attention_probs_dropout_prob': 'attention_dropout'},
    values={'classifier_pooling': {'late': 'late', 'mean': 'mean', 'bos': 'cls'}},
    defaults={
        'hidden_act': 'silu',
        'attention_probs_dropout_prob': 0.0,
        'layer_norm_eps': 1e-5,
        'max_position_embeddings': 8192,
        'pad_token_id': 128001,
        'rope_theta': 10_000.0,
        'attention_bias': False,
        'mlp_bias': False,
        'classifier_pooling': 'late',
    },
    always={
        'type_vocab_size': 0,
        'hidden_dropout_prob': 0.0,
        'classifier_dropout': 0.0,
        'position_embedding_type': 'rotary',
        'emb_layer_norm_before': False,
        'norm_bias': False,
    },
    # In the code of its authors, `clf_pooling` is what `classifier_pooling` is today.
    must_be={'clf_pooling': ('late',), 'hidden_dropout': (0.0,), 'pretraining_tp': (1,)},
    ignored=tuple(
        'bos_token eos_token head_dim mask_token pad_token position_embedding_type'.split()
    ),
    prefix='model.',
    encoder=LLAMA
    | {
        'embeddings/word': 'embed_tokens',
        'layers/attention_norm': 'layers.{}.input_layernorm',
        'layers/output_norm': 'layers.{}.post_attention_layernorm',
        'final_norm': 'norm',
    },
    pooler={'pooler': 'dense'},
    pooler_of_encoder=False,
    lm={'lm/decoder': 'lm_head', 'lm': 'lm_head'},
    second_bias='',
    other_heads=(),
    joined=GATE_AND_UP,
    tiny={
        'hidden_act': 'silu',
        'num_key_value_heads': 2,
        'rope_theta': 10_000.0,
        'attention_bias': False,
        'mlp_bias': False,
        'classifier_pooling': 'mean',
    },
)
