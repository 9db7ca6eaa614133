"""Patches of heads, compared with hooks in PyTorch and with one forward pass for each patch."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.patching import Pairs, estimate_each, patch_each
from tests.conftest import as_torch, forward, rarely, relative
from tests.model.conftest import in_pytorch

CLEAN = ['the cat saw it', 'the dog ran and she saw a house .', 'he ran']
CORRUPTED = ['a dog chased he', 'a cat saw the bird liked new tree ,', 'it saw']
HIDDEN = (
    ['the [MASK] saw it', 'a [MASK] ran', 'she [MASK] not'],
    ['a [MASK] chased he', 'the [MASK] saw', 'it [MASK] he'],
)
WORDS = [('cat', 'dog'), ('bird', 'tree'), ('saw', 'ran')]
# By type, the modules of PyTorch: embeddings, layers, and in a layer what reads the contexts.
IN_PYTORCH = {
    'bert': ('bert.embeddings', 'bert.encoder.layer', 'attention.output.dense'),
    'jina_bert': ('bert.embeddings', 'bert.encoder.layer', 'attention.output.dense'),
    'modernbert': ('model.embeddings', 'model.layers', 'attn.Wo'),
    'deberta-v2': ('deberta.embeddings', 'deberta.encoder.layer', 'attention.output.dense'),
    'eurobert': ('model.embed_tokens', 'model.layers', 'self_attn.o_proj'),
    'roformer': ('roformer.embeddings', 'roformer.encoder.layer', 'attention.output.dense'),
}
DIRECTIONS = {'denoising': (1, 0), 'noising': (0, 1)}


class InPyTorch:
    """A random model of PyTorch whose contexts and embeddings hooks read and replace."""

    def __init__(self, config, directory, tokenizer):
        self.config, self.model = config, in_pytorch(config, directory, tokenizer)
        embeddings, layers, output = IN_PYTORCH[config.model_type]
        self.embeddings = self.model.get_submodule(embeddings)
        self.layers = self.model.get_submodule(layers)
        self.outputs = [each.get_submodule(output) for each in self.layers]

    def run(self, batch, change=lambda layer, context: context, embedded=None):
        """Return the logits, the contexts [B, T, D] of each layer, and the embeddings."""
        contexts, first = [], []

        def before(layer, module, inputs):
            contexts.append(change(layer, inputs[0]))
            return (contexts[-1], *inputs[1:])

        def after(module, inputs, output):
            first.append(output if embedded is None else embedded)
            return first[0]

        hooks = [
            each.register_forward_pre_hook(functools.partial(before, number))
            for number, each in enumerate(self.outputs)
        ]
        hooks.append(self.embeddings.register_forward_hook(after))
        logits = self.model(**as_torch(self.config, batch.inputs)).logits
        for each in hooks:
            each.remove()
        return logits, contexts, first[0]


def margin(logits, answers):
    """Return the logit of each answer less the greatest other one, in PyTorch."""
    rows, others = range(len(logits)), logits.clone()
    others[rows, answers] = -np.inf
    return logits[rows, answers] - others.max(dim=-1).values


def replaced(lent, layer, part, number, context):
    """Return the context of a layer, with a part from those lent if it is this layer."""
    if number == layer:
        context = context.clone()
        context[part] = lent[layer][part]
    return context


@pytest.fixture(scope='module', params=IN_PYTORCH)
def both(request, config, tmp_path_factory, tokenizer):
    """A random model in PyTorch and here, the pairs as batches, and the answers."""
    torch = pytest.importorskip('torch')
    directory = tmp_path_factory.mktemp('patched')
    config = dataclasses.replace(relative(config, request.param), initializer_range=0.3)
    if request.param == 'deberta-v2':
        config = dataclasses.replace(config, share_att_key=False, conv_kernel_size=3)
    reference = InPyTorch(config, directory, tokenizer)
    batches = [bs.encode(tokenizer, texts, buckets=[12])[0] for texts in (CLEAN, CORRUPTED)]
    with torch.no_grad():
        answers = reference.run(batches[0])[0].argmax(dim=-1)
    return reference, bs.from_pretrained(directory), batches, answers


def test_equals_hooks_in_pytorch(both):
    """Heads of all layers in both directions, at all tokens and at single ones."""
    torch = pytest.importorskip('torch')
    reference, model, batches, answers = both
    width = model.config.head_size
    found = {each: bs.patch(model, CLEAN, CORRUPTED, positions=each) for each in ('all', 'each')}
    for direction, (host, donor) in DIRECTIONS.items():
        with torch.no_grad():
            intact = margin(reference.run(batches[host])[0], answers)
            lent = reference.run(batches[donor])[1]
        for layer, head, token in ((0, 1, None), (1, 2, 1), (1, 2, None), (2, 3, None), (2, 0, 0)):
            part = np.s_[:, slice(None) if token is None else token]
            part = (*part, np.s_[head * width : (head + 1) * width])

            with torch.no_grad():
                change = functools.partial(replaced, lent, layer, part)
                expected = margin(reference.run(batches[host], change)[0], answers) - intact
            patched = getattr(found['all' if token is None else 'each'], direction)
            patched = patched[:, layer, head] if token is None else patched[:, layer, head, token]
            np.testing.assert_allclose(patched, expected, atol=1e-5)
            assert expected.abs().max() > 1e-3
    past = np.arange(11) >= np.array([6, 11, 4])[:, None]
    assert (np.isnan(found['each'].noising) == past[:, None, None]).all()


@pytest.mark.parametrize('steps', [0, 3])
def test_estimates_equal_gradients_in_pytorch(both, steps):
    torch = pytest.importorskip('torch')
    reference, model, batches, answers = both
    if steps and model.config.conv_kernel_size:
        with pytest.raises(ValueError, match='adds a convolution over its embeddings'):
            bs.estimate_patches(model, CLEAN, CORRUPTED, steps=steps)
        return
    found = bs.estimate_patches(model, CLEAN, CORRUPTED, steps=steps)
    for direction, (host, donor) in DIRECTIONS.items():
        _, own, start = reference.run(batches[host])
        _, lent, end = reference.run(batches[donor])
        expected = 0.0
        for way in np.arange(1, steps + 1) / steps if steps else [0.0]:
            there = (start + way * (end - start)).detach().requires_grad_()
            logits, contexts, _ = reference.run(batches[host], embedded=there)
            slopes = torch.autograd.grad(margin(logits, answers).sum(), contexts)
            for_each = [
                (slope * (other - this)).detach().numpy().reshape(3, 12, 4, -1)
                for slope, other, this in zip(slopes, lent, own, strict=True)
            ]
            real = np.asarray(batches[host].attention_mask)[:, :, None, None]
            expected = expected + np.stack([(e * real).sum(axis=(1, 3)) for e in for_each], axis=1)
        np.testing.assert_allclose(getattr(found, direction), expected / max(steps, 1), atol=2e-5)


@pytest.mark.parametrize('of', ['map', 'value'])
def test_a_map_and_a_value_equal_one_pass_each(pretrained, of):
    """A map by the change of maps that the model takes, a value by that of the values' kernel."""
    bert, params = pretrained.bert, pretrained.params
    batches = [bs.encode(pretrained.tokenizer, each[1:2])[0] for each in (CLEAN, CORRUPTED)]
    found = bs.patch(pretrained, CLEAN[1:2], CORRUPTED[1:2], of=of, answers=['no'], metric='logit')
    each = bs.patch(
        pretrained, CLEAN[1:2], CORRUPTED[1:2], of=of, answers=[0], metric='logit', positions='each'
    )
    for direction, (host, donor) in DIRECTIONS.items():
        own, lent = (forward(bert, params, batches[at].inputs) for at in (host, donor))
        for layer, head, token in ((0, 1, None), (1, 2, 4), (2, 3, 0)):
            here = np.s_[:] if token is None else token
            change = np.zeros(own.attentions.shape, np.float32)
            if of == 'map':
                change[:, layer, head, here] = (lent.attentions - own.attentions)[
                    :, layer, head, here
                ]
                changed = forward(bert, params, batches[host].inputs, map_change=change)
            else:
                kernel = params['layers']['attention']['value']['kernel'][layer, :, head]
                states = np.asarray(lent.hidden_states - own.hidden_states)[0, layer] @ kernel
                moved = np.zeros_like(states)
                moved[here] = states[here]
                contexts = np.array(own.contexts)
                contexts[0, layer, :, head] += np.asarray(own.attentions)[0, layer, head] @ moved
                mask = bs.masks.disable(bert.config, [[(layer, head)]])[0]
                replaced = {'head_mask': mask, 'baseline': 'resample', 'replacement': contexts}
                changed = forward(bert, params, batches[host].inputs, **replaced)
            expected = float(changed.logits[0, 0] - own.logits[0, 0])
            patched = getattr(found if token is None else each, direction)[0, layer, head]
            assert (patched if token is None else patched[token]) == pytest.approx(
                expected, abs=1e-5
            )
            assert abs(expected) > 1e-4


