"""Hypotheses: their numbers, and how often verdicts on them are wrong."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.hypotheses import _MEASURED, _MOVED, decided

NAMES = (*_MEASURED, _MOVED)
DOES_NOT_HOLD = 'does not hold'
NEIGHBOURS, BROADEST = 'Early layers look at neighbours', 'The broadest head is in layer 1'


def values_of(rng, grids, examples=60, spread=0.1):
    """Values [E, L, N] with these means [L, N]; heads of a text have noise in common."""
    shared = spread * rng.normal(size=(examples, 1, 1))
    return {
        name: grid + shared + spread * rng.normal(size=(examples, *grid.shape))
        for name, grid in grids.items()
    }


def verdicts_of(values):
    return {each.claim.short: each for each in decided(values)}


def test_numbers_are_those_of_the_means():
    rng = np.random.default_rng(0)
    grids = {name: rng.uniform(0.1, 1, (6, 4)) for name in NAMES}
    values = values_of(rng, grids, spread=1e-4)
    # A text without a full stop counts for the other statistics.
    values['period or comma'][3] = np.nan
    found = verdicts_of(values)
    assert len(found) == 10 and all(each.sample == 60 for each in found.values())
    before, special = grids['previous token'], grids['[CLS] and all [SEP]']
    expected = {
        'Layer 1 has a head for the previous token': before[0].max(),
        'The first third has the head for the previous token': before[:2].max() - before[2:].max(),
        'Middle layers look at special tokens': special[2:4].mean() - special[0].mean(),
        'Special tokens get attention and give little': grids[NAMES[-1]].mean() / special.mean(),
        BROADEST: grids['entropy (nats)'][0].max() - grids['entropy (nats)'][1:].max(),
        'Heads for full stops come after the first third': grids['period or comma'][:2].max()
        - grids['period or comma'][2:].max(),
    }
    for short, number in expected.items():
        each = found[short]
        assert each.estimate == pytest.approx(number, abs=1e-3)
        above = (number > each.threshold) == (each.claim.side == 'more')
        assert each.verdict == ('holds' if above else DOES_NOT_HOLD)


@pytest.mark.parametrize('worlds', [40, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize('tied', [1, 30])
def test_verdicts_at_the_border_are_seldom_wrong(worlds, tied):
    """At the threshold neither verdict is right, also where many heads tie for the greatest."""
    rng, wrong = np.random.default_rng(1), np.zeros((2, 2))
    grids = {name: np.full((6, 12), 0.2) for name in NAMES}
    grids['previous token'][4:] -= 0.05
    grids['entropy (nats)'][0, 0] = grids['entropy (nats)'].flat[12 : 12 + tied] = 0.3
    for _ in range(worlds):
        found = verdicts_of(values_of(rng, grids))
        for place, short in enumerate((NEIGHBOURS, BROADEST)):
            wrong[place] += [found[short].verdict == each for each in ('holds', DOES_NOT_HOLD)]
    assert wrong.max() / worlds <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / worlds)


def test_too_few_texts_and_layers(model, texts, config, tokenizer):
    found = bs.analyses.hypotheses(model, texts[:10])
    assert {each.verdict for each in found.decided} == {'not decidable with so few examples'}
    assert found.findings()[0].estimate == 0
    cut = bs.BertConfig(**{**vars(model.config), 'num_hidden_layers': 2})
    small = bs.Pretrained(bs.Bert(cut), model.params, tokenizer)
    with pytest.raises(ValueError, match='thirds of at least 3 layers'):
        bs.analyses.hypotheses(small, texts)
