"""A model so small that all sets of its heads can be run, and the pairs it is asked about."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests import conftest
from tests.conftest import random_params

PAIRS = [
    *conftest.PAIRS,
    ('she never liked it', 'the dog chased the cat .'),
    ('the old tree', 'he saw it .'),
]
LABELS = np.array([1, 0, 2, 0, 1])


@pytest.fixture(scope='package')
def model(config, tokenizer):
    """Two layers of two heads."""
    bert = bs.Bert(dataclasses.replace(config, num_hidden_layers=2, num_attention_heads=2))
    return bs.Pretrained(bert, random_params(bert), tokenizer)