@pytest.mark.parametrize(
    ('of', 'positions'),
    rarely([('output', 'all'), ('map', 'each'), ('value', 'each')], often=[('value', 'each')]),
)
def test_an_estimate_is_exact_for_a_small_difference(pretrained, of, positions):
    """A change of a thousandth of the way to the other text: errors fall with its square."""
    given = (CLEAN[:2], CORRUPTED[:2]), of, positions, 'logit', ['no', 'yes'], bs.Compute()
    pairs = Pairs.start(pretrained, *given)
    (both,) = zip(*(bs.bucket(each, buckets=[12]) for each in pairs.encoded), strict=True)
    host, errors = next(iter(pairs.hosts(both))), []
    for share in (1.0, 1 / 64):
        mixed = jax.tree.map(lambda one, two: one + share * (two - one), host.own, host.donor)  # noqa: B023
        near = host._replace(donor=mixed)
        exact = patch_each(pairs, near, heads=np.ones((3, 4), bool))
        errors.append(np.abs(estimate_each(pairs, near, steps=0) - exact).max() / np.ptp(exact))
    assert errors[0] > 0.05 and errors[1] < errors[0] / 16


def test_a_masked_lm_and_own_functions(masked_lm):
    """The logit of the good word less that of the bad one; and anything of the output."""
    tokenizer, (clean, corrupted) = masked_lm.tokenizer, HIDDEN
    numbers = np.array([tokenizer.convert_tokens_to_ids(each) for each in WORDS])

    def margins(texts):
        (batch,) = bs.encode(tokenizer, texts)
        logits = np.asarray(forward(masked_lm.bert, masked_lm.params, batch.inputs).logits)
        at_mask = logits[batch.input_ids == tokenizer.mask_token_id][:, None]
        return np.take_along_axis(at_mask[:, 0], numbers[batch.example], axis=1), batch.example

    found = bs.patch(masked_lm, clean, corrupted, answers=WORDS)
    for own, texts in ((found.clean, clean), (found.corrupted, corrupted)):
        both, example = margins(texts)
        np.testing.assert_allclose(own[example], both[:, 0] - both[:, 1], atol=1e-5)
    assert np.abs(found.noising).min(axis=0).max() > 1e-2

    def first_logits(output):
        return (
            output.logits[:, 1, 7]
            + output.hidden_states[:, -1, 0, 0]
            + output.attentions[:, 2, 1, 0, 0]
            + output.contexts[:, 0, 1, 2, 3]
        )

    ours = bs.patch(masked_lm, clean[:1], corrupted[:1], metric=first_logits)
    (own,), (lent,) = (bs.encode(tokenizer, each[:1]) for each in HIDDEN)
    own, lent = (forward(masked_lm.bert, masked_lm.params, each.inputs) for each in (own, lent))
    assert ours.clean[0] == pytest.approx(float(first_logits(own)[0]), abs=1e-5)
    mask = bs.masks.disable(masked_lm.config, [[(1, 2)]])[0]
    (batch,) = bs.encode(tokenizer, clean[:1])
    changed = forward(
        masked_lm.bert,
        masked_lm.params,
        batch.inputs,
        head_mask=mask,
        baseline='resample',
        replacement=lent.contexts,
    )
    assert ours.noising[0, 1, 2] == pytest.approx(
        float((first_logits(changed) - first_logits(own))[0]), abs=1e-5
    )


