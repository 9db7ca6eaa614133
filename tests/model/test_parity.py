"""Law 1: equal to Hugging Face's PyTorch BERT and its relatives, at two scales of the weights.

At BERT's initial scale (0.02) a wrong LayerNorm epsilon shows and a wrong GELU does not; at 0.3
it is the other way round. One scale alone passes a wrong model.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config_json import read_config
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.weights import from_pretrained
from tests.conftest import RELATIVES, as_torch, forward, random_inputs, relative
from tests.model.conftest import in_pytorch

torch = pytest.importorskip('torch')
TOLERANCE = 5e-6


@pytest.fixture(scope='module', params=itertools.product(RELATIVES, (0.02, 0.3)), ids=str)
def reference(request, tmp_path_factory, config, tokenizer_of):
    """A random PyTorch model with a classifier, saved to disk, and what it says on one batch."""
    model_type, scale = request.param
    config = dataclasses.replace(relative(config, model_type), initializer_range=scale)
    directory = tmp_path_factory.mktemp('reference')
    model = in_pytorch(config, directory, tokenizer_of(model_type))
    batch = random_inputs(config, lengths=(11, 4, 7, 1), length=11, seed=5)
    pooled = []
    last = getattr(model.classifier, 'out_proj', model.classifier)
    last.register_forward_pre_hook(lambda module, inputs: pooled.extend(inputs))
    with torch.no_grad():
        output = model(**as_torch(config, batch))
    expected = {
        'hidden_states': np.stack([state.numpy() for state in output.hidden_states], axis=1),
        'attentions': np.stack([maps.numpy() for maps in output.attentions], axis=1),
        'pooled': pooled[0].numpy(),
        'logits': output.logits.numpy(),
    }
    return directory, batch, expected


@pytest.fixture(scope='module')
def output(reference):
    directory, batch, _ = reference
    model = from_pretrained(directory)
    return forward(model.bert, model.params, batch)


@pytest.mark.parametrize('what', ['hidden_states', 'attentions', 'pooled', 'logits'])
def test_equals_pytorch(reference, output, what):
    directory, _, expected = reference
    actual = np.asarray(getattr(output, what))
    assert actual.shape == expected[what].shape
    # Where LayerNorm comes first, hidden states are sums without a bound. Where a layer multiplies
    # two projections, so are what it normalises: 5.8e-6 from float64 here, 2.9e-6 in PyTorch.
    values = json.loads((directory / 'config.json').read_text())
    family = FAMILIES[read_config(values)['model_type']]
    rtol = 1e-6 if what == 'hidden_states' and (family.norm_first or family.gated) else 0
    np.testing.assert_allclose(actual, expected[what], atol=TOLERANCE, rtol=rtol)


def test_a_wrong_constant_would_be_noticed(reference):
    """The tolerance is tight enough for what shows at this scale."""
    directory, batch, expected = reference
    model = from_pretrained(directory)
    wrong = {0.02: {'layer_norm_eps': 1e-6}, 0.3: {'hidden_act': 'gelu_new'}}
    wrong = wrong[model.config.initializer_range]
    if model.config.model_type == 'distilbert':
        wrong['model_type'] = 'bert'  # DistilBERT's epsilon cannot be another.
    config = dataclasses.replace(model.config, **wrong)
    output = Bert(config).apply({'params': model.params}, **batch)
    moved = np.abs(np.asarray(output.hidden_states) - expected['hidden_states']).max()
    assert moved > 5 * TOLERANCE
