"""A resumable sweep: what is done is not done again, and what is damaged is."""

import dataclasses
import itertools
import logging

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax import files
from bert_secrets_jax.ablation import resumable
from bert_secrets_jax.ablation.sweep import Descent
from tests.conftest import killed_after_a_part

EXAMPLES = [
    bs.Example(text_a, text_b, label, f'own/{label}')
    for label, (text_a, text_b) in enumerate(
        [('the cat ran', 'a dog'), ('he saw the big old tree', 'she liked it'), ('not', 'never .')]
    )
]


def sweep(pretrained, folder=None, **changes):
    # So few tokens that every example is a batch, and a file, of its own.
    settings = {'max_length': 24, 'tokens_per_batch': 1, 'folder': folder} | changes
    masks = settings.pop('masks', bs.masks.single_heads(pretrained.config))
    names = [each.name for each in dataclasses.fields(bs.Compute)]
    compute = bs.Compute(**{name: settings.pop(name) for name in names if name in settings})
    return resumable.sweep_examples(pretrained, EXAMPLES, masks, compute=compute, **settings)


@pytest.fixture
def computed(monkeypatch):
    """How many calls computed how many masks of each batch: [(batch's ids, masks), ...]."""
    calls = []
    steps = Descent.steps

    def counted(self, batch, members):
        calls.append((tuple(batch.example), len(members)))
        return steps(self, batch, members)

    monkeypatch.setattr(Descent, 'steps', counted)
    return calls


@pytest.mark.parametrize(
    ('baseline', 'with_folder'),
    [('uniform', False), ('uniform', True), ('mean', False), ('resample', False)],
)
def test_equals_the_plain_sweep(pretrained, tmp_path, baseline, with_folder):
    """Each example is a batch of its own, and its donor is in another one.

    Masks come back as they were given: in another order, and one twice.
    """
    settings = {'baseline': baseline, 'donor_seed': 1}
    masks = bs.masks.single_heads(pretrained.config)[[5, 0, 5, *range(11, 0, -1)]]
    swept = sweep(pretrained, tmp_path if with_folder else None, masks=masks, **settings)
    batches = bs.encode(pretrained.tokenizer, EXAMPLES, max_length=24, fewest=1)
    expected = bs.sweep(pretrained, batches, masks, **settings)
    # Masks must matter, or the comparison proves nothing.
    assert np.ptp(expected.logits, axis=0).max() > 1e-2
    np.testing.assert_array_equal(swept.masks, masks)
    np.testing.assert_allclose(swept.logits, expected.logits, atol=1e-5)
    assert swept.predictions.shape == (14, 3)
    # The caller deletes the parts, once the result is saved.
    assert len(list(tmp_path.iterdir())) == (3 if with_folder else 0)


