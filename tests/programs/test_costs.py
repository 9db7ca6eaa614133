"""Prices of sections: shared work is counted once, and what is done costs nothing."""

import pytest

from bert_secrets_jax.programs.given import Pace, pace_of
from bert_secrets_jax.programs.report import SECTIONS
from bert_secrets_jax.programs.sources import Given


def test_every_section_states_what_it_costs(study):
    """But claims, which are about the results of others; more texts and seeds cost more."""
    costs = {name: Given(study).work(name) for name in SECTIONS}
    assert [name for name, parts in costs.items() if not parts] == ['claims']
    pace = Pace(1e-3, 15.0)
    seconds = {name: pace.seconds(parts.values()) for name, parts in costs.items()}
    assert all(each > 0 for name, each in seconds.items() if name != 'claims')
    assert seconds['interactions'] > seconds['ablate']
    assert seconds['ablate_seeds'] > seconds['ablate']
    study.config.train.epochs *= 2
    more = pace.seconds(Given(study).work('finetune').values())
    assert more > 1.5 * (seconds['finetune'] - 15)
    study.config.train.maps_every = 1
    assert pace.seconds(Given(study).work('finetune').values()) > 1.2 * more
    # Work that two sections need is one part of both.
    assert costs['features'].keys() & costs['cls_tokens'].keys() >= {'first pass', 'second pass'}


def test_the_pace_is_measured(study):
    pace = pace_of(Given(study))
    # A program that this process already has costs nothing, and noise may say less.
    assert pace.token > 0 and pace.part >= 5
    assert pace.seconds([1000, 0]) == pytest.approx(1000 * pace.token + 2 * pace.part)


def test_the_time_left_follows_the_pace():
    """Shared parts are counted once; so far twice as slow as estimated is so later, too."""
    pace = Pace(1.0, 0.0)
    parts = [{'pass': 1000}, {'pass': 1000, 'sweep': 3000}, {'sweep': 3000}]
    assert pace.left(parts, 0, 0.0) == 4000
    assert pace.left(parts, 1, 1000.0) == 3000
    assert pace.left(parts, 1, 2000.0) == pytest.approx(6000, rel=0.03)
    assert pace.left(parts, 2, 4000.0) == 0
