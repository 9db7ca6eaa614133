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
from bert_secrets_jax.contributions.layerwise import alti, globenc, value_zeroing
from bert_secrets_jax.contributions.maps import KINDS
from bert_secrets_jax.contributions.scores import token_scores


@pytest.fixture
def pretrained(bert, params, tokenizer):
    return bs.Pretrained(bert, params, tokenizer)


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
        expected = pretrained.bert.apply({'params': pretrained.params}, **encoded).attentions[0]
        np.testing.assert_allclose(maps.attentions, expected, atol=2e-6)
        assert maps.attentions.shape == (3, 4, len(maps.tokens), len(maps.tokens))


def test_a_single_sentence_has_no_second(pretrained):
    (maps,) = bs.attention_maps(pretrained, [example('the cat ran')])
    assert maps.second is None and len(maps.tokens) == 5
    (cut,) = bs.attention_maps(pretrained, [example('the cat ran and ran and ran')], max_length=6)
    assert len(cut.tokens) == 6


def test_strings_are_texts(pretrained, bert, unchecked):
    (plain,) = bs.attention_maps(pretrained, ['the cat ran'])
    (whole,) = bs.attention_maps(pretrained, [example('the cat ran')])
    np.testing.assert_array_equal(plain.attentions, whole.attentions)
    (two,) = bs.attention_maps(pretrained, [('the cat', 'a dog')])
    assert two.second == 4
    with pytest.raises(TypeError, match='this is a single str: give a list'):
        bs.attention_maps(pretrained, 'the cat')
    with pytest.raises(TypeError, match='Bert is not a model with weights and tokenizer'):
        bs.attention_maps(bert, ['the cat'])


def test_maps_between_words_have_them_as_they_are_written(pretrained):
    (maps,) = bs.attention_maps(pretrained, [example('the Unlike cat', 'a dog ran.')])
    whole = maps.of_words()
    assert list(whole.tokens) == '[CLS]|the|Unlike|cat|[SEP]|a|dog|ran|.|[SEP]'.split('|')
    assert whole.tokens[whole.second] == 'a'
    np.testing.assert_allclose(whole.attentions.sum(axis=-1), 1, atol=1e-5)
    # "unlike" is two wordpieces.
    to, back = maps.attentions[..., 1, 2:4].sum(axis=-1), maps.attentions[..., 2:4, 1].mean(axis=-1)
    np.testing.assert_allclose(whole.attentions[..., 1, 2], to, atol=1e-6)
    np.testing.assert_allclose(whole.attentions[..., 2, 1], back, atol=1e-6)


def test_words_and_their_numbers_come_together():
    square = np.ones((1, 1, 2, 2))
    with pytest.raises(ValueError, match='is not known: bs.attention_maps'):
        bs.TokenMaps(['a', 'b'], square).of_words()
    with pytest.raises(ValueError, match='give word and words, or neither'):
        bs.TokenMaps(['a', 'b'], square, word=np.array([0, 0]))
    for word in ([0], [0, 1]):
        with pytest.raises(ValueError, match='2 tokens need as many numbers of the 1 words'):
            bs.TokenMaps(['a', 'b'], square, word=np.array(word), words=['ab'])


