"""The shared parts of the tests of models: checkpoints on disk, and random models of PyTorch."""

import json

import numpy as np
import pytest
import safetensors.numpy

from bert_secrets_jax.model.config_json import write_config
from bert_secrets_jax.model.weights import save_pretrained


@pytest.fixture
def directory(tmp_path, pretrained):
    """The files of a small model with a classifier."""
    save_pretrained(pretrained, tmp_path / 'model')
    return tmp_path / 'model'


def set_json(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def rewrite(directory, change):
    """Put what `change` returns of the tensors of a folder in their place."""
    file = directory / 'model.safetensors'
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(file)), file)


def without_tensors(*parts):
    """Return a change of tensors that leaves out those with one of these parts in their names."""
    return lambda tensors: {
        name: tensor for name, tensor in tensors.items() if not any(part in name for part in parts)
    }


def of_real_tokens(config, inputs, *arrays):
    """Return what arrays [B, ..., T, X] have of real tokens, where padding may mean nothing.

    In PyTorch's DeBERTa, padding sees padding, and here real tokens; nothing reads it.
    """
    if config.model_type != 'deberta-v2':
        return arrays
    return [np.moveaxis(x, -2, 1)[inputs['attention_mask'].astype(bool)] for x in arrays]


def in_pytorch(config, directory, tokenizer):
    """Save a random PyTorch model whose weights have the range of its config, and return it."""
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    torch.manual_seed(0)
    values = write_config(config)
    settings = transformers.AutoConfig.for_model(
        **values, attn_implementation='eager', output_attentions=True, output_hidden_states=True
    )
    settings.num_labels = max(config.num_labels, 2)
    model = getattr(transformers, values['architectures'][0])(settings).eval()
    with torch.no_grad():
        # Biases and LayerNorm parameters start at 0 and 1, where mistakes in them are invisible.
        for name, weight in model.named_parameters():
            if name.endswith('bias') or 'norm' in name.lower():
                weight.add_(config.initializer_range * torch.randn_like(weight))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model
