"""Minimal pairs are scored as in PyTorch, and what is said of heads keeps its error rates."""

import dataclasses
import json
import lzma

import numpy as np
import pytest
import scipy.special

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.minimal_pairs import (
    ALL,
    MinimalPairs,
    Told,
    assess_preference,
    labelled,
)
from bert_secrets_jax.stats.agreement import without_noise
from bert_secrets_jax.stats.correlations import spearman
from tests.conftest import REAL_DATA, forward

# Words of several wordpieces, and one that is unknown.
PAIRS = [
    bs.MinimalPair('the cat ran .', 'the cat sleeping .', 'one'),
    bs.MinimalPair('he is unlikely it ran', 'it ran', 'one'),
    bs.MinimalPair('a dog saw it', 'dog a saw it', 'two'),
    bs.MinimalPair('the unlikely cat', 'the unsleeping cat', 'two'),
]


def in_pytorch(model, directory, text, rest_of_word):
    """Add up the log-probability of each wordpiece, in a loop over those that are known."""
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    bs.save_pretrained(model, directory)
    theirs = transformers.BertForMaskedLM.from_pretrained(directory).eval()
    encoded = model.tokenizer(text, return_tensors='pt')
    words, total = encoded.word_ids(), 0.0
    for place, word in enumerate(words):
        asked = encoded['input_ids'][0, place]
        if word is None or asked == model.tokenizer.unk_token_id:
            continue
        ids = encoded['input_ids'].clone()
        rest = [each for each, of in enumerate(words) if of == word and each > place]
        ids[0, [place, *(rest if rest_of_word else [])]] = model.tokenizer.mask_token_id
        with torch.no_grad():
            logits = theirs(**{**encoded, 'input_ids': ids}).logits
        total += float(torch.log_softmax(logits[0, place], -1)[asked])
    return total


@pytest.mark.parametrize('rest_of_word', [False, True])
def test_scores_equal_a_loop_in_pytorch(masked_lm_of, tmp_path, rest_of_word):
    model = masked_lm_of()
    found = bs.analyses.minimal_pairs(model, PAIRS, rest_of_word=rest_of_word)
    scores = np.array(
        [
            [in_pytorch(model, tmp_path, text, rest_of_word) for text in (pair.good, pair.bad)]
            for pair in PAIRS
        ]
    )
    expected = scores[:, 0] - scores[:, 1]
    means = [found.effects[name].intact for name in ('one', 'two')]
    np.testing.assert_allclose(means, expected.reshape(2, 2).mean(axis=1), rtol=1e-4)
    assert found.told[ALL] == Told(
        int((expected > 0).sum()), 4, lengths_differ=3, unknown=2, alike=0
    )
    other = bs.analyses.minimal_pairs(model, PAIRS, rest_of_word=not rest_of_word)
    assert np.abs(other.effects[ALL].intact - found.effects[ALL].intact) > 1e-4
    with pytest.raises(ValueError, match='rest_of_word=True needs one_at_a_time=True'):
        bs.Masking(rest_of_word=True)


def test_a_classifier_scores_by_one_class(pretrained):
    found = bs.analyses.minimal_pairs(pretrained, PAIRS, label='yes', baseline='zero')
    (batch,) = bs.encode(
        pretrained.tokenizer, [text for pair in PAIRS for text in (pair.good, pair.bad)], fewest=9
    )
    rows = np.argsort(batch.example)[-8:]
    mask = np.ones((3, 4), np.float32)
    mask[1, 2] = 0
    for index, given in ((None, {}), (6, {'head_mask': mask, 'baseline': 'zero'})):
        logits = np.asarray(
            forward(pretrained.bert, pretrained.params, batch.inputs, **given).logits
        )
        likely = scipy.special.log_softmax(logits[rows], axis=-1)[:, 1].reshape(4, 2)
        expected = (likely[:, 0] - likely[:, 1]).mean()
        whole = found.effects[ALL]
        value = whole.intact if index is None else whole.value[index]
        assert value == pytest.approx(expected, abs=1e-5)
    assert found.scored_by == "the log-probability of 'yes'"
    assert bs.analyses.minimal_pairs(pretrained, PAIRS, label=1).told == found.told


