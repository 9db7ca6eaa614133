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
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.config_json import read_config
from bert_secrets_jax.model.weights import from_pretrained
from tests.conftest import RELATIVES, as_torch, forward, random_inputs, relative
from tests.model.conftest import in_pytorch, of_real_tokens

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
        rounded = _outputs(model, config, batch, pooled)
        expected = rounded
        if model_type != 'modernbert':  # its padding is NaN in float64
            expected = _outputs(model.double(), config, batch, pooled)
    # Where PyTorch itself rounds by more than the tolerance, we may err as much, and no more.
    atol = {name: max(TOLERANCE, np.abs(rounded[name] - expected[name]).max()) for name in expected}
    return directory, batch, expected, atol


def _outputs(model, config, batch, pooled):
    output = model(**as_torch(config, batch))
    return {
        'hidden_states': np.stack([state.numpy() for state in output.hidden_states], axis=1),
        'attentions': np.stack([maps.numpy() for maps in output.attentions], axis=1),
        'pooled': pooled.pop().numpy(),
        'logits': output.logits.numpy(),
    }


@pytest.fixture(scope='module')
def output(reference):
    directory, batch, *_ = reference
    model = from_pretrained(directory)
    return forward(model.bert, model.params, batch)


@pytest.mark.parametrize('what', ['hidden_states', 'attentions', 'pooled', 'logits'])
def test_equals_pytorch(reference, output, what):
    directory, batch, expected, atol = reference
    actual, wanted = np.asarray(getattr(output, what)), expected[what]
    assert actual.shape == wanted.shape
    config = json.loads((directory / 'config.json').read_text())
    config = BertConfig(**read_config(config), add_pooler=False)
    if what in ('hidden_states', 'attentions'):
        actual, wanted = of_real_tokens(config, batch, actual, wanted)
    rounding = atol[what]
    # Where LayerNorm comes first, or a layer multiplies two projections, states are sums without a
    # bound. Small elements, differences of large ones, round as these do: here by up to 7.3e-6.
    if what == 'hidden_states' and (config.family.norm_first or config.family.gated):
        rounding += 1e-6 * np.abs(wanted).max()
    np.testing.assert_allclose(actual, wanted, atol=rounding, rtol=0)


def test_a_wrong_constant_would_be_noticed(reference):
    """The tolerance is tight enough for what shows at this scale."""
    directory, batch, expected, _ = reference
    model = from_pretrained(directory)
    wrong = {0.02: {'layer_norm_eps': 1e-6}, 0.3: {'hidden_act': 'gelu_new'}}
    wrong = wrong[model.config.initializer_range]
    if model.config.model_type == 'distilbert':
        wrong['model_type'] = 'bert'  # DistilBERT's epsilon cannot be another.
    config = dataclasses.replace(model.config, **wrong)
    output = Bert(config).apply({'params': model.params}, **batch)
    moved = np.abs(np.asarray(output.hidden_states) - expected['hidden_states']).max()
    assert moved > 5 * TOLERANCE
