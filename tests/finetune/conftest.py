"""The model that fine-tunings start from."""

import dataclasses

import pytest

from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.model.weights import Pretrained


@pytest.fixture(scope='package')
def pretrained(config, tokenizer):
    """A model without a classifier."""
    bert = Bert(dataclasses.replace(config, label_names=()))
    return Pretrained(bert, init_params(bert, 7), tokenizer)
