"""Divergences between all heads: a loop over heads, as the authors' code has it, against ours.

All get the same maps. The loop is, for each text and each head, the divergence from all heads at
once (Clark et al. 2019, the code beside section 6): in NumPy, as published, and in PyTorch, which
uses all cores. Ours is the statistic of the streaming pass (`measure/statistics.py`).
"""

import functools

import jax
import numpy as np

from benchmarks.cases import Case
from benchmarks.timing import Question, Way
from bert_secrets_jax.measure.statistics import SMOOTHING, head_divergences


def by_a_loop(maps, log, zeros):
    """Return the divergences [H, H], added up over all tokens of all texts [L, N, T, T].

    Args:
      maps: The maps of each text, without padding.
      log: The logarithm of their library.
      zeros: A function that makes an array of zeros.
    """
    heads = maps[0].shape[0] * maps[0].shape[1]
    total = zeros((heads, heads))
    for of_text in maps:
        length = of_text.shape[-1]
        rows = of_text.reshape(heads, length, length)
        for head in range(heads):
            one, all_of_them = (
                (1 - SMOOTHING) * each + SMOOTHING / length for each in (rows[head][None], rows)
            )
            middle = (one + all_of_them) / 2
            divergence = one * log(one / middle) + all_of_them * log(all_of_them / middle)
            total[head] += divergence.sum((1, 2)) / 2
    return total


def questions(case: Case) -> list[Question]:
    """Return the question of all divergences."""
    count, length = case.settings.few, case.settings.length

    @functools.cache
    def inputs():
        """Return the batches, their maps, and the maps of each text without padding."""
        # Long texts of one length, so that a single program is compiled.
        batches = case.alike(count, length)
        bert, params = case.ours.bert, case.ours.params
        outputs = [bert.apply({'params': params}, **batch.inputs).attentions for batch in batches]
        texts = [
            np.asarray(output[row, :, :, :longest, :longest])
            for batch, output in zip(batches, outputs, strict=True)
            for row, longest in enumerate(batch.lengths)
            if batch.example[row] >= 0
        ]
        return batches, outputs, texts

    def ours():
        batches, outputs, _ = inputs()
        tokens = [batch.marks['token'] for batch in batches]
        shared = jax.jit(
            lambda maps, token: jax.lax.map(
                lambda each: head_divergences(each[0], {'token': each[1]})[0], (maps, token)
            )
        )

        def run():
            total = 0
            for output, token in zip(outputs, tokens, strict=True):
                found = np.asarray(shared(output, token), np.float64)
                total = total + (found * token.sum(axis=1)[:, None, None, None]).sum(axis=0)
            return total.reshape(total.shape[-1], -1)

        return run

    def in_numpy():
        maps = inputs()[2]
        return lambda: by_a_loop(maps, np.log, np.zeros)

    def in_pytorch():
        import torch

        device = 'cpu' if jax.default_backend() == 'cpu' else 'cuda'
        maps = [torch.from_numpy(each.copy()).to(device) for each in inputs()[2]]
        zeros = functools.partial(torch.zeros, dtype=torch.float64, device=device)
        return lambda: by_a_loop(maps, torch.log, zeros).cpu().numpy()

    def agree(found):
        for name, values in found.items():
            np.testing.assert_allclose(values, found['ours'], 0, 1e-5 * count * length, name)
        return {'equal to, nats per token': 1e-5}

    return [
        Question(
            name='divergences between all heads',
            unit='texts',
            amount=count,
            about=f'maps of {count} texts of {length} tokens',
            agree=agree,
            ways={
                'ours': Way(ours),
                'a loop over heads in NumPy': Way(in_numpy, peer=True),
                'a loop over heads in PyTorch': Way(in_pytorch, in_pytorch=True, peer=True),
            },
        )
    ]
