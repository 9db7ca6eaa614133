"""Analyses that disable something: what holds of all of them."""

import dataclasses
import sys

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masked_lm import assess_losses, frequency_loss
from bert_secrets_jax.ablation.outcomes import ANSWERS, assess_outcomes
from bert_secrets_jax.ablation.sweep import Descent
from bert_secrets_jax.analyses.common.effects import (
    draw_outcome,
    findings_of,
    findings_of_outcomes,
    label_of,
)
from bert_secrets_jax.analyses.patching import shares_of
from bert_secrets_jax.stats.effects import MARGIN, Outcome, loss_in
from bert_secrets_jax.stats.student import LEVEL
from tests.ablation.test_outcomes import margins
from tests.analyses.conftest import with_outliers
from tests.analyses.worlds import effects_of
from tests.conftest import killed_after_a_part, rarely

SETTINGS = {
    'ablation': {'masks': 'layers'},
    'ablation_over_seeds': {'masks': 'layers'},
    'masked_lm_ablation': {'masks': 'layers'},
    'interactions': {'heads': [(0, 0), (1, 2)]},
    'importance': {'methods': ['confidence']},
    'outliers': {'draws': 19},
    'pruning': {'shares': (0, 0.5), 'anew': False, 'methods': ['confidence'], 'draws': 1},
}
ONE = [bs.Example('the cat ran .', label=0)]
# The name of the further texts that an analysis needs.
OTHERS = {'pruning': 'measured_on'}
LABELLED = ('ablation', 'ablation_over_seeds', 'importance')
UNLABELLED = [bs.Example('the cat ran .'), bs.Example('a dog slept')]


@pytest.fixture
def analyse(masked_lm, tuned, texts):
    """Return a function that runs an analysis of the tiny model, briefly."""
    models = {'masked_lm_ablation': masked_lm, 'outliers': with_outliers(masked_lm, [5])}

    def run(name, texts=texts, *, of=None, **options):
        how = SETTINGS[name] | {'compute': bs.Compute(max_length=32)}
        if name in OTHERS:
            how[OTHERS[name]] = texts
        model = models.get(name, tuned) if of is None else of
        return getattr(bs.analyses, name)(model, texts, **how | options)

    return run


def told_apart(changes, **fields):
    """Return effects on telling texts apart: all that are not 0 are significant."""
    changes = np.array(changes, float)
    found = effects_of(
        changes, changes - 0.001, changes + 0.001, np.where(changes, 0.01, 1.0), heads=6
    )
    lead = loss_in('nats', name='discrimination')
    fields = {key: np.array(each) if type(each) is list else each for key, each in fields.items()}
    return dataclasses.replace(found, **{'outcome': lead} | fields)


KEPT = ['ablation_over_seeds', 'masked_lm_ablation', 'importance', 'pruning']


@pytest.mark.parametrize('name', rarely(KEPT, often=['ablation_over_seeds']))
def test_it_goes_on_where_it_was_killed(analyse, texts, name, tmp_path, monkeypatch):
    how = {'max_length': 32, 'tokens_per_batch': 128}
    expected = analyse(name, texts[:8], compute=bs.Compute(**how))
    kept = bs.Compute(folder=tmp_path, **how)
    with killed_after_a_part(monkeypatch):
        analyse(name, texts[:8], compute=kept)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*.npz')}
    assert times
    resumed = analyse(name, texts[:8], compute=kept)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert str(resumed) == str(expected)


@pytest.mark.parametrize(
    ('name', 'options', 'message'),
    [
        *(
            (name, {'masks': 'tails'}, "masks='tails' must be 'heads', 'layers' or")
            for name in ('ablation', 'ablation_over_seeds', 'masked_lm_ablation')
        ),
        *((name, {'texts': UNLABELLED}, 'has no label') for name in LABELLED),
        *((name, {'of': 'model'}, 'has no classifier') for name in LABELLED),
        ('importance', {'texts': ONE}, '1 given, at least 2 needed for an interval'),
        *(('ablation', {'metrics': [name]}, 'For 2 classes') for name in ('spearman', 'precision')),
        ('ablation', {'metrics': 'f1'}, "metrics='f1' must be a list of texts"),
        ('ablation', {'masks': 'one_head_left', 'choose_on': ONE}, 'no set has several'),
        ('outliers', {'draws': 18}, 'draws=18 must be a whole number from 19'),
        ('outliers', {'of': 'model', 'dimensions': (1,)}, '1 cannot be measured: load it with'),
        ('outliers', {'tuned': 'model'}, 'has no classifier'),
    ],
)
def test_what_is_refused(analyse, request, name, options, message, untyped, monkeypatch):
    """Before anything is swept."""
    monkeypatch.setattr(Descent, 'steps', None)
    models = {
        key: request.getfixturevalue(options[key]) for key in ('of', 'tuned') if key in options
    }
    with pytest.raises((ValueError, TypeError), match=message):
        analyse(name, **options | models)


