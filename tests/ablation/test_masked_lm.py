"""The loss of a masked LM under masks of heads: as in PyTorch, and its statistics."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masked_lm import assess_losses
from tests.conftest import forward

TEXTS = [
    'the cat saw a big red house and the dog ran',
    'she liked it',
    'a bird chased the small cat , and not the dog .',
    'he ran',
    'the old teacher ran and the new friend never liked a big dog or the cat !',
]


@pytest.fixture(scope='module')
def model(masked_lm):
    return masked_lm


def hidden_of(masked):
    """Return the hidden wordpieces of each row, by its number."""
    return {
        int(row): {
            int(place): int(word)
            for place, word in zip(batch.places[index], batch.words[index], strict=True)
            if word >= 0
        }
        for batch in masked.batches
        for index, row in enumerate(batch.example)
        if row >= 0
    }


def test_what_is_hidden(model):
    tokenizer = model.tokenizer
    masked = bs.mask_words(tokenizer, TEXTS, masking=bs.Masking(share=0.3))
    plain = bs.tokenize(tokenizer, TEXTS)
    for row, words in hidden_of(masked).items():
        count = int(known(model, plain)[row].sum())
        assert len(words) == max(1, round(0.3 * count)) == masked.hidden[row]
        for place, word in words.items():
            assert plain.input_ids[row, place] == word and plain.text[row, place] == 0
    for batch in masked.batches:
        shown = batch.input_ids == tokenizer.mask_token_id
        assert shown.sum() == (batch.words >= 0).sum()
    # The same of each text whatever the batches, and other wordpieces with another seed.
    again = bs.mask_words(
        tokenizer, TEXTS, masking=bs.Masking(share=0.3), tokens_per_batch=16, buckets=(8, 16)
    )
    assert hidden_of(again) == hidden_of(masked)
    other = bs.mask_words(tokenizer, TEXTS, masking=bs.Masking(share=0.3, seed=1))
    assert hidden_of(other) != hidden_of(masked)


def known(model, plain):
    return (plain.text >= 0) & (plain.input_ids != model.tokenizer.unk_token_id)


def test_unknown_words_are_not_asked_for(model):
    unknown = model.tokenizer.unk_token_id
    masked = bs.mask_words(model.tokenizer, ['the xyz cat'], masking=bs.Masking(one_at_a_time=True))
    assert len(masked.text) == 2 and unknown not in masked.batches[0].words
    with pytest.raises(ValueError, match='text/1 has no wordpiece that can be hidden'):
        bs.mask_words(model.tokenizer, ['the cat', 'xyz'])
    with pytest.raises(ValueError, match='share=15.0 must be a number from 1e-06'):
        bs.Masking(share=15.0)


@jax.jit
def log_probabilities(logits):
    return jax.nn.log_softmax(logits, axis=-1)


@pytest.mark.parametrize(
    ('model_type', 'baseline'),
    [
        *((each, 'uniform') for each in ('bert', 'albert', 'electra', 'modernbert', 'eurobert')),
        *(('bert', 'resample'), ('roberta', 'zero'), ('esm', 'mean')),
    ],
)
def test_losses_equal_those_of_forward_passes(masked_lm_of, model_type, baseline):
    model = masked_lm_of(model_type)
    how = {'masking': bs.Masking(share=0.3, seed=2)}
    masks = np.concatenate([np.ones((1, 3, 4)), bs.masks.single_heads(model.config)])
    masked = bs.mask_words(model.tokenizer, TEXTS, max_length=24, **how)
    settings = {'baseline': baseline}
    if baseline == 'mean':
        settings['replacement'] = bs.mean_contexts(model, masked.batches)
    found = bs.masked_lm_losses(
        model, TEXTS, masks, baseline=baseline, compute=bs.Compute(max_length=24), **how
    )
    assert found.losses.shape == (13, 5)
    np.testing.assert_array_equal(found.hidden, masked.hidden)
    means = found.losses.sum(axis=1) / masked.hidden.sum()
    np.testing.assert_allclose(found.means, means, rtol=1e-6)
    if baseline == 'resample':
        assert np.abs(found.losses[1:] - found.losses[0]).max() > 1e-3
        masks, settings = masks[:1], {}
    for mask, losses in zip(masks, found.losses, strict=False):
        for batch in masked.batches:
            output = forward(model.bert, model.params, batch.inputs, head_mask=mask, **settings)
            likely = np.asarray(log_probabilities(output.logits))
            rows = np.arange(len(likely))[:, None]
            of_words = np.where(batch.words >= 0, likely[rows, batch.places, batch.words], 0)
            real = batch.example >= 0
            expected = -of_words.sum(axis=1)[real]
            np.testing.assert_allclose(losses[batch.example[real]], expected, rtol=2e-5)


def test_the_head_of_the_model_that_was_tuned(model, masked_lm_of):
    tuned = bs.with_classifier(model, ('a', 'b'))
    changed = jax.tree.map(lambda leaf: leaf * 1.5, tuned.params)
    tuned = dataclasses.replace(tuned, params=changed)
    again = bs.with_masked_lm(tuned, model)
    assert again.config == model.config
    for name, source in (('layers', tuned), ('embeddings', tuned), ('lm', model)):
        jax.tree.map(np.testing.assert_array_equal, again.params[name], source.params[name])
    with pytest.raises(ValueError, match='no head of a masked LM'):
        bs.with_masked_lm(model, tuned)
    with pytest.raises(ValueError, match=r'no head of a masked LM.*bs\.with_masked_lm'):
        bs.masked_lm_losses(tuned, TEXTS, np.ones((1, 3, 4)))
    with pytest.raises(ValueError, match='does not fit'):
        bs.with_masked_lm(masked_lm_of('bert', intermediate_size=48), model)


def test_copies_of_a_text_are_no_donors(model):
    how = {'masking': bs.Masking(one_at_a_time=True), 'baseline': 'resample'}
    with pytest.raises(ValueError, match='copies of the same text'):
        bs.masked_lm_losses(model, TEXTS, np.ones((1, 3, 4)), **how)


def test_an_effect_is_counted_by_wordpiece():
    """A text of many wordpieces weighs more than one of few."""
    hidden = np.array([1, 3, 2])
    intact = np.array([2.0, 6.0, 4.0])
    losses = intact + np.array([[0.5, 0.0, 0.1], [0.0, 0.0, 0.0]])
    found = assess_losses(losses, intact, hidden)
    np.testing.assert_allclose(found.difference, [0.1, 0.0])
    assert found.intact == 2.0 and found.sample == 3
    assert -found.low[1] == found.high[1] > 0 and found.corrected[1] == 1
