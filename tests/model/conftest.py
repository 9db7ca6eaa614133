"""The shared parts of the tests of models: checkpoints on disk, and random models of PyTorch."""

import json
import math

import jax
import numpy as np
import pytest
import safetensors.numpy

from bert_secrets_jax.model.config_json import write_config
from bert_secrets_jax.model.weights import save_pretrained

# A model without a head.
BARE = {'label_names': (), 'add_pooler': False}


@pytest.fixture
def directory(tmp_path, pretrained):
    """The files of a small model with a classifier."""
    save_pretrained(pretrained, tmp_path / 'model')
    return tmp_path / 'model'


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


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
    model = getattr(transformers, values['architectures'][0].replace('JinaBert', 'Bert'))(
        settings
    ).eval()
    if config.family.code:
        as_jina(model, config)
    with torch.no_grad():
        # Biases and LayerNorm parameters start at 0 and 1, where mistakes in them are invisible.
        for name, weight in model.named_parameters():
            if name.endswith('bias') or 'norm' in name.lower():
                weight.add_(config.initializer_range * torch.randn_like(weight))
    model.save_pretrained(directory)
    if config.family.code:
        (directory / 'config.json').write_text(json.dumps(values))
    tokenizer.save_pretrained(directory)
    return model


def as_jina(model, config):
    """Make of a BERT what jinaai/jina-bert-implementation computes, written from its code."""
    import torch
    from torch.nn import LayerNorm, Linear, Module

    class Glu(Module):
        def __init__(self):
            super().__init__()
            width, inner = config.hidden_size, config.intermediate_size
            self.gated_layers, self.wo = Linear(width, 2 * inner, bias=False), Linear(inner, width)
            self.layernorm = LayerNorm(width, eps=config.layer_norm_eps)
            for layer in (self.gated_layers, self.wo):
                torch.nn.init.normal_(layer.weight, std=config.initializer_range)

        def forward(self, hidden):
            gated, other = self.gated_layers(hidden).chunk(2, dim=-1)
            return self.layernorm(hidden + self.wo(torch.nn.functional.gelu(gated) * other))

    class NoPositions(Module):
        def forward(self, _):
            return 0.0

    def slopes(heads):
        closest = 2 ** math.floor(math.log2(heads))
        start = 2 ** -(2 ** -(math.log2(closest) - 3))
        paper = [start * start**head for head in range(closest)]
        return paper + slopes(2 * closest)[::2][: heads - closest] if heads > closest else paper

    def fall(_, hidden, given):
        at = torch.arange(hidden[0].shape[1])
        falls = torch.tensor(slopes(config.num_attention_heads))[:, None, None]
        mask = given['attention_mask'] - falls * (at[:, None] - at).abs()
        return hidden, {**given, 'attention_mask': mask}

    model.bert.embeddings.position_embeddings = NoPositions()
    for layer in model.bert.encoder.layer:
        del layer.intermediate, layer.output
        layer.mlp = Glu()
        layer.feed_forward_chunk = layer.mlp.forward
        layer.attention.self.register_forward_pre_hook(fall, with_kwargs=True)