def test_an_embedding_prefers_what_is_closer_to_a_third_text(model):
    anchored = [dataclasses.replace(pair, anchor='the cat saw it') for pair in PAIRS]
    embedder = bs.with_pooling(model, 'mean')
    found = bs.analyses.minimal_pairs(embedder, anchored, baseline='zero')
    without = bs.masks.disable(embedder.config, [[(1, 2)]])[0]
    for mask, value in ((None, found.effects[ALL].intact), (without, found.effects[ALL].value[6])):
        vectors = [
            bs.embed(embedder, texts, head_mask=mask, baseline='zero', normalised=True)
            for texts in (['the cat saw it'], [p.good for p in PAIRS], [p.bad for p in PAIRS])
        ]
        anchor, good, bad = vectors
        assert value == pytest.approx(((good - bad) @ anchor[0]).mean(), abs=1e-5)
    assert found.effects[ALL].outcome.unit == 'cosine' and 'third text' in found.notes()[0]
    for pairs, label in ((anchored, 'yes'), ([*anchored, *PAIRS], None)):
        with pytest.raises(ValueError, match='Give all pairs an anchor, and no label'):
            bs.analyses.minimal_pairs(embedder, pairs, label=label)


def test_shapley_values_add_up_to_the_accuracy(masked_lm_of):
    found = bs.analyses.minimal_pairs(masked_lm_of(), PAIRS, permutations=20, baseline='zero')
    for name, (values, _) in found.shapley.items():
        rest = found.told[name].accuracy[0] - values.sum()
        # The accuracy without any head is that of two pairs, or of four.
        assert min(abs(rest - each / 4) for each in range(5)) < 1e-9
    frame = found.frames()['heads']
    assert set(frame['phenomenon']) == {ALL, 'one', 'two'}
    np.testing.assert_allclose(frame['shapley_points'][-12:], 100 * found.shapley['two'][0].ravel())


def test_alike_texts_are_told_and_not_right(masked_lm_of):
    same = [bs.MinimalPair(f'The {word}', f'the {word}', 'case') for word in ('cat', 'xyz')]
    found = bs.analyses.minimal_pairs(masked_lm_of(), same)
    assert found.told[ALL] == Told(0, 2, lengths_differ=0, unknown=1, alike=2)
    said = '1 with unknown words, 2 with the same wordpieces in both texts (told wrong)'
    assert said in found.notes()[1] and found.findings()[0].warning


@pytest.mark.parametrize(
    ('pairs', 'changes', 'message'),
    [
        (PAIRS[:3], {}, "too few pairs of 'two': 1 given.* for an interval: leave it"),
        ([], {}, 'There are no minimal pairs'),
        (PAIRS, {'label': 'yes'}, 'is for classifiers'),
        (PAIRS, {'baseline': 'none'}, 'baseline'),
        (PAIRS, {'permutations': 3}, 'must be even'),
    ],
)
def test_what_does_not_fit_is_named(masked_lm_of, pairs, changes, message):
    with pytest.raises(ValueError, match=message):
        bs.analyses.minimal_pairs(masked_lm_of(), pairs, **changes)


def test_models_and_labels_that_do_not_fit_are_named(pretrained, model):
    for label, message in (
        (None, 'one of no, yes, perhaps'),
        ('yess', 'yes'),
        (3, 'must be 0, 1 or 2'),
    ):
        with pytest.raises(ValueError, match=message):
            bs.analyses.minimal_pairs(pretrained, PAIRS, label=label)
    with pytest.raises(ValueError, match='scores no texts'):
        bs.analyses.minimal_pairs(model, PAIRS)
    with pytest.raises(ValueError, match='a list of MinimalPair'):
        bs.analyses.minimal_pairs(pretrained, [('a', 'b')], label=1)


