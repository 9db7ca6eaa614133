"""Embeddings of texts: the same as those of sentence-transformers, without heads and with."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.model.embedding import MODES
from tests.conftest import published_model, random_params, relative

TEXTS = ['the cat saw a dog .', 'a bird', 'she liked it ? he ran', 'the big red house and tree !']


@pytest.fixture
def folder(tmp_path, model):
    """The tiny model as a folder of sentence-transformers, with a prompt."""
    prompts = (('query', 'a dog '), ('document', 'the '))
    pooling = bs.Pooling(normalised=True, max_length=9, prompts=prompts, prompt='document')
    bs.save_pretrained(bs.with_pooling(model, pooling), tmp_path)
    return tmp_path


@pytest.mark.parametrize('mode', [*MODES, ('mean', 'cls', 'max')], ids=str)
def test_embeddings_are_those_of_sentence_transformers(folder, mode):
    transformers = pytest.importorskip('sentence_transformers')
    modes = (mode,) if isinstance(mode, str) else mode
    loaded = bs.from_pretrained(folder)
    pooling = dataclasses.replace(loaded.config.pooling, modes=modes)
    bs.save_pretrained(bs.with_pooling(loaded, pooling), folder)
    ours = bs.from_pretrained(folder)
    assert ours.config.pooling == pooling
    theirs = transformers.SentenceTransformer(str(folder), device='cpu')
    np.testing.assert_allclose(bs.embed(ours, TEXTS), theirs.encode(TEXTS), atol=2e-6)
    np.testing.assert_allclose(
        bs.embed(ours, TEXTS, prompt='query'), theirs.encode(TEXTS, prompt_name='query'), atol=2e-6
    )


@pytest.mark.parametrize('modes', [('mean',), ('cls',), ('max', 'lasttoken')], ids=str)
def test_heads_are_disabled_as_in_one_pass_for_each_mask(model, modes):
    embedder = bs.with_pooling(model, bs.Pooling(modes=modes, normalised=True))
    masks = np.concatenate([bs.masks.single_heads(model.config), np.ones((1, 3, 4))])
    masks[1] *= 0.5
    found = bs.embed(embedder, TEXTS, head_mask=masks)
    (batch,) = bs.encode(model.tokenizer, TEXTS)
    run = jax.jit(embedder.bert.apply)
    for mask, embedding in zip(masks, found, strict=True):
        output = run({'params': embedder.params}, **batch.inputs, head_mask=mask)
        here = np.asarray(output.logits)[np.argsort(batch.example)]
        np.testing.assert_allclose(embedding, here[: len(TEXTS)], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, rtol=1e-5)
    alone = bs.embed(embedder, TEXTS, head_mask=masks[2])
    np.testing.assert_allclose(alone, found[2], atol=1e-6)
    np.testing.assert_allclose(bs.embed(embedder, TEXTS), found[-1], atol=1e-6)


def test_padding_changes_nothing(model):
    for mode in MODES:
        alone = np.concatenate([bs.embed(model, [text], pooling=mode) for text in TEXTS])
        np.testing.assert_allclose(bs.embed(model, TEXTS, pooling=mode), alone, atol=1e-5)


def test_a_model_that_does_not_say_how_it_pools(model, pretrained):
    for given, said in (
        ({}, "does not say how it pools: give pooling='mean'"),
        ({'pooling': 'average'}, "pooling='average' must be"),
    ):
        with pytest.raises(ValueError, match=said):
            bs.embed(model, TEXTS, **given)
    with pytest.raises(TypeError, match='An embedding is of one text'):
        bs.embed(model, [('a cat', 'a dog')], pooling='mean')
    # The classifier is left out.
    assert bs.embed(pretrained, TEXTS, pooling='mean').shape == (4, 24)


@pytest.mark.parametrize(
    ('file', 'values', 'message'),
    [
        ('modules.json', {'idx': 0}, r'modules.json: .* is not a list'),
        ('modules.json', [{'path': ''}], 'module 0 has no type'),
        ('1_Pooling/config.json', {'pooling_mode': 'best'}, 'pooling_mode=.*best.* must be of cls'),
        ('1_Pooling/config.json', [], 'is not a JSON object'),
        ('sentence_bert_config.json', {'max_seq_length': 'long'}, "max_seq_length='long'"),
        ('config_sentence_transformers.json', {'prompts': [1]}, 'must be names and texts'),
        (
            'config_sentence_transformers.json',
            {'default_prompt_name': 'q'},
            "name='q' must be None",
        ),
    ],
)
def test_damaged_files_are_named(folder, file, values, message):
    (folder / file).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        bs.from_pretrained(folder)


def test_the_length_of_newer_and_older_folders(folder):
    length, named = folder / 'sentence_bert_config.json', folder / 'tokenizer_config.json'
    about = json.loads(named.read_text())
    named.write_text(json.dumps(about | {'model_max_length': 7}))
    assert bs.from_pretrained(folder).config.longest == 9
    length.rename(folder / 'sentence_roberta_config.json')
    assert bs.from_pretrained(folder).config.longest == 9
    # Version 6 writes it into the tokenizer's file alone.
    (folder / 'sentence_roberta_config.json').write_text('{}')
    assert bs.from_pretrained(folder).config.longest == 7
    named.write_text(json.dumps(about | {'model_max_length': int(1e30)}))
    loaded = bs.from_pretrained(folder)
    assert loaded.config.pooling.max_length is None
    assert loaded.config.longest == loaded.config.max_length


def test_words_of_a_prompt(folder):
    model = bs.from_pretrained(folder)
    with pytest.raises(ValueError, match="no prompt called 'qeury' .*'query', 'document'"):
        bs.embed(model, TEXTS, prompt='qeury')
    pooling = dataclasses.replace(model.config.pooling, lower=True)
    found = bs.embed(bs.with_pooling(model, pooling), ['A Cat'], prompt='The Dog: ')
    np.testing.assert_array_equal(found, bs.embed(model, ['a cat'], prompt='the dog: '))


def test_an_embedding_needs_no_pooler(config, tokenizer):
    """ModernBERT has one of each token, which stands under its masked LM alone."""
    kind = relative(config, 'modernbert')
    plain = bs.Bert(dataclasses.replace(kind, label_names=(), add_pooler=False))
    model = bs.Pretrained(plain, random_params(plain), tokenizer)
    (batch,) = bs.encode(tokenizer, TEXTS)
    states = model.bert.apply({'params': model.params}, **batch.inputs).hidden_states[:, -1]
    found = bs.embed(model, TEXTS, pooling='cls')
    real = batch.example >= 0
    np.testing.assert_allclose(found[batch.example[real]], np.asarray(states)[real, 0], atol=1e-5)


@pytest.mark.parametrize(
    ('modules', 'refused'),
    [
        (['Transformer', 'Pooling', 'Dense'], r'2_Dense \(Dense\)'),
        (['Transformer', 'CNN', 'Pooling'], r'1_CNN \(CNN\)'),
        (['Transformer'], 'no pooling'),
    ],
)
def test_parts_that_are_not_implemented_are_refused_when_asked_for(folder, modules, refused):
    paths = ['', *(f'{place}_{name}' for place, name in enumerate(modules) if place)]
    (folder / '2_Pooling').symlink_to(folder / '1_Pooling')
    listed = [
        {'path': path, 'type': f'sentence_transformers.models.{name}'}
        for path, name in zip(paths, modules, strict=True)
    ]
    (folder / 'modules.json').write_text(json.dumps(listed))
    loaded = bs.from_pretrained(folder)
    with pytest.raises(ValueError, match=f'needs more than pooling, {refused}'):
        bs.embed(loaded, TEXTS)
    bs.embed(loaded, TEXTS, pooling='mean')


@pytest.mark.slow
@pytest.mark.parametrize('name', ['all-MiniLM-L6-v2', 'gte-small', 'all-mpnet-base-v2'])
def test_published_models(name, tmp_path):
    transformers = pytest.importorskip('sentence_transformers')
    pretrained = published_model(name)
    pooling = None if pretrained.config.pooling else bs.Pooling(normalised=True)
    pretrained = bs.with_pooling(pretrained, pooling)
    bs.save_pretrained(pretrained, tmp_path)
    theirs = transformers.SentenceTransformer(str(tmp_path), device='cpu')
    texts = [*TEXTS, 'A very long story about nothing. ' * 100]
    np.testing.assert_allclose(bs.embed(pretrained, texts), theirs.encode(texts), atol=1e-5)
