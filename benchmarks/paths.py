"""A patch of a head, and the effect of a path, compared with the pass that a loop of hooks needs.

All heads are patched from one text into another, in both directions. Times are those of one head in
one direction, with its part in what all heads share. For paths, these are the senders.
"""

import functools

import jax
import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case, to_torch, wait_for
from benchmarks.timing import Question, Way


def questions(case: Case) -> list[Question]:
    """Return a question for patches, and one for each kind of receiver of a path."""
    config = case.ours.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    words = case.settings.length - 2
    vocabulary = filter(str.isascii, case.ours.tokenizer.get_vocab())
    known = sorted(word for word in vocabulary if word.isalpha() and word.islower())
    texts = [[' '.join([word] * words)] * case.settings.few for word in known[:2]]
    encode = functools.partial(bs.encode, case.ours.tokenizer, texts[0], max_length=words + 2)
    paths = functools.partial(bs.patch_paths, case.ours, *texts)
    to_last = functools.partial(
        paths, senders=[(layer, 0) for layer in range(layers - 1)], into='query'
    )
    last = [(layers - 1, head) for head in range(heads)]
    works = {
        'patching a head': (layers * heads, functools.partial(bs.patch, case.ours, *texts)),
        'a path to the logits': (layers * heads, paths),
        'a path to a query': (layers - 1, functools.partial(to_last, receivers=last[:1])),
        f'paths to {heads} queries': (layers - 1, functools.partial(to_last, receivers=last)),
    }

    def ours():
        (batch,), model = encode(), case.ours
        forward = jax.jit(lambda params, given: model.bert.apply({'params': params}, **given))
        given = jax.device_put(batch.inputs)
        return lambda: np.asarray(forward(model.params, given).logits)

    def theirs():
        import torch

        model, (batch,) = case.theirs('sdpa', classifier=True), encode()
        given = to_torch(batch, model)

        def run():
            with torch.no_grad():
                logits = model(**given).logits
            wait_for(model)
            return logits.cpu().numpy()

        return run

    def agree(found):
        if 'PyTorch, a pass' in found:
            passes = found['a pass'], found['PyTorch, a pass']
            np.testing.assert_allclose(*(each[: case.settings.few] for each in passes), 0, 1e-4)
        return {'passes agree to': 1e-4}

    passes = {'a pass': Way(ours), 'PyTorch, a pass': Way(theirs, in_pytorch=True, peer=True)}
    return [
        Question(
            name=name,
            unit='heads',
            amount=1,
            about=f'{case.settings.few} pairs of {words + 2} tokens, one direction',
            agree=agree,
            ways={'ours': Way(lambda work=work: work, scale=1 / (2 * count)), **passes},
        )
        for name, (count, work) in works.items()
    ]
