"""The shared parts of the tests of models: checkpoints on disk, and random models of PyTorch."""

import json
import math
import re

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
    if config.model_type == 'jina_bert':
        return _jina_bert(config, values, directory, tokenizer)
    settings = transformers.AutoConfig.for_model(
        **values, attn_implementation='eager', output_attentions=True, output_hidden_states=True
    )
    settings.num_labels = max(config.num_labels, 2)
    model = getattr(transformers, values['architectures'][0])(settings).eval()
    with torch.no_grad():
        _disturb(model, config.initializer_range)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model


def _disturb(model, scale):
    """Biases and LayerNorm parameters start at 0 and 1, where mistakes in them are invisible."""
    import torch

    for name, weight in model.named_parameters():
        if name.endswith('bias') or 'norm' in name.lower():
            weight.add_(scale * torch.randn_like(weight))


def _jina_bert(config, values, directory, tokenizer):
    """Do the same for jinaai/jina-bert-implementation, which `transformers` does not have.

    Its parts that are not BERT's are written here from what that repository computes.
    """
    import torch
    import transformers

    class Glu(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width, inner = config.hidden_size, config.intermediate_size
            self.gated_layers = torch.nn.Linear(width, 2 * inner, bias=False)
            self.wo = torch.nn.Linear(inner, width)
            self.layernorm = torch.nn.LayerNorm(width, eps=config.layer_norm_eps)

        def forward(self, hidden, residual):
            gated, other = self.gated_layers(hidden).chunk(2, dim=-1)
            fed = self.wo(torch.nn.functional.gelu(gated) * other)
            return self.layernorm(fed + residual)

    def slopes(heads):
        closest = 2 ** math.floor(math.log2(heads))
        start = 2 ** -(2 ** -(math.log2(closest) - 3))
        paper = [start * start**head for head in range(closest)]
        return paper + slopes(2 * closest)[::2][: heads - closest] if heads > closest else paper

    def with_distance(_, inputs, options):
        hidden, mask = inputs[0], inputs[1] if len(inputs) > 1 else options['attention_mask']
        at = torch.arange(hidden.shape[1])
        far = (at[:, None] - at).abs() * -torch.tensor(slopes(config.num_attention_heads))[
            :, None, None
        ]
        return (hidden,), {**options, 'attention_mask': mask + far[None]}

    known = {
        key: value
        for key, value in values.items()
        if key not in ('feed_forward_type', 'position_embedding_type')
    }
    settings = transformers.BertConfig(
        **known, attn_implementation='eager', output_attentions=True, output_hidden_states=True
    )
    settings.num_labels = max(config.num_labels, 2)
    model = getattr(transformers, values['architectures'][0].removeprefix('Jina'))(settings).eval()
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
        for layer in model.bert.encoder.layer:
            layer.intermediate, layer.output = torch.nn.Identity(), Glu()
            torch.nn.init.normal_(layer.output.gated_layers.weight, std=config.initializer_range)
            torch.nn.init.normal_(layer.output.wo.weight, std=config.initializer_range)
            layer.attention.self.register_forward_pre_hook(with_distance, with_kwargs=True)
        _disturb(model, config.initializer_range)
    tensors = {
        re.sub(r'(layer\.\d+)\.output\.', r'\1.mlp.', name): weight.detach().numpy()
        for name, weight in model.named_parameters()
        if 'position_embeddings' not in name
    }
    safetensors.numpy.save_file(tensors, directory / 'model.safetensors')
    (directory / 'config.json').write_text(json.dumps(values))
    tokenizer.save_pretrained(directory)
    return model
