"""Families of encoders, one file each: how it differs from its parent, in one record (`family`).

A new family is one file here, which names its `FAMILY`, and one line below.
"""

import importlib
from collections.abc import Mapping

from bert_secrets_jax.model.families.family import Family

# In the order in which messages list them.
_FILES = (
    'bert',
    'roberta',
    'xlm_roberta',
    'camembert',
    'distilbert',
    'electra',
    'albert',
    'mpnet',
    'deberta_v2',
    'esm',
    'modernbert',
    'nomic_bert',
    'eurobert',
    'roformer',
    'data2vec_text',
    'ernie',
    'jina_bert',
    'jina_embeddings_v3',
)
FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (importlib.import_module(f'{__name__}.{file}').FAMILY for file in _FILES)
}
