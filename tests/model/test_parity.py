"""Law 1: equal to Hugging Face's PyTorch BERT, at two scales of the weights.

At BERT's initial scale (0.02) a wrong LayerNorm epsilon shows and a wrong GELU does not; at 0.3
it is the other way round. One scale alone passes a wrong model.
"""

import dataclasses

import jax
import numpy as np
import pytest

from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import from_pretrained
from tests.conftest import random_inputs

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
TOLERANCE = 5e-6


@pytest.fixture(scope='module', params=[0.02, 0.3], ids=['std0.02', 'std0.3'])
def reference(request, tmp_path_factory, tokenizer):
    """A random PyTorch BERT with a classifier, saved to disk, and what it says on one batch."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        num_labels=3,
        initializer_range=request.param,
        attn_implementation='eager',
    )
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        # Biases and LayerNorm parameters start at 0 and 1, where mistakes in them are invisible.
        for name, weight in model.named_parameters():
            if name.endswith('bias') or 'LayerNorm' in name:
                weight.add_(request.param * torch.randn_like(weight))
    directory = tmp_path_factory.mktemp('reference')
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    batch = random_inputs(config, lengths=(11, 4, 7, 1), length=11, seed=5)
    with torch.no_grad():
        encoded = {name: torch.tensor(array, dtype=torch.long) for name, array in batch.items()}
        output = model.bert(
            encoded['input_ids'],
            token_type_ids=encoded['token_type_ids'],
            attention_mask=encoded['attention_mask'],
            output_attentions=True,
            output_hidden_states=True,
        )
        logits = model.classifier(output.pooler_output)
    expected = {
        'hidden_states': np.stack([state.numpy() for state in output.hidden_states], axis=1),
        'attentions': np.stack([maps.numpy() for maps in output.attentions], axis=1),
        'pooled': output.pooler_output.numpy(),
        'logits': logits.numpy(),
    }
    return directory, batch, expected


@pytest.mark.parametrize('what', ['hidden_states', 'attentions', 'pooled', 'logits'])
def test_equals_pytorch(reference, what):
    directory, batch, expected = reference
    model = from_pretrained(directory)
    output = jax.jit(model.bert.apply)({'params': model.params}, **batch)
    actual = np.asarray(getattr(output, what))
    assert actual.shape == expected[what].shape
    np.testing.assert_allclose(actual, expected[what], atol=TOLERANCE, rtol=0)


def test_a_wrong_constant_would_be_noticed(reference):
    """The tolerance is tight enough for what shows at this scale."""
    directory, batch, expected = reference
    model = from_pretrained(directory)
    wrong = {0.02: {'layer_norm_eps': 1e-6}, 0.3: {'hidden_act': 'gelu_new'}}
    config = dataclasses.replace(model.config, **wrong[model.config.initializer_range])
    output = Bert(config).apply({'params': model.params}, **batch)
    moved = np.abs(np.asarray(output.hidden_states) - expected['hidden_states']).max()
    assert moved > 5 * TOLERANCE