def test_norms_and_rollout_are_theirs(pretrained, bert, params):
    """Kobayashi et al. 2020 and Abnar and Zuidema 2020, written out, without padding."""
    (plain,) = bs.attention_maps(pretrained, [example('the unlike cat', 'a dog ran .')])
    (maps,) = bs.attention_maps(
        pretrained, [example('the unlike cat', 'a dog ran .')], kinds=['rollout', 'norms']
    )
    np.testing.assert_allclose(maps.attentions, plain.attentions, atol=1e-6)
    assert set(maps.further) == {'norms', 'rollout'} and plain.further == {}
    encoded = pretrained.tokenizer('the unlike cat', 'a dog ran .', return_tensors='np')
    output = bert.apply({'params': params}, **encoded)
    states = np.asarray(output.hidden_states[0], np.float64)
    attention = jax.tree.map(np.asarray, params['layers']['attention'])
    value, out = attention['value'], attention['output']
    reached = np.eye(len(maps.tokens))
    for layer, alpha in enumerate(np.asarray(output.attentions[0], np.float64)):
        values = np.einsum('td,dnh->tnh', states[layer], value['kernel'][layer])
        given = np.einsum('tnh,nhd->ntd', values + value['bias'][layer], out['kernel'][layer])
        norms = alpha * np.linalg.norm(given, axis=-1)[:, None]
        shares = norms / norms.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(maps.further['norms'][layer], shares, atol=1e-5)
        reached = (alpha.mean(axis=0) + np.eye(len(alpha[0]))) / 2 @ reached
        np.testing.assert_allclose(maps.further['rollout'][layer], reached[None], atol=1e-5)


def test_maps_of_layers_have_no_padding(pretrained):
    """One map for all heads of a layer, the same as of the text by itself."""
    methods = {'value zeroing': value_zeroing, 'ALTI': alti, 'GlobEnc': globenc}
    text = 'the cat saw a dog'
    (maps,) = bs.attention_maps(pretrained, [text], kinds=list(methods))
    bert, params = pretrained.bert, pretrained.params
    encoded = pretrained.tokenizer(text, return_tensors='np')
    output, mask = bert.apply({'params': params}, **encoded), jnp.asarray(encoded['attention_mask'])
    for kind, method in methods.items():
        expected = np.asarray(method(bert, params, output, mask))
        assert maps.further[kind].shape == (bert.config.num_hidden_layers, 1, 7, 7)
        np.testing.assert_allclose(maps.further[kind][:, 0], expected[0], atol=2e-5)
        np.testing.assert_allclose(maps.further[kind].sum(axis=-1), 1, rtol=1e-4)


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
    with pytest.raises(ValueError, match="a list of 'weights', .* 'ALTI' or 'GlobEnc', not"):
        bs.attention_maps(pretrained, ['the cat'], kinds=['norm'])
    config = dataclasses.replace(pretrained.config, label_names=())
    without = bs.Pretrained(bs.Bert(config), pretrained.params, pretrained.tokenizer)
    with pytest.raises(ValueError, match='the logits of a text, and this model has none'):
        bs.attention_maps(without, ['the cat'], methods=['rollout'])
    (maps,) = example_maps(without, ['the cat ran']).first
    assert {*maps.further, 'weights'} == set(KINDS) and maps.scores == {}


def test_further_maps_of_other_tokens_are_refused():
    square = np.ones((2, 3, 2, 2))
    with pytest.raises(
        ValueError, match=r"'norms' must be .* or with one head, got \[2, 2, 2, 2\]"
    ):
        bs.TokenMaps(['a', 'b'], square, further={'norms': square[:, :2]})
    with pytest.raises(ValueError, match=r"'ALTI' must be one for each of 2 tokens, got \[3\]"):
        bs.TokenMaps(['a', 'b'], square, scores={'ALTI': np.zeros(3)})


def test_maps_of_other_tokens_are_refused():
    with pytest.raises(ValueError, match=r'must be \[layers, heads, 2, 2\], got \[1, 2, 3, 3\]'):
        bs.TokenMaps(['a', 'b'], np.ones((1, 2, 3, 3)))
    with pytest.raises(ValueError, match='leave the batch and padding out'):
        bs.TokenMaps(['a', 'b'], np.ones((1, 1, 2, 2, 2)))


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
@pytest.mark.parametrize('view', ['head_view', 'model_view'])
def test_bertviz_draws_them(pretrained, view):
    bertviz = pytest.importorskip('bertviz')
    (maps,) = bs.attention_maps(pretrained, [example('the cat', 'a dog')])
    page = getattr(bertviz, view)(**bs.to_bertviz(maps), html_action='return').data
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