@pytest.fixture
def killed(pretrained, tmp_path, monkeypatch):
    """The folder of a sweep that died while it wrote the second of three parts."""
    with killed_after_a_part(monkeypatch):
        sweep(pretrained, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    return tmp_path


def test_goes_on_where_it_was_killed(killed, pretrained, computed):
    expected = sweep(pretrained)
    computed.clear()
    resumed = sweep(pretrained, killed)
    assert [masks for _, masks in computed] == [12, 12]
    np.testing.assert_array_equal(resumed.logits, expected.logits)
    computed.clear()
    np.testing.assert_array_equal(sweep(pretrained, killed).logits, expected.logits)
    assert not computed


DAMAGES = {
    'names': lambda arrays: {'logits': arrays['logits']},
    'shape': lambda arrays: arrays | {'logits': arrays['logits'][:, :, :1]},
    'kind': lambda arrays: arrays | {'done': arrays['done'].astype(np.float32)},
}


@pytest.mark.parametrize('damage', ['bytes', *DAMAGES])
def test_a_damaged_part_is_computed_again(killed, pretrained, computed, caplog, damage):
    (part,) = killed.iterdir()
    if damage == 'bytes':
        part.write_bytes(part.read_bytes()[:50])
    else:
        resumable.write_arrays(part, DAMAGES[damage](files.read_arrays(part)))
    expected = sweep(pretrained)
    computed.clear()
    with caplog.at_level(logging.WARNING, logger='absl'):
        found = sweep(pretrained, killed)
    assert len(computed) == 3 and f'{part} is damaged' in caplog.text
    np.testing.assert_array_equal(found.logits, expected.logits)


OTHERS = {
    'params': lambda model: {'params': jax.tree.map(lambda leaf: leaf * 1.5, model.params)},
    'config': lambda model: {'bert': bs.Bert(dataclasses.replace(model.config, hidden_act='relu'))},
    'masks': lambda model: {'masks': bs.masks.one_head_left(model.config)},
    'zero': lambda model: {'baseline': 'zero'},
    'mean': lambda model: {'baseline': 'mean'},
    'texts': lambda model: {},
}


@pytest.mark.parametrize('what', OTHERS)
def test_parts_of_another_sweep_are_not_taken(killed, pretrained, computed, monkeypatch, what):
    other, changes = pretrained, OTHERS[what](pretrained)
    if what in ('params', 'config'):
        other, changes = dataclasses.replace(pretrained, **changes), {}
    if what == 'texts':
        texts = [dataclasses.replace(example, text_b='a red bird') for example in EXAMPLES]
        monkeypatch.setattr('tests.ablation.test_resumable.EXAMPLES', texts)
    found = sweep(other, killed, **changes)
    assert len(computed) == 3
    np.testing.assert_array_equal(found.logits, sweep(other, **changes).logits)


def test_parts_depend_on_what_replaces_an_output(pretrained, tmp_path, computed, monkeypatch):
    """The same donors or means are found again; others have files of their own."""
    # All have one length, so that there is a choice of donors.
    words = ('cat', 'dog', 'bird', 'house', 'tree')
    texts = [bs.Example(f'the {word} ran', 'a dog', 0, word) for word in words]
    monkeypatch.setattr('tests.ablation.test_resumable.EXAMPLES', texts)
    of_corpus = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
    kinds = [
        {'baseline': 'mean'},
        {'baseline': 'mean', 'replacement': of_corpus},
        {'baseline': 'mean', 'replacement': of_corpus + 1},
        {'baseline': 'resample', 'donor_seed': 0},
        {'baseline': 'resample', 'donor_seed': 1},
    ]
    found, files = [], set()
    for changes in kinds:
        found.append(sweep(pretrained, tmp_path, **changes).logits)
        assert computed and set(tmp_path.iterdir()) > files
        files = set(tmp_path.iterdir())
        computed.clear()
    for one, other in itertools.combinations(found, 2):
        assert np.abs(one - other).max() > 1e-4
    for changes, expected in zip(kinds, found, strict=True):
        np.testing.assert_array_equal(sweep(pretrained, tmp_path, **changes).logits, expected)
    assert not computed


def test_a_long_batch_is_written_while_it_is_computed(pretrained, tmp_path, monkeypatch, computed):
    """So that about a minute can be lost, however long a batch takes."""
    expected = sweep(pretrained, chunk_tokens=24)
    computed.clear()
    monkeypatch.setattr(resumable, '_SECONDS_BETWEEN_WRITES', 0)
    steps, found = Descent.steps, []

    def die(self, batch, members):
        for step in steps(self, batch, members):
            if len(found) == 3:
                raise KeyboardInterrupt
            found.append(step)
            yield step

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Descent, 'steps', die)
        sweep(pretrained, tmp_path, chunk_tokens=24)
    # Not even the first batch was complete.
    lost = sum(len(members) for members, _, _ in found)
    assert 0 < lost < 12
    computed.clear()
    resumed = sweep(pretrained, tmp_path, chunk_tokens=24)
    assert [masks for _, masks in computed] == [12 - lost, 12, 12]
    np.testing.assert_allclose(resumed.logits, expected.logits, atol=1e-5)
