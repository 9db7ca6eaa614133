"""Fine-tuning of embeddings: the losses by hand, PyTorch's step, and that they learn."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.finetune import pairs
from bert_secrets_jax.finetune.steps import Steps

WORDS = ['cat', 'dog', 'tree', 'house', 'bird']
PAIRS = [
    bs.Example(f'the {a} saw', f'a {b} ran', float(a == b)) for a in WORDS for b in WORDS
]  # fmt: skip
SETTINGS = {'epochs': 12, 'learning_rate': 1e-2, 'batch_size': 5, 'micro_batch': 5}


def without_dropout(model):
    config = dataclasses.replace(
        model.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return bs.Pretrained(bs.Bert(config), model.params, model.tokenizer)


@pytest.mark.parametrize('loss', pairs.LOSSES)
def test_the_loss_of_a_step_is_that_of_the_embeddings(model, loss, monkeypatch):
    """Whatever the order and the padding: that of the cosines of `bs.embed`."""
    model = without_dropout(model)
    train = [each for each in PAIRS if each.label == 1] if loss == 'contrastive' else PAIRS[:6]
    seen = []
    take = Steps.take
    monkeypatch.setattr(
        Steps, 'take', lambda *args: seen.append(take(*args)) or seen[-1]
    )  # fmt: skip
    settings = {'epochs': 1, 'batch_size': 8, 'micro_batch': 4}
    bs.finetune_embedding(model, train, PAIRS, loss=loss, pooling='mean', **settings)
    one, other = (
        bs.embed(model, [each.texts[side] for each in train], pooling='mean', normalised=True)
        for side in (0, 1)
    )
    cosines = one @ other.T
    wanted = (np.diagonal(cosines) - [each.label for each in train]) ** 2
    if loss == 'contrastive':
        odds = np.exp(20 * cosines)
        wanted = -np.log(np.diagonal(odds) / odds.sum(axis=1))
    # Empty rows fill the batch up and count for nothing.
    ((_, losses),) = seen
    np.testing.assert_allclose(losses, [wanted.mean()], rtol=1e-4)


@pytest.mark.parametrize('loss', pairs.LOSSES)
def test_embeddings_are_learnt_and_read_again(model, tmp_path, loss):
    # As many steps of either loss.
    train = [each for each in PAIRS if each.label == 1] * 5 if loss == 'contrastive' else PAIRS
    made = [
        bs.finetune_embedding(
            model, train, PAIRS, loss=loss, pooling='mean', folder=tmp_path, **SETTINGS
        )
        for _ in range(2)
    ]
    assert made[0].history == made[1].history and made[1].tested == 'pearson'
    before, after = (rows[0]['pearson'] for rows in (made[0].first_scores, made[0].scores))
    assert after > max(before, 0.6) and made[0].learnt
    tuned = made[1].models[0]
    sides = [bs.embed(tuned, [each.texts[side] for each in PAIRS]) for side in (0, 1)]
    one, other = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in sides)
    found = np.corrcoef((one * other).sum(axis=1), [each.label for each in PAIRS])[0, 1]
    assert found == pytest.approx(made[0].scores[0]['pearson'], abs=1e-5)
    with pytest.raises(ValueError, match='another fine-tuning|scale|loss='):
        bs.finetune_embedding(
            model, train, PAIRS, loss=loss, scale=3.0, pooling='mean', folder=tmp_path, **SETTINGS
        )


@pytest.mark.parametrize(
    ('train', 'others', 'message'),
    [
        ([], {}, 'There are no training pairs'),
        ([bs.Example('a cat', 'a dog', 4.5)], {}, 'from -1 to 1 .grades of STS-B divided by 5'),
        ([bs.Example('a cat', 'a dog')], {}, 'has the label None'),
        ([bs.Example('a cat', 'a dog', 0.0)], {'loss': 'contrastive'}, 'leave out the others'),
        (PAIRS, {'loss': 'triplet'}, "loss='triplet' must be"),
        (PAIRS, {'scale': 0.0}, 'scale=0.0 must be a number from 0 .* but not 0'),
        (PAIRS, {'pooling': None}, 'does not say how it pools'),
    ],
)
def test_what_cannot_be_learnt_is_refused(model, train, others, message):
    with pytest.raises(ValueError, match=message):
        bs.finetune_embedding(model, train, PAIRS, **{'pooling': 'mean'} | others)
    with pytest.raises(TypeError, match='is a single text'):
        bs.finetune_embedding(model, [bs.Example('a cat', None, 1.0)], PAIRS, pooling='mean')