SCALE = {'beyond': [0.01, 1, 0.01, 1, 1, 1], 'equivalent': [1, 0.01, 1, 0.01, 1, 1]}


@pytest.mark.parametrize(
    ('changes', 'fields', 'said'),
    [
        (
            [0.1] * 5 + [0],
            {},
            'Of 6 layers, each lost alone, 5 worsen telling texts apart by over 0.01 nats, 1 is '
            'open.',
        ),
        (
            [0.1, 0.1, -0.1, -0.1, 0, 0],
            {'fewest': (4, 3)},
            'Of 6 layers, each lost alone, 2 worsen telling texts apart by over 0.01 nats (L1-H1, '
            'L1-H2), 2 improve it, 2 are open. At least 3 worsen it, though not all can be named.',
        ),
        (
            [0] * 6,
            {},
            'Of 6 layers, each lost alone, none is shown to change telling texts apart by over '
            '0.01 nats, 6 are open. For a typical one, changes below about 0.022 nats stay open.',
        ),
        # A sure change may be a small one, or one of which neither is known.
        (
            [0.1, 0.01, -0.1, 0, 0.03, 0],
            SCALE | {'outcome': Outcome('f1', margin=MARGIN)},
            'Of 6 layers, each lost alone, 1 worsens F1 by over 0.5 points (L1-H3), 1 improves '
            'it, 2 do not matter, 2 are open.',
        ),
        (
            [0.1, 0.01, 0.1, 0, 0.03, 0],
            SCALE | {'outcome': ANSWERS},
            'Of 6 layers, each lost alone, 2 change the answers by over 5% of their spread, 2 '
            'do not matter, 2 are open.',
        ),
    ],
)
def test_every_mask_is_counted_once_by_what_losing_it_does(changes, fields, said):
    lead = told_apart(changes, detectable=[0.01, 0.011, 0.012, 0.012, 0.02, 0.03], **fields)
    found = {each.name: each.sentence for each in findings_of(lead, 'layers', source='')}
    assert found['layers: that matter'] == said


def test_each_effect_is_corrected_for_all():
    lead = told_apart([0.1, 0.0256, 0.01, 0, 0, 0])
    worst = {each.name: each for each in findings_of(lead, 'heads', source='')}[
        'heads: worst to lose'
    ]
    told = 'Heads: worst to lose (L1-H1): 0.1 nats (0.099 to 0.101, p = 0.01 after correction for 6'
    assert worst.sentence == f'{told} tests).'
    assert 'p = 0.01 after correction for 6 tests' in worst.certainty
    # Of one test alone, there is nothing to correct for.
    alone = effects_of([-0.1], [-0.2], [0.0], [0.04], [0.04], heads=1)
    (told,) = findings_of(alone, 'mine', source='')
    assert told.record.endswith('p = 0.04).')


def test_a_regression_is_told_in_words_of_its_error():
    rng = np.random.default_rng(0)
    values = rng.normal(size=300)
    logits = np.stack([values + 0.3 * rng.normal(size=300) for _ in range(3)])[..., None]
    logits[1] += rng.normal(size=(300, 1))
    found = assess_outcomes([logits], values, names=['L1-H1', 'L1-H2'])
    told = ' '.join(each.sentence for each in findings_of_outcomes(found, 'heads', source=''))
    said = '1 worsens the error after a fit of scale and offset by over'
    assert said in told and 'told apart' not in told and 'telling' not in told
    lead = found['discrimination']
    assert label_of(lead) == 'change after a fit of scale and offset (squared error)'
    assert draw_outcome('heads', lead, (1, 2)).caption.startswith('Change of the error after a fit')


@pytest.mark.parametrize('gain', [0, 0.6])
def test_a_masked_lm_is_compared_with_guessing_by_frequency(results, gain):
    """One that knows frequencies alone has just not learnt, and a better one just has."""
    warned, share = 0, 1 / np.arange(1, 301)
    share /= share.sum()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        words = rng.choice(300, (200, 4), p=share)
        losses, hidden = (-np.log(share[words]) - gain).sum(axis=1), np.full(200, 4)
        bar = frequency_loss(words.ravel())
        compared = assess_losses(losses[None], bar * hidden, hidden, names=['it'])
        result = dataclasses.replace(results['masked_lm_ablation'], guessing={'before': compared})
        warned += sum(each.warning for each in result.findings())
    assert warned <= 2 if gain else warned >= 38


