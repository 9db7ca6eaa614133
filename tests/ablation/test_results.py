"""A sweep in a file: what is done is not done again, and what is damaged is named."""

from unittest import mock

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax import files
from bert_secrets_jax.ablation import results

EXAMPLES = [
    bs.Example(text_a, text_b, label, f'own/{label}')
    for label, (text_a, text_b) in enumerate(
        [('the cat ran', 'a dog'), ('he saw the big old tree', 'she liked it'), ('not', 'never .')]
    )
]


@pytest.fixture(scope='module')
def pretrained(bert, params, tokenizer):
    return bs.Pretrained(bert, params, tokenizer)


def sweep(file, pretrained, **changes):
    masks = bs.masks.single_heads(pretrained.config)
    # So few tokens that every example is a batch, and a file, of its own.
    encoding = {'max_length': 24, 'tokens_per_batch': 1}
    return results.sweep_to_file(
        file, pretrained, EXAMPLES, masks, **({'encoding': encoding} | changes)
    )


def test_equals_the_sweep_in_memory(pretrained, tmp_path):
    swept = sweep(tmp_path / 'heads.npz', pretrained)
    batches = bs.encode(pretrained.tokenizer, EXAMPLES, max_length=24, fewest=1)
    masks = np.concatenate(
        [bs.masks.none(pretrained.config), bs.masks.single_heads(pretrained.config)]
    )
    expected = bs.sweep(pretrained.bert, pretrained.params, batches, masks)
    np.testing.assert_array_equal(swept.masks, masks)
    np.testing.assert_allclose(swept.logits, expected, atol=1e-5)
    assert swept.labels.tolist() == [0, 1, 2]
    assert swept.predictions.shape == (13, 3)
    # The parts are in the one file now.
    assert [path.name for path in tmp_path.iterdir()] == ['heads.npz']
    read = results.read_swept(tmp_path / 'heads.npz')
    np.testing.assert_array_equal(read.logits, swept.logits)


def test_regression_predicts_values():
    swept = results.Swept(np.ones((2, 1, 1)), np.array([[[0.5], [2.0]]] * 2), np.zeros(2))
    assert swept.predictions.tolist() == [[0.5, 2.0]] * 2


@pytest.fixture
def killed(pretrained, tmp_path, monkeypatch):
    """A sweep that died while it wrote the second of three parts."""
    write, written = files.write_atomically, []

    def die(path, data):
        if len(written) == 1:
            path.with_name(path.name + '.partial').write_bytes(data[:10])
            raise KeyboardInterrupt
        written.append(path)
        write(path, data)

    file = tmp_path / 'heads.npz'
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(files, 'write_atomically', die)
        sweep(file, pretrained)
    return file


def test_goes_on_where_it_was_killed(killed, pretrained, monkeypatch, tmp_path):
    expected = sweep(tmp_path / 'whole.npz', pretrained)
    computed = []
    sweep_batches = results.sweep_batches

    def counted(bert, params, batches, *args, **kwargs):
        computed.extend(batches)
        return sweep_batches(bert, params, computed, *args, **kwargs)

    monkeypatch.setattr(results, 'sweep_batches', counted)
    resumed = sweep(killed, pretrained)
    assert len(computed) == 2
    np.testing.assert_array_equal(resumed.logits, expected.logits)


def test_a_damaged_part_is_named(killed, pretrained):
    (part,) = killed.with_suffix('').glob('*.npz')
    part.write_bytes(b'nothing')
    with pytest.raises(ValueError, match=rf'{part} is damaged: delete it'):
        sweep(killed, pretrained)


def test_many_masks_make_small_parts(pretrained, tmp_path):
    """So that progress shows, and little is lost, however many masks there are."""
    masks = bs.masks.single_heads(pretrained.config)
    sizes = []
    for repeats in (1, 400):
        with mock.patch.object(results, 'encode', wraps=results.encode) as encode:
            results.sweep_to_file(
                tmp_path / f'{repeats}.npz',
                pretrained,
                EXAMPLES,
                np.repeat(masks, repeats, axis=0),
                encoding={'max_length': 24, 'tokens_per_batch': 2048},
            )
        sizes.append(encode.call_args.kwargs['tokens_per_batch'])
    # 64 calls of 1,024 tokens for 4,801 masks.
    assert sizes == [2048, 13]
