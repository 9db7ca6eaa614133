"""Maps with their tokens, and what bertviz makes of them."""

import dataclasses
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses import example_maps
from bert_secrets_jax.contributions.attention_maps import KINDS
from bert_secrets_jax.contributions.layerwise import LAYERWISE, attention_graph, rollout
from bert_secrets_jax.contributions.scores import token_scores
from tests.conftest import forward


def example(text_a, text_b=None):
    return bs.Example(text_a, text_b, id='own/0')


def test_maps_are_the_model_s_without_padding(pretrained):
    pairs = [
        example('the unlike cat', 'a dog ran .'),
        example('he saw the big red house and a small tree', 'she slept'),
    ]
    found = bs.attention_maps(pretrained, pairs, max_length=30)
    assert list(found[0].tokens) == '[CLS] the un ##like cat [SEP] a dog ran . [SEP]'.split()
    assert found[0].second == 6 and found[1].tokens[found[1].second] == 'she'
    for pair, maps in zip(pairs, found, strict=True):
        encoded = pretrained.tokenizer(pair.text_a, pair.text_b, return_tensors='np')
        expected = forward(pretrained.bert, pretrained.params, dict(encoded)).attentions[0]
        np.testing.assert_allclose(maps.attentions, expected, atol=2e-6)
        assert maps.attentions.shape == (3, 4, len(maps.tokens), len(maps.tokens))


def test_further_maps_are_those_of_the_text_by_itself(pretrained):
    """Without padding: of norms a map for each head, of the others one for all heads of a layer."""
    text, kinds = 'the cat saw a dog', ['norms', 'rollout', *LAYERWISE]
    (plain,) = bs.attention_maps(pretrained, [text])
    (maps,) = bs.attention_maps(pretrained, [text], kinds=kinds)
    np.testing.assert_allclose(maps.attentions, plain.attentions, atol=1e-6)
    assert plain.further == {} and set(maps.further) == set(kinds)
    (batch,) = bs.encode(pretrained.tokenizer, [text], max_length=7, buckets=())
    assert batch.lengths.max() == 7
    for kind in kinds:
        of_batch = jax.jit(KINDS[kind], static_argnums=0)(pretrained.bert, pretrained.params, batch)
        assert maps.further[kind].shape == (3, 4 if kind == 'norms' else 1, 7, 7)
        np.testing.assert_allclose(maps.further[kind], of_batch[batch.example.argmax()], atol=2e-5)
        np.testing.assert_allclose(maps.further[kind].sum(axis=-1), 1, rtol=1e-4)
    product = rollout(attention_graph(jnp.asarray(plain.attentions[None])))[0]
    np.testing.assert_allclose(maps.further['rollout'][:, 0], product, atol=2e-5)


def test_tokens_are_scored_for_what_is_predicted(pretrained):
    texts = [example('the Unlike cat'), example('a dog ran .')]
    methods = ('gradient x input', 'rollout')
    found = bs.attention_maps(pretrained, texts, methods=methods)
    expected = token_scores(pretrained, texts, methods=methods)
    for maps, logits, *scores in zip(
        found, expected.logits, *(expected.scores[method] for method in methods), strict=True
    ):
        shares = np.exp(logits) / np.exp(logits).sum()
        name = ('no', 'yes', 'perhaps')[shares.argmax()]
        assert maps.prediction == f'{name} ({shares.max():.2f})'
        for method, values in zip(methods, scores, strict=True):
            np.testing.assert_allclose(maps.scores[method], values, rtol=1e-5, atol=1e-7)
    whole, pieces = found[0].of_words(), found[0].scores[methods[0]]
    assert list(whole.tokens) == ['[CLS]', 'the', 'Unlike', 'cat', '[SEP]']
    assert whole.scores[methods[0]][2] == pytest.approx(pieces[2] + pieces[3])
    assert whole.prediction == found[0].prediction


