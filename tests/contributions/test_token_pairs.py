"""Which pairs of tokens make two texts similar: sums, a loop in PyTorch, and a published map."""

import os
import pathlib

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.token_pairs import paired_tokens
from bert_secrets_jax.model.weights import from_pretrained, without_head
from tests.conftest import PAIRS, relative
from tests.contributions.reference import random_model

COMPUTE = bs.Compute(max_length=24)
PUBLISHED = (
    'The dog runs after the kitten in the yard.',
    'Outside in the garden the cat is chased by the dog.',
)


@pytest.fixture(scope='module')
def encoder(config, tokenizer):
    return bs.with_pooling(random_model(config, tokenizer, scale=0.1), 'mean')


@pytest.fixture(scope='module')
def paired(encoder):
    return paired_tokens(encoder, PAIRS, layer=1, steps=12, compute=COMPUTE)


def check_sums(few, many):
    """The error falls with the steps."""
    size = np.abs(many.contributions).sum()
    assert abs(few.error) > 1e-4 * size and abs(many.error) < 1e-5 * size
    assert size > 1e-3 and many.contributions.std() > 1e-5


def test_contributions_sum_to_the_similarity(encoder, paired):
    few = paired_tokens(encoder, PAIRS, layer=1, steps=1, compute=COMPUTE)
    for pair in zip(few, paired, strict=True):
        check_sums(*pair)


@pytest.mark.slow
@pytest.mark.parametrize(
    ('model_type', 'pooling'),
    [
        ('bert', 'cls'), ('bert', 'weightedmean'), ('modernbert', 'mean'), ('mpnet', 'mean'),
        ('esm', 'mean'), ('albert', 'mean'), ('deberta-v2', 'mean'),
    ],
)  # fmt: skip
def test_contributions_sum_to_the_similarity_in_others(config, tokenizer, model_type, pooling):
    model = random_model(relative(config, model_type), tokenizer, scale=0.1)
    how = {'layer': 1, 'pooling': pooling, 'compute': COMPUTE}
    check_sums(*(paired_tokens(model, PAIRS[:1], steps=steps, **how)[0] for steps in (1, 16)))


def test_contributions_are_those_of_whole_jacobians_in_pytorch(
    encoder, paired, tokenizer, tmp_path
):
    """As Moeller et al. compute them, but for the places of the steps."""
    torch = pytest.importorskip('torch')
    transformers = pytest.importorskip('transformers')
    bs.save_pretrained(without_head(encoder), tmp_path)
    theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation='eager').eval()
    places, shares = np.polynomial.legendre.leggauss(12)

    def of_text(text):
        given = tokenizer(text, return_tensors='pt')
        keep = torch.tensor(tokenizer.get_special_tokens_mask(given['input_ids'][0], None, True))
        start = torch.where(keep.bool(), given['input_ids'], tokenizer.pad_token_id)
        with torch.no_grad():
            end, start = (
                theirs(**given | {'input_ids': ids}, output_hidden_states=True).hidden_states[1]
                for ids in (given['input_ids'], start)
            )

        def pooled(hidden):
            for layer in theirs.encoder.layer[1:]:
                out = layer(hidden)
                hidden = out[0] if isinstance(out, tuple) else out
            return hidden.mean(dim=1)[0]

        jacobian = 0
        for at, share in zip(places, shares, strict=True):
            point = start + (1 + at) / 2 * (end - start)
            jacobian += share / 2 * torch.autograd.functional.jacobian(pooled, point)[:, 0]
        with torch.no_grad():
            embeddings = pooled(end).numpy(), pooled(start).numpy()
        return torch.einsum('dti,ti->td', jacobian, (end - start)[0]).numpy(), *embeddings

    (one, a, r), (other, b, s) = map(of_text, PAIRS[0])
    found = paired_tokens(encoder, PAIRS, layer=1, steps=12, similarity='dot', compute=COMPUTE)[0]
    tolerance = 1e-5 * np.abs(one @ other.T).max()
    np.testing.assert_allclose(found.contributions, one @ other.T, atol=tolerance)
    np.testing.assert_allclose(found.similarity, a @ b, rtol=1e-5)
    np.testing.assert_allclose(found.reference, a @ s + r @ b - r @ s, rtol=1e-4)
    scale = np.linalg.norm(a) * np.linalg.norm(b)
    cosine = paired[0].contributions
    np.testing.assert_allclose(cosine, one @ other.T / scale, atol=tolerance / scale)
    np.testing.assert_allclose(paired[0].similarity, a @ b / scale, rtol=1e-5)


def test_deletion_is_that_of_texts_without_tokens(encoder, paired):
    words = [text.split() for text in PAIRS[1]]
    lost = [' '.join(text[:1] + text[2:]) for text in words]
    one, other, without_one, without_other = bs.embed(
        encoder, [*PAIRS[1], *lost], normalised=True, compute=COMPUTE
    )
    expected = [without_one @ other, one @ without_other, without_one @ without_other]
    # Word 2 of each is token 2, after [CLS].
    found = paired[1]
    given = found.without_first[2], found.without_second[2], found.without_both[2, 2]
    np.testing.assert_allclose(given, expected, atol=2e-6)
    first, second, both = expected
    together = found.similarity - first - second + both
    np.testing.assert_allclose(found.interactions[2, 2], together, atol=5e-6)
    alone = found.without_first, found.without_second
    for side, values in zip(found.special, alone, strict=True):
        assert side.tolist() == np.isnan(values).tolist() and side.sum() == 2


def test_other_texts_and_blocks_change_nothing(encoder, paired):
    compute = bs.Compute(max_length=24, chunk_tokens=24)
    (alone,) = paired_tokens(encoder, PAIRS[1:2], layer=1, steps=12, compute=compute)
    for name in ('contributions', 'without_both', 'similarity', 'reference'):
        np.testing.assert_allclose(getattr(alone, name), getattr(paired[1], name), atol=3e-6)
    assert alone.tokens == paired[1].tokens


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'layer': 3}, 'number of layers below, layer=3 must be 0, 1 or 2'),
        ({'similarity': 'cosin'}, 'cosine'),
        ({'pooling': 'average'}, 'pooling'),
    ],
)
def test_what_does_not_fit_is_named(encoder, given, message):
    with pytest.raises(ValueError, match=message):
        paired_tokens(encoder, PAIRS, **given)


@pytest.mark.slow
@pytest.mark.usefixtures('optimized')
def test_the_published_map():
    """The authors' notebook demo_shelf_model.ipynb: read off its picture, by colours."""
    folder = pathlib.Path(os.environ.get('BERT_SECRETS_MPNET', '/tmp/r40x/mpnet/all-mpnet-base-v2'))
    if not folder.exists():
        pytest.skip(f'needs {folder}')
    (found,) = paired_tokens(from_pretrained(folder), [PUBLISHED], layer=10, steps=10)
    place = [{token: at for at, token in enumerate(tokens)} for tokens in found.tokens]
    for (one, other), value in {
        ('kitten', 'cat'): 0.5, ('dog', 'dog'): 0.36, ('yard', 'garden'): 0.33,
        ('yard', 'cat'): -0.13, ('kitten', 'garden'): -0.13,
    }.items():  # fmt: skip
        assert found.contributions[place[0][one], place[1][other]] == pytest.approx(value, abs=0.03)
    assert abs(found.error) < 3e-3
