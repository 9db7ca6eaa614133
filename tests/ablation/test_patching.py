"""Patches of heads, compared with hooks in PyTorch and with one forward pass for each patch."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.attribution_patching import estimate_patches
from bert_secrets_jax.ablation.patching import Metric, patch
from tests.conftest import as_torch, random_params, relative
from tests.model.conftest import in_pytorch

CLEAN = ['the cat saw it', 'the dog ran and she saw a house .', 'he ran']
CORRUPTED = ['a dog chased he', 'a cat saw the bird liked new tree ,', 'it saw']
IN_PYTORCH = {
    'bert': ('bert.encoder.layer', 'attention.output.dense', 'attention.self.value'),
    'modernbert': ('model.layers', 'attn.Wo', None),
}


class InPyTorch:
    """A random model of PyTorch, in which a hook puts the context of a head in."""

    def __init__(self, config, directory, tokenizer):
        torch = pytest.importorskip('torch')
        self.config, self.model = config, in_pytorch(config, directory, tokenizer)
        layers, output, _ = IN_PYTORCH[config.model_type]
        self.outputs = [each.get_submodule(output) for each in self.model.get_submodule(layers)]
        self.torch = torch

    def run(self, batch, change=None):
        """Return logits and contexts [L][B, T, D]; `change(layer, context)` returns new ones."""
        seen = []

        def hook(layer):
            def before(module, inputs):
                context = inputs[0] if change is None else change(layer, inputs[0])
                seen.append(context)
                return (context, *inputs[1:])

            return before

        hooks = [each.register_forward_pre_hook(hook(n)) for n, each in enumerate(self.outputs)]
        logits = self.model(**as_torch(self.config, batch.inputs)).logits
        for each in hooks:
            each.remove()
        return logits, seen


def margin(logits, answers):
    """Return the logit of each answer less the greatest other one."""
    others = logits.clone()
    rows = range(len(logits))
    others[rows, answers] = -np.inf
    return logits[rows, answers] - others.max(dim=-1).values


@pytest.fixture(scope='module', params=IN_PYTORCH)
def both(request, config, tmp_path_factory, tokenizer):
    """A random model in PyTorch and here, and the pairs as batches."""
    directory = tmp_path_factory.mktemp('patched')
    config = dataclasses.replace(relative(config, request.param), initializer_range=0.3)
    reference = InPyTorch(config, directory, tokenizer)
    batches = [bs.encode(tokenizer, texts, buckets=[12])[0] for texts in (CLEAN, CORRUPTED)]
    return reference, bs.from_pretrained(directory), batches


def test_equals_hooks_in_pytorch(both):
    """Each head in both directions, at all tokens and at single ones."""
    reference, model, (clean, corrupted) = both
    torch, width = reference.torch, model.config.head_size
    all_at_once, each = (
        patch(model, CLEAN, CORRUPTED, positions=where) for where in ('all', 'each')
    )
    with torch.no_grad():
        answers = reference.run(clean)[0].argmax(dim=-1)
        for direction, host, donor in (
            ('denoising', corrupted, clean),
            ('noising', clean, corrupted),
        ):
            intact = margin(reference.run(host)[0], answers)
            lent = reference.run(donor)[1]
            moved = 0
            for layer, head, token in (
                (0, 1, None),
                (1, 2, 1),
                (1, 2, None),
                (2, 3, None),
                (2, 0, 3),
            ):
                part = np.s_[:, :] if token is None else np.s_[:, token]
                part = (*part, np.s_[head * width : (head + 1) * width])

                def change(number, context):
                    context = context.clone()
                    if number == layer:
                        context[part] = lent[layer][part]
                    return context

                expected = margin(reference.run(host, change)[0], answers) - intact
                found = getattr(each if token is not None else all_at_once, direction)
                found = found[:, layer, head] if token is None else found[:, layer, head, token]
                np.testing.assert_allclose(found, expected, atol=1e-5)
                moved = max(moved, float(expected.abs().max()))
            assert moved > 1e-2
