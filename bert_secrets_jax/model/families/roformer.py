"""RoFormer (Su et al. 2021): rotary positions that turn neighbours, by a table of sinusoids.

Values may be turned, too. Embeddings may be narrower. Its classifier is RoBERTa's, with the
activation of the feed-forward layers; its masked LM is BERT's.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

FAMILY = replace(
    ROBERTA,
    model_type='roformer',
    name='RoFormer',
    positions_after_padding=False,
    sinusoidal=True,
    pooler_act=None,
    lm_act=None,
    reads=('embedding_size', 'rotary_value', 'rotary_rounding'),
    defaults={'max_position_embeddings': 1536, 'rotary_value': False},
    always={'classifier_dropout': None, 'position_embedding_type': 'rotary', 'rope_theta': 1e4},
    ignored=('position_embedding_type',),
    prefix='roformer.',
    encoder=BERT.encoder | {'embeddings/project': 'embeddings_project'},
    lm=BERT.lm,
    second_bias=BERT.second_bias,
    other_heads=('pooler.', 'sequence_summary.'),
    sinusoids='encoder.embed_positions.weight',
    tiny={'embedding_size': 16, 'rotary_value': True},
)
