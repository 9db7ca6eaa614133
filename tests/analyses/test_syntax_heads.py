"""Heads for relations: chosen on one part, measured on the other, beside what explains less."""

import importlib
import re

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.syntax_heads import FEWEST
from bert_secrets_jax.analyses.verdicts import HOLDS, NOT_MEASURED, UNDECIDED
from bert_secrets_jax.measure.word_links import ALL, OFFSETS
from bert_secrets_jax.paper import clark
from tests.conftest import forward

_WORDS = (
    'the/det/2 cat/nsubj/3 saw/root/0 a/det/6 small/amod/6 dog/obj/3 ./punct/3',
    'she/nsubj/2 liked/root/0 the/det/5 big/amod/5 house/obj/2 ./punct/2',
    'a/det/2 friend/nsubj/3 chased/root/0 it/obj/3',
)


@pytest.fixture(scope='module')
def treebank(tmp_path_factory):
    """Twenty-four sentences."""
    path = tmp_path_factory.mktemp('trees') / 'trees.conllu'
    lines = []
    for sentence in _WORDS * 8:
        for number, word in enumerate(sentence.split(), 1):
            form, relation, head = word.split('/')
            lines.append(f'{number}\t{form}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_')
        lines.append('')
    path.write_text('\n'.join([*lines, '']), encoding='utf-8')
    return bs.read_treebank(path)


@pytest.fixture(scope='module')
def parts(treebank):
    """The part on which heads are chosen, and the part on which they are measured."""
    return treebank[:15] * 2, treebank[1:18] * 2


@pytest.fixture(scope='module')
def found(model, parts):
    return bs.analyses.syntax_heads(model, *parts, draws=0)


def shares_by_hand(model, parses, name):
    """The share of links that each head finds, either way, sentence by sentence."""
    right, count = np.zeros((3, 4, 2)), 0
    for parse in parses:
        encoded = bs.encode_parses(model.tokenizer, [parse])
        (batch,) = bs.bucket(encoded)
        output = forward(model.bert, model.params, batch.inputs)
        words = batch.marks['word'][0]
        maps = np.array(bs.word_maps(output.attentions[0], words, count=len(parse.words)))
        maps[:, :, range(len(parse.words)), range(len(parse.words))] = -1
        for word, (head, relation) in enumerate(zip(parse.heads, parse.relations, strict=True)):
            if relation == name:
                count += 1
                right[:, :, 0] += maps[:, :, word].argmax(axis=-1) == head
                right[:, :, 1] += maps[:, :, :, word].argmax(axis=-1) == head
    return right / count, count


def test_shares_are_those_of_a_loop_over_sentences(found, model, parts):
    _, dev = parts
    assert found.relations == ('amod', 'det', 'nsubj', 'obj', ALL)
    for place, name in enumerate(found.relations[:-1]):
        expected, count = shares_by_hand(model, dev, name)
        assert found.dev.links[place] == count
        np.testing.assert_allclose(found.dev.right[place], expected, atol=1e-12)
    total = (found.dev.right[:-1] * found.dev.links[:-1, None, None, None]).sum(axis=0)
    np.testing.assert_allclose(found.dev.right[-1], total / found.dev.links[-1], atol=1e-12)


def test_heads_and_offsets_are_chosen_on_the_training_part(found):
    for place, best in enumerate(found.best):
        assert found.train.right[(place, *best)] == np.nanmax(found.train.right[place])
        assert found.offsets[place] in OFFSETS
    frame = found.frames()['relations'].set_index('relation')
    assert frame.loc['det', 'published_head'] == 'L8-H11'
    layer, head, way = found.best[1]
    assert frame.loc['det', 'share_of_links'] == found.dev.right[1, layer, head, way]
    assert frame.loc['det', 'gain'] == pytest.approx(
        frame.loc['det', 'share_of_links'] - frame.loc['det', 'share_at_offset']
    )
    assert (frame['low'] <= frame['share_of_links']).all() and (frame['high'] <= 1).all()


def test_random_weights_are_another_model_and_depend_on_the_seed(found, model, parts):
    again = bs.analyses.syntax_heads(model, *parts, draws=0)
    np.testing.assert_array_equal(again.random, found.random)
    other = bs.analyses.syntax_heads(model, *parts, draws=0, seed=1)
    assert not np.array_equal(other.random, found.random)
    np.testing.assert_array_equal(other.dev.right, found.dev.right)
    without = bs.analyses.syntax_heads(model, *parts, draws=0, random_weights=False)
    assert np.isnan(without.random).all() and 'random weights find' not in str(without)


