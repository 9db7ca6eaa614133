"""Nomic's BERT (Nussbaum et al. 2024): rotary positions, gates by SiLU, and no biases.

Its checkpoints in the repositories of nomic-ai have other keys and names than in `transformers`.
"""

from dataclasses import replace
from typing import Any

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.families.tensors import GATE_AND_UP, LLAMA


def _modernise(values: dict[str, Any], problems: list[str]) -> None:
    """Cut positions to those that were trained, where longer texts are turned otherwise."""
    del problems
    if values.pop('rotary_scaling_factor', None):
        # Beyond these, the authors' own code turns by other angles in longer texts.
        values['n_positions'] = values.get('max_trained_positions', 2048)


FAMILY = replace(
    BERT,
    model_type='nomic_bert',
    name='NomicBert',
    gated=True,
    pooler_is_of_classifier=True,
    pruned_key=OURS,
    reads=('rope_theta',),
    # Older keys, and those without an effect below, are of the repositories of nomic-ai.
    former={
        'n_embd': 'hidden_size',
        'n_layer': 'num_hidden_layers',
        'n_head': 'num_attention_heads',
        'n_inner': 'intermediate_size',
        'n_positions': 'max_position_embeddings',
        'attn_pdrop': 'attention_probs_dropout_prob',
        'resid_pdrop': 'hidden_dropout_prob',
        'layer_norm_epsilon': 'layer_norm_eps',
        'rotary_emb_base': 'rope_theta',
    },
    modernise=_modernise,
    defaults={
        'hidden_act': 'silu',
        'hidden_dropout_prob': 0.0,
        'attention_probs_dropout_prob': 0.0,
        'max_position_embeddings': 2048,
        'rope_theta': 1000.0,
    },
    always={'position_embedding_type': 'rotary', 'attention_bias': False, 'mlp_bias': False},
    must_be=dict.fromkeys(
        """causal mlp_fc1_bias mlp_fc2_bias num_experts parallel_block prenorm qkv_proj_bias
        rotary_emb_interleaved rotary_emb_scale_base scale_attn_by_inverse_layer_idx
        use_rms_norm""".split(),
        (False, None),
    )
    | {'activation_function': ('swiglu',), 'rotary_emb_fraction': (1,)}
    | {'scale_attn_weights': (True,)},
    ignored=tuple(
        """dense_seq_output embd_pdrop fused_bias_fc fused_dropout_add_ln head_dim
        max_trained_positions pad_vocab_size_multiple parallel_block_tied_norm
        position_embedding_type reorder_and_upcast_attn summary_first_dropout
        summary_proj_to_labels use_flash_attn use_xentropy""".split()
    ),
    prefix='nomic_bert.',
    encoder=BERT.encoder
    | LLAMA
    | {
        'layers/attention_norm': 'layers.{}.post_attention_layernorm',
        'layers/output_norm': 'layers.{}.post_mlp_layernorm',
    },
    lm=BERT.lm | {'lm/norm': 'cls.predictions.transform.layer_norm'},
    other_heads=(),
    joined=GATE_AND_UP,
    # As the repositories of nomic-ai have them.
    former_names={
        r'^bert\.': '',
        r'^encoder\.layers\.': 'layers.',
        r'^emb_ln\.': 'embeddings.LayerNorm.',
        r'\.attn\.out_proj\.': '.self_attn.o_proj.',
        r'\.fc11\.': '.up_proj.',
        r'\.fc12\.': '.gate_proj.',
        r'\.fc2\.': '.down_proj.',
        r'\.norm1\.': '.post_attention_layernorm.',
        r'\.norm2\.': '.post_mlp_layernorm.',
    },
    formerly_fused={'attn.Wqkv': ('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj')},
    tiny={'hidden_act': 'silu', 'rope_theta': 1000.0},
)
