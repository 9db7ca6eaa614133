"""CamemBERT (Martin et al. 2020): RoBERTa in all but name, of French."""

from dataclasses import replace

from bert_secrets_jax.model.families.roberta import FAMILY as ROBERTA

FAMILY = replace(ROBERTA, model_type='camembert', name='Camembert')
