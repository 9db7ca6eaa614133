"""A model before and after half of its heads are removed: speed and memory.

Two sets of heads are removed: the same number from each layer, and the same number of all heads at
random, which leaves layers of different sizes. The model is run in four ways: cut; whole; under the
mask, which saves nothing; and whole with its layers apart, which shows what is gained by that
alone. Beside them stands PyTorch, whole. Michel et al. (2019) report for BERT-base with half of its
heads, at 128 tokens on a GPU, +1.8 % at batch 1, +2.7 % at 4, +17.5 % at 16 and +17.6 % at 64.
"""

import jax
import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case, to_torch, wait_for
from benchmarks.formulas import forward_operations
from benchmarks.timing import Question, Way
from bert_secrets_jax.names import counted
from bert_secrets_jax.pruning.removal import cut


def half_of_each(layers: int, heads: int) -> np.ndarray:
    """Return a mask [L, N] that removes every other head."""
    return np.tile(np.arange(heads) % 2, (layers, 1))


def half_of_all(layers: int, heads: int, *, seed: int) -> np.ndarray:
    """Return a mask [L, N] that removes half of all heads at random."""
    mask = np.ones(layers * heads, int)
    mask[np.random.default_rng(seed).permutation(mask.size)[: mask.size // 2]] = 0
    return mask.reshape(layers, heads)


def questions(case: Case) -> list[Question]:
    """Return a question for each set of heads and size of a batch."""
    shape = case.ours.config.num_hidden_layers, case.ours.config.num_attention_heads
    masks = {
        'half of the heads of each layer': half_of_each(*shape),
        'half of all heads at random': half_of_all(*shape, seed=0),
    }
    return [
        _question(case, name, mask, size)
        for name, mask in masks.items()
        for size in case.settings.batch_sizes
    ]


def _question(case: Case, name: str, mask: np.ndarray, size: int) -> Question:
    length, config = case.settings.length, case.ours.config

    def inputs() -> bs.Batch:
        (batch,) = case.alike(size, length, tokens=size * length)
        return batch

    def ours(change, head_mask=None):
        def prepare():
            model, given = change(case.ours), jax.device_put(inputs().inputs)

            @jax.jit
            def forward(params, given, head_mask):
                output = model.bert.apply(
                    {'params': params}, **given, head_mask=head_mask, baseline='zero'
                )
                return output.logits

            return lambda: np.asarray(forward(model.params, given, head_mask))

        return prepare

    def theirs(attention):
        def prepare():
            import torch

            model = case.theirs(attention, classifier=True)
            given = to_torch(inputs(), model)

            def run():
                with torch.no_grad():
                    logits = model(**given).logits
                wait_for(model)
                return logits.cpu().numpy()

            return run

        return prepare

    def agree(found):
        for pair in (('ours', 'masked'), ('whole', 'apart'), ('whole', 'PyTorch, whole')):
            if set(pair) <= found.keys():
                np.testing.assert_allclose(*(found[each] for each in pair), 0, 1e-4)
        return {'equal to': 1e-4, 'heads left': mask.sum(axis=1).tolist()}

    whole = forward_operations(config, [inputs()])
    attention = 4 * config.hidden_size**2 + 2 * length * config.hidden_size
    saved = (mask == 0).mean() * size * length * config.num_hidden_layers * attention
    return Question(
        name=f'{name} removed, batches of {size}',
        unit='examples',
        amount=size,
        about=f'{counted(size, "input")} of {length} tokens',
        agree=agree,
        ways={
            'ours': Way(ours(lambda model: bs.remove_heads(model, mask)), operations=whole - saved),
            'whole': Way(ours(lambda model: model), operations=whole),
            'masked': Way(ours(lambda model: model, mask.astype(np.float32)), operations=whole),
            'apart': Way(
                ours(lambda model: cut(model, np.ones_like(mask, bool))), operations=whole
            ),
            'PyTorch, whole': Way(theirs('sdpa'), 1, whole, True, True),
        },
    )
