"""ModernBERT (Warner et al. 2024): LayerNorm first, rotary positions, gates, few biases.

Most layers are local: they see a window, and have rotary positions of another base. The attention
of the first layer has no LayerNorm before it. The layer under the classifier has GELU and a
LayerNorm, and stands under the heads of single tokens, too.
"""

from dataclasses import replace
from typing import Any

from bert_secrets_jax.checks import shortened
from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.names import GLOBAL, LOCAL
from bert_secrets_jax.ranges import Range

_LAYERS = Range(1, 1_000)


def _modernise(values: dict[str, Any], problems: list[str]) -> None:
    """Make kinds of layers a tuple: older files say only how often a layer is global."""
    count, every = values.get('num_hidden_layers', 0), values.pop('global_attn_every_n_layers', 3)
    kinds = values.pop('layer_types', None)
    if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
        values['layer_types'] = tuple(kinds)
    elif kinds is not None:
        problems.append(f'layer_types={shortened(kinds)} must be a list of texts')
    elif every not in _LAYERS:
        problems.append(f'global_attn_every_n_layers={shortened(every)} must be {_LAYERS}')
    elif count in _LAYERS:
        values['layer_types'] = tuple(LOCAL if layer % every else GLOBAL for layer in range(count))


FAMILY = replace(
    BERT,
    model_type='modernbert',
    name='ModernBert',
    norm_first=True,
    first_layer_unnormed=True,
    gated=True,
    pooler_act='gelu',
    pooler_norm=True,
    pooler_is_of_classifier=True,
    pools_tokens=True,
    pruned_key=OURS,
    reads=tuple(
        """rope_theta local_rope_theta layer_types local_attention attention_bias mlp_bias
        norm_bias classifier_bias classifier_pooling""".split()
    ),
    keys={
        'hidden_act': 'hidden_activation',
        'layer_norm_eps': 'norm_eps',
        'attention_probs_dropout_prob': 'attention_dropout',
        'rope_theta': 'global_rope_theta',
    },
    modernise=_modernise,
    values={'classifier_pooling': {'cls': 'cls', 'mean': 'mean'}},
    defaults={
        'max_position_embeddings': 8192,
        'layer_norm_eps': 1e-5,
        'attention_probs_dropout_prob': 0.0,
        'classifier_dropout': 0.0,
        'pad_token_id': 50283,
        'rope_theta': 160_000.0,
        'local_rope_theta': 10_000.0,
        'local_attention': 128,
        'attention_bias': False,
        'mlp_bias': False,
        'norm_bias': False,
        'classifier_bias': False,
    },
    always={'type_vocab_size': 0, 'hidden_dropout_prob': 0.0, 'position_embedding_type': 'rotary'},
    must_be={
        'attention_dropout': (0.0,),
        'embedding_dropout': (0.0,),
        'mlp_dropout': (0.0,),
        'classifier_activation': ('gelu',),
    },
    ignored=tuple(
        """decoder_bias deterministic_flash_attn initializer_cutoff_factor layer_norm_eps
        position_embedding_type reference_compile repad_logits_with_grad
        sparse_pred_ignore_index sparse_prediction""".split()
    ),
    prefix='model.',
    encoder={
        'embeddings/word': 'embeddings.tok_embeddings',
        'embeddings/norm': 'embeddings.norm',
        'layers/attention/query': 'layers.{}.attn.query',
        'layers/attention/key': 'layers.{}.attn.key',
        'layers/attention/value': 'layers.{}.attn.value',
        'layers/attention/output': 'layers.{}.attn.Wo',
        'layers/attention_norm': 'layers.{}.attn_norm',
        'layers/intermediate': 'layers.{}.mlp.Wi',
        'layers/output': 'layers.{}.mlp.Wo',
        'layers/output_norm': 'layers.{}.mlp_norm',
        'final_norm': 'final_norm',
    },
    pooler={'pooler': 'head.dense', 'pooler_norm': 'head.norm'},
    pooler_of_encoder=False,
    answers='classifier',
    lm={'lm/decoder': 'decoder', 'lm': 'decoder'},
    second_bias='',
    other_heads=(),
    fused={'attn.Wqkv': ('attn.query', 'attn.key', 'attn.value')},
    tiny={
        'attention_probs_dropout_prob': 0.0,
        'classifier_dropout': 0.0,
        'rope_theta': 160_000.0,
        'local_rope_theta': 10_000.0,
        'layer_types': (GLOBAL, LOCAL, LOCAL),
        'local_attention': 4,
        'attention_bias': False,
        'mlp_bias': False,
        'norm_bias': False,
        'classifier_bias': False,
    },
)
