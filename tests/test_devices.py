"""Meshes from settings, and work that two axes of eight virtual devices share."""

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.compute import fetch, make_mesh, replicate, split
from bert_secrets_jax.configs.schema import parse_axes
from bert_secrets_jax.finetune import steps
from tests.together import assert_same, shares, swept, tuned


@pytest.mark.parametrize(
    'text', ['8', 'data:0', 'masks:2', 'data:2,data:2', 'data:2,heads:2', 'data:2,,']
)
def test_axes_that_are_none(text):
    with pytest.raises(ValueError, match='data'):
        parse_axes(text)


def test_meshes():
    assert make_mesh({'data': 1}) is None
    assert dict(make_mesh(parse_axes('')).shape) == {'data': 8}
    axes = parse_axes('data:2, masks:3')
    assert dict(make_mesh(axes).shape) == {'data': 6}
    assert dict(make_mesh(axes, 'masks').shape) == axes
    # Devices of another kind of group share the examples.
    assert dict(make_mesh(axes, 'seeds').shape) == {'data': 6}
    with pytest.raises(ValueError, match='mesh=data:16 needs 16 devices, and there are 8'):
        make_mesh({'data': 16})


def test_arrays_lie_where_they_are_put():
    mesh = make_mesh({'data': 4})
    tree = {'a': np.arange(8.0), 'b': np.ones((4, 3))}
    rows, whole = split(tree, mesh), replicate(tree, mesh)
    assert rows['a'].addressable_shards[1].data.tolist() == [2, 3]
    assert whole['a'].is_fully_replicated and len(whole['a'].devices()) == 4
    for found in (rows, whole, split(tree, None), replicate(tree, None)):
        jax.tree.map(np.testing.assert_array_equal, fetch(found), tree)


@pytest.fixture(scope='module')
def model(checkpoint):
    return bs.from_pretrained(checkpoint)


@pytest.mark.parametrize('baseline', ['uniform', 'resample'])
def test_masks_along_a_second_axis(model, baseline):
    mesh = make_mesh(parse_axes('data:2,masks:4'), 'masks')
    with shares() as held:
        found = swept(model, mesh, None, baseline)
    assert_same(found, swept(model, None, None, baseline))
    for piece in ('close_layer', 'run_layer'):
        rows = held[f'rows {piece}']
        assert len(rows) == 8 and (rows[1:, 0] == rows[:-1, 1]).all()
        # An eighth, and what is not worth sharing.
        assert 0.12 < held[f'share {piece}'] < 0.2


@pytest.mark.slow
def test_seeds_along_a_second_axis(model, tmp_path, monkeypatch):
    """The sums of gradients stay on the devices of their seed."""
    update, seen = steps._update, []

    def watched(optimizer, state, gradients, *others):
        for tree in (state.params, gradients):
            rows = {leaf.addressable_shards[0].data.shape[0] for leaf in jax.tree.leaves(tree)}
            seen.append(rows)
        return update(optimizer, state, gradients, *others)

    monkeypatch.setattr(steps, '_update', watched)
    mesh = make_mesh(parse_axes('data:4,seeds:2'), 'seeds')
    found = tuned(model, mesh, tmp_path / 'a')
    # Each shard has one of the two seeds.
    assert len(seen) == 8 and all(rows == {1} for rows in seen)
    assert_same(found, tuned(model, None, tmp_path / 'b'))


def test_seeds_that_groups_cannot_share(model, tmp_path):
    mesh = make_mesh(parse_axes('data:2,seeds:3'), 'seeds')
    with pytest.raises(ValueError, match='2 seeds do not split over 3 groups of devices'):
        tuned(model, mesh, tmp_path)
