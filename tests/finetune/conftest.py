"""The model that fine-tunings start from."""

import dataclasses

import pytest

from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained
from tests.conftest import fresh_params


@pytest.fixture(scope='package')
def pretrained(config, tokenizer):
    """A model without a classifier."""
    bert = Bert(dataclasses.replace(config, label_names=()))
    return Pretrained(bert, fresh_params(bert, 7), tokenizer)
