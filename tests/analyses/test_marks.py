"""Marks of heads: what is said of each, and when something is said at all."""

import dataclasses
import re

import numpy as np

from bert_secrets_jax.analyses.common import links, marks
from bert_secrets_jax.measure.links import KINDS
from bert_secrets_jax.report.atlas import atlas
from bert_secrets_jax.stats.effects import BETTER, WORSE, Outcome, loss_in
from tests.analyses.conftest import flat_table as table
from tests.analyses.worlds import effects_of, link_test, null


def test_half_of_the_attention_makes_a_mark():
    (found,) = marks.mark_shares(
        {'[CLS]': table([[0.5, 0.3]]), 'self': table([[0.2, 0.49]])}, ('[CLS]', 'self', 'none')
    )
    assert found.marks.tolist() == [['[CLS]', '']]
    assert found.sentences[0, 1] == 'Gives 0.49 of its attention to self.'
    assert marks.mark_shares({}, ('[CLS]',)) == []


def test_only_significant_effects_are_ringed_and_in_their_direction():
    p_value, corrected = [0.01, 0.01, 0.5, 0.5], [0.04, 0.04, 1.0, 1.0]
    effects = dataclasses.replace(
        effects_of([-0.1, 0.2, -0.3, 0.1], [-0.5] * 4, [0.5] * 4, p_value, corrected, heads=2),
        outcome=Outcome('f1'),
    )
    (found,) = marks.mark_effects(effects, (2, 2), rank=marks.ONE_MODEL)
    assert found.marks.tolist() == [[WORSE, BETTER], ['', '']]
    # The interval is that of one head, the verdict that of all.
    said = '-30.00 points (-50.00 to +50.00), open after correction for 4 heads.'
    assert said in found.sentences[1, 0]
    # Of a loss, a higher one is worse.
    loss = dataclasses.replace(effects, outcome=loss_in('nats per hidden wordpiece'))
    (found,) = marks.mark_effects(loss, (2, 2), rank=0, what='the loss')
    assert found.marks.tolist() == [[BETTER, WORSE], ['', '']]
    assert '-0.3000 nats (-0.5000 to' in found.sentences[1, 0]


def test_a_corner_where_the_most_frequent_class_is_another_one():
    before = np.array([[[0.9, 0.1], [0.6, 0.4]]])
    after = np.array([[[0.8, 0.2], [0.3, 0.7]]])
    colour, corner, tuned = marks.mark_classes({'a': before, 'b': after}, ('vertical', 'diagonal'))
    assert colour.marks.tolist() == [['vertical', 'vertical']]
    assert corner.marks.tolist() == [['', 'pattern changed']]
    assert corner.sentences[0, 1] == 'After fine-tuning they are most often diagonal (70 %).'
    assert tuned.marks.tolist() == [['vertical', 'diagonal']] and tuned.model == 'b'
    assert len(marks.mark_classes({'a': before}, ('vertical', 'diagonal'))) == 1


def test_links_mark_heads_above_places_of_all_kinds():
    def of(mean, real, excess=0.2):
        beyond, p = table(np.full(np.shape(real), excess)), np.where(real, 0.01, 0.5)
        places = null(table(mean), p=p, excess=beyond)
        return link_test(table(mean), **dict.fromkeys(KINDS, places))

    real = [[True, False]]
    tests = {'verb to subject': of([[0.4, 0.9]], real), 'subject to verb': of([[0.5, 0.1]], real)}
    (found,) = links.mark_links(tests)
    # The stronger of two links; the greatest attention alone is no mark.
    assert found.marks.tolist() == [['subject to verb', '']]
    assert found.sentences[0, 0].startswith('Attends 0.40 from verb to subject, more than position')
    # A significant effect of next to nothing is told, and is no mark.
    (small,) = links.mark_links({'verb to subject': of([[0.06, 0.9]], real, 0.04)})
    assert small.marks.tolist() == [['', '']] and small.sentences[0, 0]
    assert links.mark_links({}) == [] and '0.05 more of its attention' in small.bound


def test_heads_that_follow_a_link_are_named():
    """Also where the one that attends most along the link is none of them."""
    score = table([[0.65, 0.5, 0.6], [0.4, 0.3, 0.55]])
    means = np.array([[0.65, 0.1, 0.1], [0.1, 0.3, 0.1]])
    for few, names in ((False, 'L1-H3, L2-H3, L1-H2'), (True, 'L1-H3')):
        p = np.where(means > 0.2, 0.9, 0.01)
        if few:
            p[0, 1] = p[1] = 0.9
        tests = {'verb to subject': link_test(score, moved=null(score, means, p))}
        told = [each.sentence for each in links.findings_of(tests, 'Kovaleva')]
        assert told[0].endswith(f' more than position explains. First by attention: {names}.')
        assert told[1] == (
            'L1-H1 looks from verb to subject (0.65), not clearly more than distance explains '
            '(0.65).'
        )
    p = np.where(means > 0.2, 0.01, 0.9)
    tests = {'verb to subject': link_test(score, moved=null(score, means, p))}
    follow, top = links.findings_of(tests, 'Kovaleva')
    assert follow.sentence.endswith(' First by attention: L1-H1, L2-H2.')
    assert 'after correction for 6 tests' in top.certainty


def test_marks_of_all_analyses_make_one_atlas(results):
    """The atlas has the heads of one model, in sentences that say what the frames hold."""
    found = {name: result.head_marks() for name, result in results.items()}
    for name, several in found.items():
        for each in several:
            assert each.marks.shape == (3, 4), name
            assert not any('nan' in text for text in each.sentences.ravel()), name
            assert all(each.sentences[each.marks != '']), name
    drawn = {each.drawn for several in found.values() for each in several}
    assert drawn == {'colour', 'ring', 'corner'}
    # All of them at a glance, and then before and after fine-tuning.
    assert atlas(list(results.values())).count('<a class="head') == 3 * 12
    ablation = results['ablation']
    _, ring = found['ablation']
    heads = ablation.sets['heads'].found
    np.testing.assert_array_equal(ring.marks.ravel(), np.where(heads.matters, heads.verdict, ''))
    badges = results['claims'].badges()
    unmeasured = ['--sections=' in each.evidence for each in badges]
    assert unmeasured == sorted(unmeasured) and len(set(unmeasured)) == 2
    assert all(re.search(r' et al\. 20\d\d\)$', each.text) for each in badges)
    assert all(re.search(r'\. Source: .* et al\. 20\d\d, .*\.$', each.whole) for each in badges)
