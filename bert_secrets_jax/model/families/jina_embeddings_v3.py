"""jina-embeddings-v3 (Sturua et al. 2024): RoBERTa with rotary positions.

`transformers` has it; its own repository calls it 'xlm-roberta'. Adapters for tasks are left out.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

_MIXER = 'encoder.layers.{}.mixer'
FAMILY = replace(
    ROBERTA,
    model_type='jina_embeddings_v3',
    name='JinaEmbeddingsV3',
    pruned_key=OURS,
    reads=('rope_theta',),
    former={'rotary_emb_base': 'rope_theta'},
    defaults={
        'max_position_embeddings': 8194,
        'type_vocab_size': 1,
        'layer_norm_eps': 1e-5,
        'pad_token_id': 1,
        'rope_theta': 20_000.0,
    },
    always={'position_embedding_type': 'rotary'},
    must_be={'use_reg_tokens': (False, None), 'truncate_dim': (None,)},
    ignored=(
        *'position_embedding_type emb_pooler load_trained_adapters lora_adaptations'.split(),
        *'lora_alpha lora_dropout_p lora_main_params_trainable lora_rank'.split(),
        *'matryoshka_dimensions task_instructions use_flash_attn'.split(),
    ),
    known_by={'model_type': 'xlm-roberta', 'position_embedding_type': 'rotary'},
    encoder=ROBERTA.encoder
    | {
        'embeddings/norm': 'emb_ln',
        'layers/attention/query': f'{_MIXER}.query',
        'layers/attention/key': f'{_MIXER}.key',
        'layers/attention/value': f'{_MIXER}.value',
        'layers/attention/output': f'{_MIXER}.out_proj',
        'layers/attention_norm': 'encoder.layers.{}.norm1',
        'layers/intermediate': 'encoder.layers.{}.mlp.fc1',
        'layers/output': 'encoder.layers.{}.mlp.fc2',
        'layers/output_norm': 'encoder.layers.{}.norm2',
    },
    fused={'mixer.Wqkv': ('mixer.query', 'mixer.key', 'mixer.value')},
    tiny={**ROBERTA.tiny, 'rope_theta': 20_000.0},
)
