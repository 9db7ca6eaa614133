"""A forward pass that returns all maps: PyTorch `transformers` against `Bert.apply`.

PyTorch runs eager attention, the only one that returns maps, as it is and under `torch.compile`, on
the same batches.
"""

import jax
import numpy as np

from benchmarks.cases import Case, to_torch, wait_for
from benchmarks.formulas import forward_operations
from benchmarks.timing import Question, Way

# Examples of the last batch whose maps are compared: those of all take gigabytes.
_CHECKED = 16


def questions(case: Case) -> list[Question]:
    """Return the question of the forward pass."""

    def ours():
        bert, params = case.ours.bert, case.ours.params
        placed = [jax.device_put(batch.inputs) for batch in case.batches]
        forward = jax.jit(
            lambda params, inputs: bert.apply({'params': params}, **inputs).attentions
        )

        def run():
            for inputs in placed:
                maps = forward(params, inputs)
            return jax.block_until_ready(maps)

        return run

    def in_pytorch(compiled: bool):
        import torch

        model = case.theirs()
        forward = torch.compile(model, dynamic=True) if compiled else model
        placed = [to_torch(batch, model) for batch in case.filled]

        def run():
            with torch.no_grad():
                for inputs in placed:
                    maps = forward(**inputs, output_attentions=True).attentions
            wait_for(model)
            return maps

        return run

    def agree(found):
        real = case.filled[-1].attention_mask[:_CHECKED, None, None, :, None]
        ours = np.asarray(found.pop('ours')[: len(real)]) * real
        maps = {
            name: np.stack([each[: len(real)].float().cpu().numpy() for each in maps], 1) * real
            for name, maps in found.items()
        }
        return case.agreed(maps, ours, 1e-5)

    operations = forward_operations(case.ours.config, case.batches)
    theirs = forward_operations(case.ours.config, case.filled)
    return [
        Question(
            name='forward pass with all maps',
            unit='examples',
            amount=len(case.examples),
            about=case.about,
            agree=agree,
            ways={
                'ours': Way(ours, operations=operations),
                'PyTorch, eager': Way(lambda: in_pytorch(False), 1, theirs, True, True),
                'PyTorch, compiled': Way(lambda: in_pytorch(True), 1, theirs, True, True),
            },
        )
    ]
