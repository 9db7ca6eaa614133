"""ELECTRA (Clark et al. 2020): embeddings are narrower than the model, and projected.

Its classifier is RoBERTa's, with GELU in place of tanh.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA
from bert_secrets_jax.model.families.tensors import lm_names

FAMILY = replace(
    ROBERTA,
    model_type='electra',
    name='Electra',
    positions_after_padding=False,
    pooler_act='gelu',
    reads=('embedding_size',),
    defaults={'embedding_size': 128},
    prefix='electra.',
    encoder=ROBERTA.encoder | {'embeddings/project': 'embeddings_project'},
    lm=lm_names(
        'generator_predictions.dense', 'generator_predictions.LayerNorm', 'generator_lm_head'
    ),
    second_bias='',
    other_heads=('discriminator_predictions.', 'sequence_summary.'),
    tiny={'embedding_size': 16},
)
