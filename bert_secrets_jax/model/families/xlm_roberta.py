"""XLM-RoBERTa (Conneau et al. 2020): RoBERTa in all but name, of many languages."""

from dataclasses import replace

from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

FAMILY = replace(
    ROBERTA,
    model_type='xlm-roberta',
    name='XLMRoberta',
    tiny={'vocab_size': 400, 'pad_token_id': 1, 'layer_norm_eps': 1e-5},
)
