"""The parts of DeBERTa's scores, and sweeps over them, compared with PyTorch."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.model.positions.bias import distance_buckets
from tests.ablation.test_sweep import batch_of
from tests.conftest import as_torch, forward, random_inputs, random_params, rarely, relative
from tests.model.conftest import in_pytorch

torch = pytest.importorskip('torch')
NAMES = ('c2c', 'c2p', 'p2c')


@pytest.fixture(scope='module', params=rarely([True, False], often=[True]), ids=['shared', 'own'])
def both(request, config, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp('parts')
    config = dataclasses.replace(
        relative(config, 'deberta-v2'), initializer_range=0.3, share_att_key=request.param
    )
    model = in_pytorch(config, directory, tokenizer)
    inputs = random_inputs(config, lengths=(9, 4, 6), length=9, seed=1)
    return model, bs.from_pretrained(directory), inputs


def part_of(module, name, query, key, *rest):
    """Return one part of the scores [B N, T, S] by PyTorch's own code."""
    if name == 'c2c':
        return query @ key.transpose(-1, -2) / np.sqrt(3 * query.shape[-1])
    whole, module.pos_att_type = module.pos_att_type, [name]
    found = type(module).disentangled_attention_bias(module, query, key, *rest)
    module.pos_att_type = whole
    return found


def without(monkeypatch, module, name, head, found):
    """Let PyTorch's module lose a part of the scores of one head, and note what it was."""
    added = module.disentangled_attention_bias

    def less(*given):
        lost = part_of(module, name, *given)
        found.append(lost.reshape(-1, 4, *lost.shape[1:]))
        return added(*given) - lost * (torch.arange(len(lost)) % 4 == head)[:, None, None]

    monkeypatch.setattr(module, 'disentangled_attention_bias', less)


def test_parts_and_the_sweep_over_them_equal_pytorch(both, monkeypatch):
    model, ours, inputs = both
    swept = bs.sweep_parts(ours, [batch_of(inputs)])
    found = bs.score_parts(ours, batch_of(inputs))
    assert swept.masks.shape == (36, 3, 3, 4) and found.scores.shape == (3, 3, 3, 4, 9, 9)
    real = inputs['attention_mask'].astype(bool)
    pairs = (real[:, :, None] & real[:, None, :])[:, None]
    with torch.no_grad():
        intact = model(**as_torch(ours.config, inputs)).logits.numpy()
        for place in itertools.product(range(3), range(3), [1]):
            layer, part, head = place
            lost, module = [], model.deberta.encoder.layer[layer].attention.self
            with monkeypatch.context() as patched:
                without(patched, module, NAMES[part], head, lost)
                expected = model(**as_torch(ours.config, inputs)).logits.numpy()
            (number,) = np.flatnonzero(swept.masks[:, *place] == 0)
            np.testing.assert_allclose(swept.logits[number], expected, atol=2e-5)
            assert np.abs(expected - intact).max() > 1e-3
            theirs, mine = lost[0].numpy(), found.scores[:, layer, part]
            np.testing.assert_allclose(mine * pairs, theirs * pairs, atol=2e-5)


def test_maps_and_shares_are_those_of_the_scores(both):
    _, ours, inputs = both
    found = bs.score_parts(ours, batch_of(inputs))
    maps = np.asarray(forward(ours.bert, ours.params, inputs).attentions)
    total, covariances = found.scores.sum(axis=2), np.zeros((3, 3, 4))
    for row, length in enumerate((9, 4, 6)):
        seen = np.s_[..., :length, :length]
        for scores, expected in ((total[row], maps[row]), (found.scores[row], found.maps[row])):
            grown = np.exp(scores[seen])
            assert np.abs(grown / grown.sum(axis=-1, keepdims=True) - expected[seen]).max() < 1e-5
        for layer, part, head, query in np.ndindex(3, 3, 4, length):
            of_part = found.scores[row, layer, part, head, query, :length]
            of_all = total[row, layer, head, query, :length]
            covariances[layer, part, head] += np.cov(of_part, of_all, bias=True)[0, 1]
    expected = covariances / covariances.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.shares, expected, atol=1e-5)
    # A filler row counts for nothing.
    batch = dataclasses.replace(batch_of(inputs), example=np.array([0, 1, -1], np.int32))
    assert np.abs(bs.score_parts(ours, batch).shares - found.shares).max() > 1e-4


def test_a_mask_over_parts_is_differentiable(both):
    _, ours, inputs = both
    of_mask = lambda mask: forward(ours.bert, ours.params, inputs, part_mask=mask).logits[:, 0]
    slopes = jax.grad(lambda mask: of_mask(mask).sum())(np.ones((3, 3, 4), np.float32))
    assert np.abs(slopes).min() > 1e-7
    masks = np.ones((2, 3, 3, 4), np.float32)
    masks[1, 2, :, 0] = 0
    assert np.ptp(jax.vmap(of_mask)(masks), axis=0).max() > 1e-3


def test_preferences_for_distances_equal_pytorch(both):
    """Scores of two tokens that LayerNorm's bias alone fills, at all distances."""
    model, ours, _ = both
    found = bs.distance_preferences(ours, reach=8)
    encoder = model.deberta.encoder
    below = [model.deberta.embeddings.LayerNorm, *(each.output.LayerNorm for each in encoder.layer)]
    with torch.no_grad():
        for layer, norm in enumerate(below[:3]):
            module = encoder.layer[layer].attention.self
            states = norm.bias.expand(1, 9, -1)
            query, key = (
                module.transpose_for_scores(project(states), 4)
                for project in (module.query_proj, module.key_proj)
            )
            given = encoder.get_rel_pos(states), encoder.get_rel_embedding(), 3
            expected = module.disentangled_attention_bias(query, key, *given).numpy()
            for one, other in np.ndindex(9, 9):
                mine = found[layer, :, other - one + 8]
                np.testing.assert_allclose(mine, expected[:, one, other], atol=2e-5)
            assert np.ptp(expected) > 1e-3


def test_preferences_of_mpnet_are_its_bias(config):
    bert = bs.Bert(relative(config, 'mpnet'))
    params = random_params(bert)
    found = bs.distance_preferences(bs.Pretrained(bert, params, None), reach=20)
    table = np.asarray(params['embeddings']['relative_position']['embedding'])
    expected = table[distance_buckets(41, 32)[20]].T
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (3, 4, 41)))


def test_what_has_no_parts_is_refused(both, pretrained, masked_lm, inputs):
    _, ours, _ = both
    for call in (bs.distance_preferences, lambda model: bs.score_parts(model, batch_of(inputs))):
        with pytest.raises(ValueError, match='bert, 3 layers.*(one part alone|hang on distances)'):
            call(pretrained)
    with pytest.raises(ValueError, match='compares classes or embeddings: bert.*masked LM'):
        bs.sweep_parts(masked_lm, [batch_of(inputs)])
    with pytest.raises(ValueError, match='reach=32 must be from 1 to 31'):
        bs.distance_preferences(ours, reach=32)
    with pytest.raises(
        ValueError, match=r'part_mask must be \[layers, parts, heads\] = \[3, 3, 4\]'
    ):
        bs.sweep_parts(ours, [batch_of(inputs)], np.ones((2, 3, 2, 4), np.float32))
    with pytest.raises(ValueError, match='A mask of heads has 5'):
        bs.sweep_parts(ours, [batch_of(inputs)], np.full((2, 3, 3, 4), 5.0, np.float32))
