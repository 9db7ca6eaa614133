"""Disabling every head in turn: PyTorch `transformers` and our naive loop against `bs.sweep`.

PyTorch runs one full forward pass per head, which hooks disable: with eager attention, with `sdpa`
and under `torch.compile` on the same batches, and on batches of 8 padded to one length, as the
authors and Michel et al. did. The naive loop is our model under `jit`, one mask at a time. Each
head costs these the same, so they are timed on a few and scaled up; the sweep always takes all.
"""

from collections.abc import Sequence

import jax
import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case, to_torch
from benchmarks.formulas import forward_operations, sweep_operations
from benchmarks.timing import Question, Way
from bert_secrets_jax.ablation.sweep import one_behind
from bert_secrets_jax.data.encoding import in_order, tokenize

TOLERANCE = 1e-4
# Rows of PyTorch's batches that are padded to one length.
_ROWS = 8


def by_hooks(model):
    """Return a function of inputs, layer and head: PyTorch's logits with that head disabled.

    Its map becomes the same weight on every token, so its context is their mean value.
    """

    def logits(inputs, layer: int, head: int):
        attention = model.bert.encoder.layer[layer].attention
        size = attention.self.attention_head_size
        columns = slice(head * size, (head + 1) * size)
        real = inputs['attention_mask'][..., None].float()
        weights = real / real.sum(1, keepdim=True)
        mean = None

        def keep(_, __, value):
            nonlocal mean
            mean = (value[..., columns] * weights).sum(1, keepdim=True)

        def replace(_, arguments):
            arguments[0][..., columns] = mean

        hooks = (
            attention.self.value.register_forward_hook(keep),
            attention.output.dense.register_forward_pre_hook(replace),
        )
        found = model(**inputs).logits
        for hook in hooks:
            hook.remove()
        return found

    return logits


def compiled(model):
    """Return the same function under `torch.compile`: one program, to which the mask is an input.

    The hooks are those of all layers, so that the program does not change with the head.
    """
    import torch

    now = {}

    def hook(number: int, attention):
        def keep(_, __, value):
            now[number] = (value * now['weights']).sum(1, keepdim=True)

        def replace(_, arguments):
            kept = now['mask'][number]
            return (arguments[0] * kept + now[number] * (1 - kept),)

        attention.self.value.register_forward_hook(keep)
        attention.output.dense.register_forward_pre_hook(replace)

    layers = model.bert.encoder.layer
    for number, layer in enumerate(layers):
        hook(number, layer.attention)

    @torch.compile(dynamic=True)
    def forward(inputs, mask):
        real = inputs['attention_mask'][..., None].float()
        now['weights'], now['mask'] = (real / real.sum(1, keepdim=True)).to(mask.dtype), mask
        return model(**inputs).logits

    def logits(inputs, layer: int, head: int):
        size = layers[layer].attention.self.attention_head_size
        shape = len(layers), model.config.hidden_size
        mask = torch.ones(shape, dtype=model.dtype, device=model.device)
        mask[layer, head * size : (head + 1) * size] = 0
        return forward(inputs, mask)

    return logits


def in_pytorch(model, logits, batches: Sequence[bs.Batch], masks: np.ndarray) -> np.ndarray:
    """Return the logits [M, E, C] of one full forward pass per head."""
    import torch

    with torch.no_grad():
        placed = [to_torch(batch, model) for batch in batches]
        found = [
            torch.cat([logits(inputs, *head) for inputs in placed]).float().cpu()
            for head in (np.argwhere(mask == 0)[0].tolist() for mask in masks)
        ]
    return in_order([batch.example for batch in batches], [torch.stack(found).numpy()], axis=1)


def questions(case: Case) -> list[Question]:
    """Return the question of the sweep."""
    config, length = case.ours.config, case.settings.length
    heads = bs.masks.single_heads(config)
    count = min(case.settings.heads, len(heads))
    some = np.linspace(0, len(heads) - 1, count).round().astype(int)
    scale = len(heads) / count

    def padded() -> list[bs.Batch]:
        encoded = tokenize(case.ours.tokenizer, case.examples, max_length=length)
        numbers = np.arange(len(case.examples))
        return [encoded.batch(part, length) for part in np.split(numbers, numbers[_ROWS::_ROWS])]

    def ours():
        pretrained, batches = case.ours, case.batches
        return lambda: bs.sweep(pretrained, batches, heads, baseline='uniform').logits

    def naive(masks):
        bert, params = case.ours.bert, case.ours.params
        placed = [jax.device_put(batch.inputs) for batch in case.batches]

        @jax.jit
        def forward(params, inputs, mask):
            output = bert.apply({'params': params}, **inputs, head_mask=mask, baseline='uniform')
            return output.logits

        def run():
            calls = ((None, forward(params, inputs, mask)) for mask in masks for inputs in placed)
            logits = np.concatenate([found for _, found in one_behind(calls)])
            logits = logits.reshape(len(masks), -1, logits.shape[-1])
            return in_order([batch.example for batch in case.batches], [logits], axis=1)

        return run

    def theirs(attention, make, batches):
        def prepare():
            model = case.theirs(attention, classifier=True)
            logits, given = make(model), batches()
            return lambda: in_pytorch(model, logits, given, heads[some])

        return prepare

    def agree(found):
        swept = found['ours']
        others = {name: found[name] for name in found.keys() - {'ours', PLAIN}}
        return case.agreed(others, swept[some], TOLERANCE) | {
            'heads move logits by up to': float(np.abs(swept - found[PLAIN]).max()),
            'heads that are timed by all but the sweep': count,
            'plain passes for each head that the operations allow': (
                sweep_operations(config, case.batches)
                / (forward_operations(config, case.batches) * len(heads))
            ),
        }

    def torch_way(attention, make, batches, *, peer=True):
        operations = len(heads) * forward_operations(config, batches())
        return Way(theirs(attention, make, batches), scale, operations, True, peer)

    same = lambda: case.filled
    plain = len(heads) * forward_operations(config, case.batches)
    return [
        Question(
            name='disabling every head in turn',
            unit='heads x examples',
            amount=len(heads) * len(case.examples),
            about=case.about,
            agree=agree,
            ways={
                'ours': Way(ours, operations=sweep_operations(config, case.batches)),
                'PyTorch, eager': torch_way('eager', by_hooks, same),
                'PyTorch, sdpa': torch_way('sdpa', by_hooks, same),
                'PyTorch, compiled': torch_way('sdpa', compiled, same),
                f'PyTorch, padded to {length}': torch_way('eager', by_hooks, padded, peer=False),
                'our naive loop': Way(lambda: naive(heads[some]), scale, plain),
                PLAIN: Way(lambda: naive([None]), len(heads), plain),
            },
        )
    ]


PLAIN = 'a plain pass for each head'
