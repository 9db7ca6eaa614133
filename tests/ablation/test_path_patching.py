"""Paths from head to head and to the logits, compared with hooks in PyTorch."""

import functools
import itertools

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.encoder import PROJECTIONS
from bert_secrets_jax.model.weights import Pretrained
from tests.ablation.test_patching import (
    CLEAN,
    CORRUPTED,
    DIRECTIONS,
    both,  # noqa: F401  (a fixture)
    margin,
    replaced,
)
from tests.conftest import RELATIVES, random_params, rarely, relative

# By type, the modules of a layer of PyTorch that make queries, keys and values, and where in these.
PROJECTED = {
    'bert': {name: (f'attention.self.{name}', 0) for name in PROJECTIONS},
    'deberta-v2': {name: (f'attention.self.{name}_proj', 0) for name in PROJECTIONS},
    'roformer': {name: (f'attention.self.{name}', 0) for name in PROJECTIONS},
    'modernbert': {name: ('attn.Wqkv', at) for at, name in enumerate(PROJECTIONS)},
}
SENDERS, RECEIVERS = [(0, 1), (1, 2), (2, 3)], [(2, 1), (1, 3), (2, 0)]
TEXTS = ['the cat and dog ran', 'a big red house'], ['the dog and cat ran', 'a red big house']
PARTS = {'input': PROJECTIONS} | {name: (name,) for name in PROJECTIONS}


def projected(reference, names, layer, head, run, put=None):
    """Run PyTorch's model; return logits and the named vectors of a head, which `put` replaces."""
    found, hooks, width = {}, [], reference.config.head_size
    for name in names:
        module, place = PROJECTED[reference.config.model_type][name]
        start = place * reference.config.hidden_size + head * width
        part = np.s_[..., start : start + width]

        def after(module, inputs, output, name=name, part=part):
            found[name] = output[part].clone()
            if put is not None:
                output = output.clone()
                output[part] = put[name]
            return output

        module = reference.layers[layer].get_submodule(module)
        hooks.append(module.register_forward_hook(after))
    logits = run()[0]
    for each in hooks:
        each.remove()
    return logits, found


def frozen(own, lent, sender, width):
    """Return a change that makes all heads do as in a run, but for one sender."""
    layer, head = sender
    part = np.s_[..., head * width : (head + 1) * width]
    return lambda number, context: replaced(lent, layer, part, number, own[number])


@pytest.mark.parametrize('into', rarely(['logits', *PARTS], often=['logits', 'input', 'key']))
def test_paths_equal_hooks_in_pytorch(both, into):  # noqa: F811
    torch = pytest.importorskip('torch')
    reference, model, batches, answers = both
    if into == 'logits':
        receivers, paths = [None], bs.patch_paths(model, CLEAN, CORRUPTED)
    elif model.config.model_type in PROJECTED:
        receivers = RECEIVERS
        paths = bs.patch_paths(model, CLEAN, CORRUPTED, receivers=receivers, into=into)
    else:
        pytest.skip('no module of PyTorch has the keys of one head, which heads share')
    for direction, (host, donor) in DIRECTIONS.items():
        run, found = functools.partial(reference.run, batches[host]), getattr(paths, direction)
        with torch.no_grad():
            logits, own, _ = run()
            lent = reference.run(batches[donor])[1]
            for sender, (number, receiver) in itertools.product(SENDERS, enumerate(receivers)):
                change = frozen(own, lent, sender, model.config.head_size)
                if receiver is None:
                    patched, changed = run(change)[0], found[:, *sender]
                else:
                    changed = found[:, number, *sender]
                    if receiver[0] <= sender[0]:
                        assert np.isnan(changed).all()
                        continue
                    which = reference, PARTS[into], *receiver
                    _, sent = projected(*which, functools.partial(run, change))
                    patched, _ = projected(*which, run, put=sent)
                expected = margin(patched, answers) - margin(logits, answers)
                np.testing.assert_allclose(changed, expected, atol=1e-5)
                assert expected.abs().max() > (1e-3 if receiver is None else 1e-4)


@pytest.mark.parametrize('model_type', RELATIVES)
def test_laws_of_every_type(config, tokenizer_of, model_type):
    """The last layer has no other path to the logits; the same text changes nothing."""
    bert = Bert(relative(config, model_type))
    model = Pretrained(bert, random_params(bert), tokenizer_of(model_type))
    given = {'answers': [0, 1], 'metric': 'logit'}
    paths, patched = (f(model, *TEXTS, **given) for f in (bs.patch_paths, bs.patch))
    for direction in DIRECTIONS:
        direct, whole = getattr(paths, direction), getattr(patched, direction)
        np.testing.assert_allclose(direct[:, -1], whole[:, -1], atol=1e-6)
        assert np.abs(direct[:, 0] - whole[:, 0]).max() > 1e-3
        for receivers in ('logits', RECEIVERS):
            same = bs.patch_paths(model, TEXTS[0], TEXTS[0], receivers=receivers, **given)
            assert np.nanmax(np.abs(getattr(same, direction))) < 1e-6
    np.testing.assert_array_equal(paths.clean, patched.clean)


@pytest.mark.parametrize('receivers', ['logits', RECEIVERS])
def test_padding_chunks_and_the_choice_of_senders_change_nothing(pretrained, receivers):
    """Each pair alone, with no padding; calls of a run or two; some senders; equal texts."""
    given = {'receivers': receivers, 'answers': [0, 1, 0], 'metric': 'logit'}
    whole = bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given)
    small = bs.Compute(chunk_tokens=80)
    chunked = bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given, compute=small)
    np.testing.assert_allclose(chunked.noising, whole.noising, atol=1e-5)
    short = given | {'answers': [0], 'senders': [(0, 2), (1, 0), (0, 3)]}
    alone = bs.patch_paths(pretrained, CLEAN[2:], CORRUPTED[2:], **short)
    found, expected = alone.denoising[0], whole.denoising[2]
    asked = np.zeros_like(found, bool)
    asked[..., [0, 1, 0], [2, 0, 3]] = True
    np.testing.assert_allclose(found, np.where(asked, expected, np.nan), atol=1e-5)
    assert np.nanmax(np.abs(found)) > 1e-4


def test_what_has_no_path_is_named(pretrained):
    for given, said in (
        ({'into': 'keys'}, "into='keys' must be"),
        ({'into': 'key'}, "into='key' is of heads that receive"),
        ({'receivers': 'logit'}, "receivers='logit' must be 'logits'"),
        ({'receivers': [(0, 1)]}, 'receiver L1-H2 is not reached'),
        ({'receivers': [(2, 1), (1, 0)], 'senders': [(1, 2)]}, 'receiver L2-H1 is not reached'),
        ({'receivers': []}, 'There are no receivers'),
        ({'senders': [(0, 4)]}, r'\(0, 4\), which is no head: .* \(0, 0\) is L1-H1, .* is L\d-H4'),
    ):
        with pytest.raises(ValueError, match=said):
            bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given)
