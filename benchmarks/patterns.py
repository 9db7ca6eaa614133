"""Classes of all heads' maps over a corpus: PyTorch against `bs.collect`.

PyTorch runs eager BERT on the same length-sorted batches and hands its maps, as arrays, to the same
classifier: that is how somebody with a PyTorch model would use it. Two maps of a thousand may fall
into another class by rounding: the share is told.
"""

import jax
import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case, to_torch
from benchmarks.timing import Question, Way


def from_pytorch(model, classify, batches: list[bs.Batch]) -> np.ndarray:
    """Return the share of maps that are of each class, [L, N, C]."""
    import torch

    total, count = 0, 0
    for batch in batches:
        with torch.no_grad():
            maps = model(**to_torch(batch, model), output_attentions=True).attentions
        classes, _ = classify(torch.stack(maps, dim=1).cpu().numpy(), batch.marks)
        total = total + np.asarray(classes)[batch.example >= 0].sum(axis=0)
        count += batch.size
    return total / count


def questions(case: Case) -> list[Question]:
    """Return the question of all classes."""
    pattern = bs.patterns.pattern(bs.patterns.load_classifier())

    def collect(name, statistic):
        pretrained, batches = case.ours, case.batches
        return lambda: bs.collect(pretrained, batches, {name: statistic})[name].mean

    def theirs():
        model, classify = case.theirs(), jax.jit(jax.vmap(pattern))
        return lambda: from_pytorch(model, classify, case.batches)

    def agree(found):
        others = {name: each for name, each in found.items() if each.shape == found['ours'].shape}
        # Half of the sum, since a map that leaves one class enters another.
        differ = {
            name: float(np.abs(each - found['ours']).sum() / 2 / found['ours'].sum())
            for name, each in others.items()
        }
        # So few are what rounding may do; more is a mistake.
        assert max(differ.values()) < 0.002, differ
        return {'greatest share of classes that differ': max(differ.values())}

    config = case.ours.config
    heads = config.num_hidden_layers * config.num_attention_heads
    return [
        Question(
            name='classes of the maps of all heads',
            unit='maps',
            amount=len(case.examples) * heads,
            about=case.about,
            agree=agree,
            ways={
                'ours': Way(lambda: collect('pattern', pattern)),
                'PyTorch, our classifier': Way(theirs, in_pytorch=True, peer=True),
                'ours, without classes': Way(lambda: collect('sep', bs.statistics.to_sep)),
            },
        )
    ]
