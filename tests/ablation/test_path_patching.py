"""Paths from head to head and to the logits, compared with hooks in PyTorch."""

import functools

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.ablation.test_patching import (
    CLEAN,
    CORRUPTED,
    DIRECTIONS,
    HIDDEN,
    WORDS,
    both,  # noqa: F401  (a fixture)
    margin,
    replaced,
)
from tests.conftest import forward

# By type, the modules of a layer of PyTorch that make queries, keys and values, and where in these.
PROJECTED = {
    'bert': {name: (f'attention.self.{name}', 0) for name in ('query', 'key', 'value')},
    'modernbert': {name: ('attn.Wqkv', at) for at, name in enumerate(('query', 'key', 'value'))},
}
RECEIVERS = [(2, 1), (1, 3), (2, 0)]


def projected(reference, names, layer, head, run, put=None):
    """Run a model of PyTorch, and return the logits and the named vectors of a head.

    `put` are such vectors, which replace its own.
    """
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


def test_paths_equal_hooks_in_pytorch(both):  # noqa: F811
    """To the logits, and to queries, keys, values and all three, in both directions."""
    torch = pytest.importorskip('torch')
    reference, model, batches, answers = both
    width = model.config.head_size
    to_logits = bs.patch_paths(model, CLEAN, CORRUPTED)
    parts = {'query': ['query'], 'key': ['key'], 'value': ['value']}
    parts['input'] = [*parts]
    to_heads = {
        into: bs.patch_paths(model, CLEAN, CORRUPTED, receivers=RECEIVERS, into=into)
        for into in parts
    }
    for direction, (host, donor) in DIRECTIONS.items():
        run = functools.partial(reference.run, batches[host])
        with torch.no_grad():
            logits, own, _ = run()
            intact, lent = margin(logits, answers), reference.run(batches[donor])[1]
            for sender in ((0, 1), (1, 2), (2, 3)):
                change = frozen(own, lent, sender, width)
                expected = margin(run(change)[0], answers) - intact
                found = getattr(to_logits, direction)[:, *sender]
                np.testing.assert_allclose(found, expected, atol=1e-5)
                assert expected.abs().max() > 1e-3
                for into, (number, receiver) in (
                    (into, each) for into in parts for each in enumerate(RECEIVERS)
                ):
                    found = getattr(to_heads[into], direction)[:, number, *sender]
                    if receiver[0] <= sender[0]:
                        assert np.isnan(found).all()
                        continue
                    patched = functools.partial(run, change)
                    _, vectors = projected(reference, parts[into], *receiver, patched)
                    after, _ = projected(reference, parts[into], *receiver, run, put=vectors)
                    expected = margin(after, answers) - intact
                    np.testing.assert_allclose(found, expected, atol=1e-5)
                    assert expected.abs().max() > 1e-4


def test_the_last_layer_has_no_other_path_to_the_logits(pretrained, masked_lm):
    for model, texts, answers in (
        (pretrained, (CLEAN, CORRUPTED), None),
        (masked_lm, HIDDEN, WORDS),
    ):
        given = {'answers': answers, 'metric': 'logit'}
        paths, patched = (f(model, *texts, **given) for f in (bs.patch_paths, bs.patch))
        for direction in DIRECTIONS:
            direct, whole = getattr(paths, direction), getattr(patched, direction)
            np.testing.assert_allclose(direct[:, -1], whole[:, -1], atol=1e-6)
            assert np.abs(direct[:, 0] - whole[:, 0]).max() > 1e-3
        np.testing.assert_array_equal(paths.clean, patched.clean)


def test_the_same_text_changes_nothing(pretrained):
    for receivers in ('logits', RECEIVERS):
        found = bs.patch_paths(pretrained, CLEAN, CLEAN, receivers=receivers)
        for direction in DIRECTIONS:
            assert np.nanmax(np.abs(getattr(found, direction))) < 1e-6
        np.testing.assert_array_equal(found.clean, found.corrupted)


@pytest.mark.parametrize('receivers', ['logits', RECEIVERS])
def test_padding_chunks_and_the_choice_of_senders_change_nothing(pretrained, receivers):
    """Each pair alone, with no padding; calls of a run or two; some senders."""
    given = {'receivers': receivers, 'answers': [0, 1, 0], 'metric': 'logit'}
    whole = bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given)
    small = bs.Compute(chunk_tokens=80)
    chunked = bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given, compute=small)
    np.testing.assert_allclose(chunked.noising, whole.noising, atol=1e-5)
    short = given | {'answers': [0], 'senders': [(0, 2), (1, 0), (0, 3)]}
    alone = bs.patch_paths(pretrained, CLEAN[2:], CORRUPTED[2:], **short)
    for found, all_senders in ((alone.denoising[0], whole.denoising[2]),):
        asked = np.zeros_like(found, bool)
        for sender in short['senders']:
            asked[..., *sender] = True
            np.testing.assert_allclose(found[..., *sender], all_senders[..., *sender], atol=1e-5)
        assert np.isnan(found[~asked]).all() and np.nanmax(np.abs(found)) > 1e-4


def test_a_metric_may_read_every_output(pretrained):
    """The states and contexts of later layers are those of the patched run."""
    metric = lambda output: output.hidden_states[:, 2, 1, 0] + output.contexts[:, 2, 1, 3, 0]
    found = bs.patch_paths(pretrained, CLEAN[:1], CORRUPTED[:1], metric=metric)
    (own,), (lent,) = (bs.encode(pretrained.tokenizer, each[:1]) for each in (CLEAN, CORRUPTED))
    own, lent = (forward(pretrained.bert, pretrained.params, e.inputs) for e in (own, lent))
    last = np.asarray(lent.contexts - own.contexts)[0, 2, 1, 3, 0]
    np.testing.assert_allclose(found.noising[0, 2], [0, 0, 0, last], atol=1e-5)
    assert np.abs(found.noising[0, 1]).min() > 1e-3
    np.testing.assert_allclose(found.clean, metric(own), atol=1e-5)


def test_what_has_no_path_is_named(pretrained):
    for given, said in (
        ({'into': 'keys'}, "into='keys' must be"),
        ({'into': 'key'}, "into='key' is of heads that receive"),
        ({'receivers': 'logit'}, "receivers='logit' must be 'logits'"),
        ({'receivers': [(0, 1)]}, 'receiver L1-H2 is not reached'),
        ({'receivers': [(2, 1), (1, 0)], 'senders': [(1, 2)]}, 'receiver L2-H1 is not reached'),
        ({'receivers': [(3, 0)]}, r'receivers has \(3, 0\), which is no head'),
        ({'receivers': []}, 'receivers is empty'),
        ({'senders': [(0, 4)]}, r'senders has \(0, 4\), which is no head'),
        ({'senders': [-1]}, r'senders has -1, which is no head'),
    ):
        with pytest.raises(ValueError, match=said):
            bs.patch_paths(pretrained, CLEAN, CORRUPTED, **given)