def simulated(rng, heads, effects, *, pairs=40):
    """Return the result of effects [F, M] on pairs that differ, with skewed noise."""
    of = {ALL: np.arange(len(effects) * pairs)}
    of |= {f'{row}': np.arange(row * pairs, (row + 1) * pairs) for row in range(len(effects))}
    intact = rng.normal(size=len(effects) * pairs)
    noise = 1 - rng.exponential(size=(heads, len(intact)))
    changes = np.repeat(effects, pairs, axis=0).T + noise
    names = [f'L1-H{head + 1}' for head in range(heads)]
    fields = assess_preference(np.stack([intact, *(intact + changes)]), of, names=names, seed=0)
    told = {name: Told(pairs // 2, pairs, 0, 0, 0) for name in of}
    return labelled(MinimalPairs('scores', 'zero', (1, heads), told, **fields))


@pytest.mark.parametrize('worlds', [12, pytest.param(300, marks=pytest.mark.slow)])
def test_heads_that_some_phenomenon_needs_keep_the_error_rate(worlds):
    """One head of eight is needed for one phenomenon of four; all else has no effect."""
    rng, heads = np.random.default_rng(0), 8
    effects = np.zeros((4, heads))
    effects[1, 3] = -0.9
    needed = np.stack([simulated(rng, heads, effects).needed for _ in range(worlds)])
    assert needed[:, 1, 3].mean() > 0.75
    needed[:, 1, 3] = False
    # At most 5 %, and what 12 or 300 worlds may show by chance.
    assert needed.any(axis=(1, 2)).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / worlds)


def test_correlations_are_corrected_for_noise():
    """Two phenomena share some heads; a third has others."""
    rng, heads = np.random.default_rng(1), 60
    found = []
    for _ in range(4):
        common = rng.normal(size=heads)
        own = rng.normal(size=(3, heads))
        effects = 0.25 * np.stack([common + 0.5 * own[0], common + 0.5 * own[1], own[2]])
        result = simulated(rng, heads, effects)
        frame = result.frames()['shared']
        true = [spearman(effects[a], effects[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
        found.append([frame['rank_correlation'], frame['without_noise'], true])
    raw, corrected, true = np.mean(found, axis=0)
    assert raw[0] < true[0] - 0.15 and abs(corrected[0] - true[0]) < 0.1
    assert np.abs(corrected[1:] - true[1:]).max() < 0.15
    assert without_noise(-0.9, 0.5, 0.5) == -1 and np.isnan(without_noise(0.5, 0.9, 0.2))
    assert np.isnan(without_noise(0.5, 0.9, np.nan)) and without_noise(0.4, 0.8) == 0.5


def test_pairs_are_read(tmp_path):
    path = tmp_path / 'pairs.jsonl.xz'
    rows = [{'sentence_good': 'a', 'sentence_bad': 'b', 'UID': 'x', 'more': 1}, {'good': 'a'}]
    lines = ''.join(json.dumps(row) + '\n' for row in rows)
    path.write_bytes(lzma.compress(lines.encode()))
    names = {'good': 'sentence_good', 'bad': 'sentence_bad', 'phenomenon': 'UID'}
    (read,) = bs.read_pairs(path, **names, bad_rows='skip')
    assert read == bs.MinimalPair('a', 'b', 'x', id='pairs/0') and read.where.endswith('line 1')
    with pytest.raises(ValueError, match="line 2: no 'sentence_good'"):
        bs.read_pairs(path, **names)
    for given in ({'good': ' '}, {'bad': 'a'}):
        with pytest.raises(ValueError, match='must be a text that is not empty|neither can be'):
            dataclasses.replace(read, **given)


def test_the_embedded_pairs_are_four_phenomena_and_our_own():
    pairs = bs.pairs_sample()
    names, counts = np.unique([each.phenomenon for each in pairs], return_counts=True)
    assert len(names) == 4 and (counts == 15).all() and len({each.good for each in pairs}) == 60
    for pair in pairs:
        good, bad = pair.good.rstrip('.').split(), pair.bad.rstrip('.').split()
        assert len(set(good) ^ set(bad)) <= 4 and abs(len(good) - len(bad)) <= 1, pair
    blimp = REAL_DATA / 'blimp' / 'blimp.jsonl.xz'
    if blimp.exists():
        names = {'good': 'sentence_good', 'bad': 'sentence_bad', 'phenomenon': 'UID'}
        # Seven of its pairs are twice the same text.
        theirs = bs.read_pairs(blimp, **names, bad_rows='skip')
        assert len(theirs) == 66_993 and len({each.phenomenon for each in theirs}) == 67
        assert not {each.good for each in theirs} & {each.good for each in pairs}