@pytest.mark.parametrize('spread', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_batches_chunks_and_devices_change_nothing(pretrained, mesh, spread):
    whole = bs.patch(pretrained, CLEAN, CORRUPTED)
    way = {'mesh': mesh} if spread else {'chunk_tokens': 16, 'tokens_per_batch': 12}
    found = bs.patch(pretrained, CLEAN, CORRUPTED, compute=bs.Compute(**way))
    np.testing.assert_allclose(found.clean, whole.clean, atol=1e-5)
    np.testing.assert_allclose(found.denoising, whole.denoising, atol=1e-5)


def test_what_cannot_be_patched_is_named(pretrained, masked_lm, model):
    for given, said in (
        ((pretrained, CLEAN, CORRUPTED[:2]), 'one of each for every pair'),
        (
            (pretrained, CLEAN, [CORRUPTED[0], 'the cat ran', 'it saw']),
            r'texts of pair 2 have 11 and 5',
        ),
        ((model, CLEAN, CORRUPTED), 'give a function of its output'),
        ((masked_lm, CLEAN, CORRUPTED), 'a good and a bad word'),
    ):
        with pytest.raises(ValueError, match=said):
            bs.patch(*given)
    for given, said in (
        ({'of': 'query'}, 'query'),
        ({'positions': 'some'}, 'some'),
        ({'metric': 'los'}, 'los'),
        ({'answers': ['no', 'yes']}, 'There are 2 answers and 3 pairs'),
        ({'answers': ['no', 'yes', 'maybe']}, "'maybe' is no class"),
        ({'answers': [0, 1, 3]}, '3 is no class'),
        (
            {'metric': lambda output: output.logits[:, 0], 'answers': [0, 0, 0]},
            'not with a function',
        ),
    ):
        with pytest.raises(ValueError, match=said):
            bs.patch(pretrained, CLEAN, CORRUPTED, **given)
    clean, corrupted = HIDDEN
    with pytest.raises(ValueError, match=r'pair 2 must have one \[MASK\]'):
        bs.patch(masked_lm, clean, [corrupted[0], 'the cat saw', corrupted[2]], answers=WORDS)
    with pytest.raises(ValueError, match='answers of pair 1.*one wordpiece'):
        bs.patch(masked_lm, clean, corrupted, answers=[('cats', 'dog'), *WORDS[1:]])
    with pytest.raises(ValueError, match='steps=-1'):
        bs.estimate_patches(pretrained, CLEAN, CORRUPTED, steps=-1)
    broken = dataclasses.replace(
        pretrained, params=jax.tree.map(lambda leaf: leaf * np.nan, pretrained.params)
    )
    with pytest.raises(FloatingPointError, match='margin is NaN'):
        bs.patch(broken, CLEAN[:2], CORRUPTED[:2], answers=[0, 1])
