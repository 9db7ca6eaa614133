"""Similarity and retrieval without heads: what their pairs, scores and judgements mean."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.retrieval import judgements


@pytest.fixture(scope='module')
def embedder(model):
    return bs.with_pooling(model, 'mean')


@pytest.fixture(scope='module')
def run(embedder):
    def run(pairs, **given):
        return bs.analyses.similarity(embedder, pairs, masks='layers', **given)

    return run


def test_labels_are_kinds_or_scores(run, texts):
    """Kinds if the classes have names, and otherwise scores; what is given comes first."""
    named = [dataclasses.replace(each, classes=('other', 'same')) for each in texts]
    found = run(named)
    outcomes = found.outcomes['layers']
    assert set(outcomes) == {'cosine', 'size', 'cosine, other', 'cosine, same'}
    sizes = [outcomes[f'cosine, {kind}'].sample for kind in ('other', 'same')]
    assert sorted(sizes) == sorted(np.bincount([each.label for each in texts]).tolist())
    scored = run(texts)
    assert list(scored.outcomes['layers']) == ['spearman', 'pearson', 'cosine', 'size']
    assert not scored.head_marks()
    plain = run([each.texts for each in texts], gold=[each.label for each in texts])
    np.testing.assert_array_equal(
        plain.outcomes['layers']['spearman'].difference,
        scored.outcomes['layers']['spearman'].difference,
    )


def test_effects_are_of_the_cosines(run, embedder, texts):
    masks = np.concatenate([np.ones((1, 3, 4)), bs.masks.single_layers(embedder.config)])
    cosines = bs.similarities(embedder, texts, masks)
    found = run(texts).outcomes['layers']['cosine']
    np.testing.assert_allclose(found.difference, (cosines[1:] - cosines[0]).mean(axis=1), atol=1e-6)
    assert found.names == ['L1', 'L2', 'L3'] and found.sample_of == 'pairs'


def test_what_does_not_fit_is_refused(run, model, texts):
    pairs = [each.texts for each in texts]
    with pytest.raises(ValueError, match='There are 3 gold and 24 pairs'):
        run(pairs, gold=[1, 2, 3])
    with pytest.raises(ValueError, match='All labels of the pairs are 1'):
        run(pairs, gold=[1] * 24)
    with pytest.raises(ValueError, match="too few pairs of the kind 'rare': 1 given, at least 2"):
        run(pairs, kinds=['rare', *['other'] * 23])
    with pytest.raises(ValueError, match="sides='every' must be"):
        run(pairs, sides='every')
    with pytest.raises(ValueError, match='does not say how it pools'):
        bs.analyses.similarity(model, pairs)


def test_judgements_come_in_many_forms():
    queries, documents = {'q1': 'a', 'q2': 'b'}, {'d1': 'c', 'd2': 'd', 'd3': 'e'}
    expected = [[0, 1], [1, 0], [1, 2]], [1, 2, 1]
    named = {'q1': {'d2': 1}, 'q2': {'d1': 2, 'd2': 0, 'd3': 1}}
    for given in (
        (queries, documents, named),
        (queries, documents, [('q1', 'd2'), ('q2', 'd1', 2), ('q2', 'd3')]),
        (['a', 'b'], ['c', 'd', 'e'], [(0, 1), (1, 0, 2), (1, 2)]),
    ):
        judged, grades = judgements(*given)
        assert (judged.tolist(), grades.tolist()) == expected
    judged, _ = judgements(queries, documents, {'q1': ['d2'], 'q2': ['d1', 'd3']})
    assert judged.tolist() == expected[0]
    for of_their_place in (
        judgements(queries, documents, None),
        judgements(*map(list, ('ab', 'cde')), None),
    ):
        assert of_their_place[0].tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match="There is no document 'd4'"):
        judgements(queries, documents, [('q1', 'd4')])
    with pytest.raises(ValueError, match='1 of 2 queries have no relevant document .* number 1'):
        judgements(queries, documents, {'q1': {'d2': 1}, 'q2': {'d2': 0}})
    with pytest.raises(TypeError, match="The documents of query 'q1' are 'd1'"):
        judgements(queries, documents, {'q1': 'd1'})


def test_a_head_that_search_needs_is_found(embedder, results):
    """Documents are the queries: all heads rank them first, and nothing can be better."""
    found = results['retrieval'].outcomes['heads']
    assert list(found) == ['MRR', 'nDCG@10', 'recall@10']
    assert all(each.sample_of == 'queries' and each.sample == 24 for each in found.values())
    texts = ['the cat ran', 'a dog saw it', 'she liked the house', 'he never ran', 'a new tree']
    same = bs.analyses.retrieval(embedder, texts, texts, masks='layers', sides='queries')
    mean = same.outcomes['layers']['MRR']
    assert mean.intact == 1 and (mean.difference <= 0).all()


@pytest.mark.slow
def test_both_are_in_a_report(model, texts, tmp_path):
    """On the embedded pairs, or on those of the run; a model that does not pool has neither."""
    settings = {
        'encoding.max_length': 32, 'linguistics.pipeline': '', 'model.allow_unknown': True
    }  # fmt: skip
    sections = ['similarity', 'retrieval']
    embedder = bs.with_pooling(model, 'mean')
    single = [dataclasses.replace(each, text_b=None, label=None) for each in texts]
    pairs = [dataclasses.replace(each, label=None) for each in texts]
    found = bs.report(embedder, single, out=tmp_path / 'one', sections=sections, settings=settings)
    kinds = {f'cosine, {kind}' for kind in ('paraphrase', 'negation', 'same topic')}
    assert set(found.results['similarity'].outcomes['heads']) == {'cosine', 'size', *kinds}
    assert found.results['retrieval'].subject.texts == 'the example pairs'
    assert found.results['retrieval'].documents == 180
    page = found.path.read_text()
    assert 'bs.analyses.similarity(pretrained, pairs' in page
    assert 'pairs = bs.similarity_sample()' in page and 'bert-secrets retrieval' in page
    assert (tmp_path / 'one' / 'similarity_heads.csv').exists()
    own = bs.report(embedder, pairs, out=tmp_path / 'two', sections=sections[:1], settings=settings)
    assert own.results['similarity'].outcomes['heads']['cosine'].sample == 24
    with pytest.raises(ValueError, match='needs a model that says how it pools'):
        bs.report(model, single, out=tmp_path / 'three', sections=sections, settings=settings)