def test_passes_of_a_killed_analysis_are_not_made_again(
    found, model, parts, tmp_path, monkeypatch, caplog
):
    train, dev = parts
    module = importlib.import_module(bs.analyses.syntax_heads.__module__)
    original, passes = module.stream, []

    def stream(*args, **settings):
        if len(passes) == 3:
            raise KeyboardInterrupt
        passes.append(args)
        return original(*args, **settings)

    monkeypatch.setattr(module, 'stream', stream)
    kept = bs.analyses.TextSettings(folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        bs.analyses.syntax_heads(model, train, dev, draws=0, settings=kept)
    passes.clear()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    again = bs.analyses.syntax_heads(model, train, dev, draws=0, settings=kept)
    assert len(passes) == 1 and str(again) == str(found)
    np.testing.assert_array_equal(again.dev.right, found.dev.right)
    np.testing.assert_array_equal(again.random, found.random)
    # Other texts, and a damaged file.
    passes.clear()
    files[0].write_bytes(files[0].read_bytes()[:-200])
    bs.analyses.syntax_heads(model, train, dev, draws=0, settings=kept)
    assert len(passes) == 1 and 'is damaged: it is computed again' in caplog.text
    passes.clear()
    bs.analyses.syntax_heads(model, train, dev[1:], draws=0, random_weights=False, settings=kept)
    assert len(passes) == 1


def test_few_links_and_texts_of_both_parts_are_told(model, treebank, caplog):
    result = bs.analyses.syntax_heads(model, treebank, treebank, draws=0, random_weights=False)
    assert result.relations == ('det', 'nsubj', 'obj', ALL) and result.few == ('amod',)
    assert any('amod' in note and str(FEWEST) in note for note in result.notes())
    # They are not tested, but count among all.
    assert result.dev.links[-1] == result.dev.links[:-1].sum() + 16
    assert result.shared == 1 and 'chosen on the same texts' in str(result)
    assert '100 % of the texts that heads are measured on' in caplog.text
    assert any(note.startswith('100.0% of the texts') for note in result.notes())


def test_a_single_text_has_no_interval(model, treebank):
    result = bs.analyses.syntax_heads(model, treebank, treebank[:1], draws=0, random_weights=False)
    assert 'nan' not in str(result)


def test_coreference_comes_as_annotated_texts(results):
    result = results['syntax_heads']
    assert {'verb-subject', 'noun-pronoun'} < set(result.relations)
    assert np.isfinite(result.beyond[:-1]).any() and result.kinds == (
        'elsewhere', 'moved', 'positions',
    )  # fmt: skip
    # Nothing of the paper's relations stands beside other links.
    assert result.published_gains is None and 'BERT-base' not in str(result)
    assert result.frames()['relations']['published_share'].isna().all()
    assert not any('Penn' in note for note in result.notes())
    for name in ('verb-subject', 'noun-pronoun'):
        place = result.relations.index(name)
        assert result.dev.links[place] == 24


def test_other_texts_are_refused(model):
    with pytest.raises(ValueError, match='bs.read_treebank'):
        bs.analyses.syntax_heads(model, [], [])


def test_with_few_texts_nothing_is_decided():
    few = verdicts.no_head_for_all(0.5, 0.01, 19)
    assert few.verdict == verdicts.TOO_FEW
    two = verdicts.relations_have_heads({'det': (0.5, 0.01, 19), 'obj': (0.5, 0.01, 30)})
    assert two.verdict == UNDECIDED and '1 have enough links' in two.evidence


def test_claims_read_them(found, results):
    judged = {each.claim: each for each in bs.analyses.claims(found).verdicts()}
    for claim in (verdicts.RELATION_HEADS, verdicts.NO_HEAD_FOR_ALL):
        assert judged[claim].verdict != NOT_MEASURED
        assert re.search(r'\d', judged[claim].evidence)
        assert judged[claim].claim.source.startswith('Clark et al. 2019')
    # Links that are no dependencies say nothing of these claims.
    others = bs.analyses.claims(results['syntax_heads']).verdicts()
    assert {each.claim: each for each in others}[verdicts.RELATION_HEADS].verdict == NOT_MEASURED


def test_on_the_numbers_of_the_paper_the_claims_hold():
    # 1,696 sentences of the Penn Treebank; errors of shares in so many.
    published = {
        name: (row.accuracy - row.baseline, 0.01, 1696)
        for name, row in clark.RELATIONS.items()
        if name != ALL
    }
    assert verdicts.relations_have_heads(published).verdict == HOLDS
    row = clark.RELATIONS[ALL]
    assert verdicts.no_head_for_all(row.accuracy - row.baseline, 0.002, 1696).verdict == HOLDS
