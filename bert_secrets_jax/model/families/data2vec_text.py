"""data2vec for texts (Baevski et al. 2022): RoBERTa in all but names."""

from dataclasses import replace

from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

FAMILY = replace(ROBERTA, model_type='data2vec-text', name='Data2VecText', prefix='data2vec_text.')
