"""ESM-2 (Lin et al. 2023), of proteins: RoBERTa with LayerNorm first and rotary positions.

[MASK] may have an embedding of zeros, others are then scaled to make up for it. Embeddings of
padding are 0. A head may predict contacts of residues from all maps (`heads.Contacts`).
"""

from dataclasses import replace

from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

# A null is false to `transformers`.
_SWITCH = {None: False, False: False, True: True}
FAMILY = replace(
    ROBERTA,
    model_type='esm',
    name='Esm',
    norm_first=True,
    zero_padding=True,
    embedding_dropout=False,
    eos_token_id=2,
    reads=tuple(
        """position_embedding_type rope_theta emb_layer_norm_before token_dropout
        mask_token_id""".split()
    ),
    # To `transformers`, ALiBi is no positions at all.
    values={
        'position_embedding_type': {'absolute': 'absolute', 'rotary': 'rotary'},
        'emb_layer_norm_before': _SWITCH,
        'token_dropout': _SWITCH,
    },
    defaults={
        'pad_token_id': 1,
        'max_position_embeddings': 1026,
        'rope_theta': 10_000.0,
        'emb_layer_norm_before': False,
        'token_dropout': False,
    },
    always={'type_vocab_size': 0, 'classifier_dropout': None},
    must_be={'hidden_act': ('gelu',), 'is_folding_model': (False, None), 'esmfold_config': (None,)},
    ignored=('vocab_list',),
    prefix='esm.',
    encoder=ROBERTA.encoder
    | {
        'embeddings/norm': 'embeddings.layer_norm',
        'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
        'layers/output_norm': 'encoder.layer.{}.LayerNorm',
        'final_norm': 'encoder.emb_layer_norm_after',
        'contact_head': 'contact_head.regression',
    },
    lm=ROBERTA.lm | {'lm': 'lm_head'},
    second_bias='',
    saves_frequencies=True,
    tiny={
        'pad_token_id': 1,
        'position_embedding_type': 'rotary',
        'rope_theta': 10_000.0,
        'emb_layer_norm_before': False,
        'token_dropout': True,
        'mask_token_id': 4,
    },
)