@pytest.mark.parametrize(
    ('name', 'frame', 'change', 'corrected'),
    [
        ('ablation', 'heads', 'difference', 'p_holm'),
        ('ablation', 'heads_outcomes', 'difference', 'p_corrected'),
        ('ablation_over_seeds', 'heads', 'mean_points', 'p_holm'),
        ('ablation_over_seeds', 'heads_outcomes', 'difference', 'p_corrected'),
        ('masked_lm_ablation', 'heads', 'difference', 'p_max_t'),
        ('importance', 'heads', 'loss_difference', 'p_max_t'),
    ],
)
def test_findings_are_those_of_the_frame(results, name, frame, change, corrected, monkeypatch):
    """The worst head to lose, the number of those that matter, and their names."""
    told_apart = frame == 'heads_outcomes'
    frame = results[name].frames()[frame].iloc[:12]
    # These models have learnt nothing: of them, no head is called worst.
    assert not frame['learnt'].any()
    assert not any(word in str(results[name]) for word in (' best ', ' worst '))
    monkeypatch.setattr(sys.modules[f'bert_secrets_jax.analyses.{name}'], 'unless_noise', list)
    of_score = name.startswith('ablation') and not told_apart
    values = frame[change].to_numpy() * (100 if name == 'ablation' and of_score else 1)
    model = 'as it is' if 'masked' in name else ''
    told = {
        each.name: each
        for each in results[name].findings()
        if model in each.name and ('discrimination' in each.name) == told_apart
    }
    worst, counted = (
        next(each for label, each in told.items() if label.startswith('heads') and end in label)
        for end in ('worst to lose', 'that matter')
    )
    index = int(values.argmin() if of_score else values.argmax())
    assert worst.estimate == pytest.approx(values[index]) and worst.low <= worst.high
    assert worst.where == f'L{index // 4 + 1}-H{index % 4 + 1}'
    assert worst.p >= frame[corrected].iloc[index] - 1e-12 and counted.unit == 'of 12 heads'
    if 'verdict' in frame:
        matter = frame['verdict'].isin(['worse', 'better'])
        assert (frame[corrected][matter] <= LEVEL).all()
    else:
        matter = frame[corrected] <= LEVEL
    assert counted.estimate == matter.sum()


def test_a_head_that_half_of_the_fine_tunings_need_is_seen():
    rng = np.random.default_rng(8)
    labels, logits = rng.integers(2, size=300), []
    for seed in range(6):
        margin = 3.0 * (2 * labels - 1) + 2.5 * rng.normal(size=300)
        needed = margin * np.where(seed % 2, 1, rng.choice([-1, 1], 300, p=[0.2, 0.8]))
        idle = margin + 0.1 * rng.normal(size=(3, 300))
        logits.append(margins(np.stack([margin, needed, *idle])))
    found = assess_outcomes(logits, labels, names=[f'L1-H{each}' for each in range(1, 5)])
    lead = found['discrimination']
    assert lead.corrected[0] > 0.05
    np.testing.assert_array_equal(lead.seeds.needed_share, [0.5, 0, 0, 0])
    expected = scipy.stats.binomtest(3, 6).proportion_ci()
    ends = lead.seeds.needed_low[0], lead.seeds.needed_high[0]
    np.testing.assert_allclose(ends, [expected.low, expected.high])
    leading = next(findings_of(lead, 'heads', source='')).sentence
    assert leading.endswith('4 are open. Of the open ones, 1 does harm in some fine-tunings.')


def test_the_share_of_a_gap_has_the_interval_of_a_ratio():
    """As often as it says, where 60 % of the gap is closed."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(400):
        shared = rng.exponential(size=80)
        one, other = rng.normal(size=(2, 80))
        ((share, low, high),) = shares_of(0.6 * shared + one, shared + other)
        inside.append(low <= 0.6 <= high and low <= share <= high)
    assert 0.92 <= np.mean(inside) <= 0.98
    # A ratio without errors is certain.
    np.testing.assert_allclose(shares_of(0.75 * shared, shared), 0.75)
    assert np.isnan(shares_of(one, other - other.mean() + 0.01)).all()