def test_what_a_model_cannot_show_is_named(pretrained):
    with pytest.raises(ValueError, match="kinds='norm' must .* 'GlobEnc'. Did you mean norms"):
        bs.attention_maps(pretrained, ['the cat'], kinds=['norm'])
    config = dataclasses.replace(pretrained.config, label_names=())
    without = bs.Pretrained(bs.Bert(config), pretrained.params, pretrained.tokenizer)
    with pytest.raises(ValueError, match='no classifier of whole texts'):
        bs.attention_maps(without, ['the cat'], methods=['rollout'])
    (maps,) = example_maps(without, ['the cat ran']).first
    assert {*maps.further, 'weights'} == set(KINDS) and maps.scores == {}
    with pytest.raises(ValueError, match='is not known: bs.attention_maps'):
        bs.TokenMaps(['a', 'b'], np.ones((1, 1, 2, 2))).of_words()


MAPS = (2, 3, 2, 2)


@pytest.mark.parametrize(
    ('shape', 'further', 'message'),
    [
        ((1, 2, 3, 3), {}, r'must be .* = \[any, any, 2, 2\], got \[1, 2, 3, 3\]'),
        ((1, 1, 2, 2, 2), {}, 'leave the batch and padding out'),
        (
            MAPS,
            {'further': {'norms': np.ones((2, 2, 2, 2))}},
            r"'norms' must be .*, got \[2, 2, 2, 2\], as those of attention or with one head",
        ),
        (
            MAPS,
            {'scores': {'ALTI': np.zeros(3)}},
            r"'ALTI' must be \[tokens\] = \[2\], got \[3\], one for each",
        ),
        (MAPS, {'word': np.array([0, 0])}, 'give word and words, or neither'),
        (MAPS, {'word': np.array([0]), 'words': ['ab']}, '2 tokens need as many numbers of the 1'),
        (MAPS, {'word': np.array([0, 1]), 'words': ['ab']}, '2 tokens need as many numbers of the'),
    ],
)
def test_maps_of_other_tokens_are_refused(shape, further, message):
    with pytest.raises(ValueError, match=message):
        bs.TokenMaps(['a', 'b'], np.ones(shape), **further)


def test_bertviz_gets_a_tensor_for_each_layer(pretrained):
    torch = pytest.importorskip('torch')
    (maps,) = bs.attention_maps(pretrained, [example('the cat', 'a dog')])
    given = bs.to_bertviz(maps)
    assert set(given) == {'attention', 'tokens', 'sentence_b_start'}
    assert len(given['attention']) == 3 and given['sentence_b_start'] == 4
    assert given['tokens'] == ['[CLS]', 'the', 'cat', '[SEP]', 'a', 'dog', '[SEP]']
    for layer, expected in zip(given['attention'], maps.attentions, strict=True):
        assert layer.dtype == torch.float32 and layer.shape == (1, 4, 7, 7)
        np.testing.assert_array_equal(layer[0].numpy(), expected)


# It leaves its own script open.
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_bertviz_draws_them(pretrained):
    bertviz = pytest.importorskip('bertviz')
    (maps,) = bs.attention_maps(pretrained, [example('the cat', 'a dog')])
    page = bertviz.head_view(**bs.to_bertviz(maps), html_action='return').data
    (params,) = re.findall(r'const params = (\{.*?\}); // HACK', page, re.S)
    drawn = json.loads(params)['attention']
    assert [each['name'] for each in drawn][:3] == ['All', 'Sentence A -> Sentence A',
                                                    'Sentence B -> Sentence B']  # fmt: skip
    np.testing.assert_allclose(np.array(drawn[0]['attn']), maps.attentions, atol=1e-6)
    assert drawn[2]['left_text'] == ['a', 'dog', '[SEP]']


def test_without_pytorch_it_says_what_to_install(pretrained, monkeypatch):
    (maps,) = bs.attention_maps(pretrained, [example('the cat')])
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(ImportError, match='pip install bertviz torch'):
        bs.to_bertviz(maps)
