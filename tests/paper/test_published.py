"""The published numbers, where the paper's text states them, and the accessors' types."""

import math

import numpy as np
import pytest

from bert_secrets_jax import paper
from bert_secrets_jax.data.tasks import GLUE
from bert_secrets_jax.patterns.classes import CLASSES

ACCESSORS = (
    paper.finetuning,
    paper.pattern_shares,
    paper.attention_change,
    paper.special_token_attention,
    paper.cls_tokens,
    paper.disable_one_head,
    paper.disable_one_layer,
)


@pytest.mark.parametrize('accessor', ACCESSORS)
@pytest.mark.parametrize('task', [None, '', 'CoLA', 'reviews', 'MNLI-mm', 'columns', 'classes'])
def test_nothing_is_published_on_other_tasks(accessor, task):
    assert accessor(task) is None


@pytest.mark.parametrize('accessor', ACCESSORS)
def test_titles_and_names_are_alike(accessor):
    """And no task has another one's numbers."""
    of_paper = [task for task in GLUE.values() if task.in_paper]
    assert [task.title for task in of_paper] == list(paper.TASKS)
    values = [accessor(title) for title in paper.TASKS]
    for task, value in zip(of_paper, values, strict=True):
        assert {repr(accessor(name)) for name in (task.name, task.tfds_config)} == {repr(value)}
    assert len(set(map(repr, values))) == len(values)


def test_arrays_are_the_callers_own():
    paper.attention_change('MRPC')[:] = 0
    paper.special_token_attention('MRPC')['[SEP]'][:] = 0
    assert (paper.attention_change('MRPC') > 0).all()
    assert (paper.special_token_attention('MRPC')['[SEP]'] > 0).all()
    paper.frame_heads().clear()
    assert paper.frame_heads() == {'L1-H2': 0.201, 'L7-H6': 0.209}


# As printed, by metric: not fine-tuned, fine-tuned from random and from pre-trained weights.
TABLE_1 = {
    'MRPC': {'f1': (0, 81.2, 87.9), 'accuracy': (31.6, 68.3, 82.3)},
    'STS-B': {'correlation': (33.1, 2.9, 82.7)},
    'SST-2': {'accuracy': (49.1, 80.5, 92.0)},
    'QQP': {'f1': (0, 0, 65.2), 'accuracy': (60.9, 63.2, 78.6)},
    'RTE': {'accuracy': (52.7, 52.7, 64.6)},
    'QNLI': {'accuracy': (52.8, 49.5, 84.4)},
    'MNLI': {'accuracy': (31.7, 61.0, 78.6)},
}


@pytest.mark.parametrize('task', TABLE_1)
def test_table_1(task):
    row = paper.finetuning(task)
    fields = 'pretrained_no_finetuning finetuned_from_normal_init finetuned_from_pretrained'
    assert list(vars(row)) == fields.split()
    for column, scores in enumerate(vars(row).values()):
        assert list(scores) == list(TABLE_1[task])
        for metric, score in scores.items():
            assert type(score) is float
            assert 100 * score == pytest.approx(TABLE_1[task][metric][column])


# As printed, by task: the shares of heterogeneous and of vertical maps in percent (Figure 2); means
# of layers 1, 11 and 12, and the least head (5); attention to [SEP], means of layers 1 and 12 (6);
# from [CLS] to [SEP], nouns, verbs and [CLS] (7); the least and the greatest score without one
# head, and without one layer, at the colour bars (8 and 9).
_ROWS = """
MRPC    27.8 41.9   0.97 0.37 0.41 0.28   0.04 0.33   0.30 0.04 0.06 0.00   0.876 0.894 0.854 0.887
STS-B   53.1 29.1   0.98 0.60 0.49 0.32   0.05 0.16   0.05 0.16 0.08 0.01   0.887 0.891 0.878 0.890
SST-2   40.8 36.1   0.98 0.64 0.66 0.47   0.05 0.27   0.18 0.05 0.08 0.02   0.914 0.922 0.906 0.922
QQP     58.5 25.1   0.93 0.64 0.70 0.19   0.05 0.31   0.23 0.06 0.10 0.00   0.875 0.883 0.857 0.882
RTE     35.2 41.1   0.98 0.55 0.52 0.43   0.03 0.03   0.01 0.10 0.04 0.02   0.560 0.596 0.574 0.617
QNLI    35.1 34.3   0.95 0.63 0.61 0.38   0.03 0.02   0.01 0.15 0.10 0.01   0.904 0.916 0.828 0.914
MNLI    58.5 22.3   0.94 0.58 0.58 0.38   0.05 0.28   0.25 0.03 0.05 0.00   0.827 0.841 0.807 0.839
"""
PRINTED = {task: tuple(map(float, row)) for task, *row in map(str.split, _ROWS.split('\n')[1:-1])}


@pytest.mark.parametrize('task', PRINTED)
def test_figures_2_to_7(task):
    """[SEP] gets most in Figure 7 for all tasks but STS-B, RTE and QNLI, as section 4.5 says."""
    printed, shares = PRINTED[task], paper.pattern_shares(task)
    assert sorted(shares) == sorted(CLASSES)
    assert sum(shares.values()) == pytest.approx(1, abs=5 * paper.digitisation_error(2).most)
    found = 100 * shares['heterogeneous'], 100 * shares['vertical']
    assert found == pytest.approx(printed[:2])
    grid = paper.attention_change(task)
    found = (*grid.mean(axis=1)[[0, 10, 11]], grid.min())
    assert found == pytest.approx(printed[2:6], abs=0.0051)
    grids = paper.special_token_attention(task)
    assert list(grids) == ['[CLS]', '[SEP]']
    error = 0.005 + paper.digitisation_error(6).mean
    assert tuple(grids['[SEP]'].mean(axis=1)[[0, 11]]) == pytest.approx(printed[6:8], abs=error)
    if task == 'SST-2':
        assert np.unravel_index(grids['[SEP]'].argmax(), (12, 12)) == (4, 3)
    # Only the first layers attend to [CLS].
    assert grids['[CLS]'][:4].mean() > 4 * grids['[CLS]'][4:].mean()
    means = paper.cls_tokens(task)
    assert list(means) == ['[SEP]', 'noun', 'verb', '[CLS]']
    assert tuple(means.values()) == printed[8:12]
    assert (max(means, key=means.get) == '[SEP]') == (task not in ('STS-B', 'RTE', 'QNLI'))


def test_figure_2_is_where_the_text_has_its_range_from():
    """ "From 32 % (MRPC) up to 61 % (QQP)": heterogeneous and block together."""
    for task, percent in (('MRPC', 32), ('QQP', 61)):
        shares = paper.pattern_shares(task)
        assert 100 * (shares['heterogeneous'] + shares['block']) == pytest.approx(percent, abs=0.5)


def test_how_far_numbers_are_off():
    """As compared with the notebook's own numbers, and as they are written above."""
    assert paper.digitisation_error(5) == paper.digitisation_error(6)
    assert vars(paper.digitisation_error(5)) == {'mean': 0.0045, 'most': 0.017}
    assert vars(paper.digitisation_error(3)) == {'mean': 0.0008, 'most': 0.0023}
    for figure in (2, 7):
        assert math.isnan(paper.digitisation_error(figure).mean)
    # The bar of STS-B goes from 0.887 to 0.891, and that of RTE from 0.560 to 0.596.
    assert paper.digitisation_error(8, 'STS-B').most == pytest.approx(0.017 * 0.004)
    assert paper.digitisation_error(8).mean == pytest.approx(0.0045 * 0.036, rel=0.01)
    assert paper.digitisation_error(8) == paper.digitisation_error(8, 'rte')
    # Figure 8's limits are printed with three decimals, and read as exactly as that.
    for task, (*_, least, greatest, _, _) in PRINTED.items():
        scores = paper.disable_one_head(task).scores
        error = 0.0005 + paper.digitisation_error(8, task).most
        assert (scores.min(), scores.max()) == pytest.approx((least, greatest), abs=error)
    with pytest.raises(ValueError, match='digitised figure=4 must be 2, 3'):
        paper.digitisation_error(4)


@pytest.mark.parametrize('task', PRINTED)
def test_figures_8_and_9(task):
    heads, layers = paper.disable_one_head(task), paper.disable_one_layer(task)
    limits = PRINTED[task][12:]
    found = (heads.scores.min(), heads.scores.max())
    assert found == pytest.approx(limits[:2], abs=0.0011)
    # The upper limit of Figure 9 is the intact model's score where no layer is above it.
    found = (layers.scores.min(), max(layers.scores.max(), layers.baseline))
    assert found == pytest.approx(limits[2:], abs=0.0011)
    for disabled in (heads, layers):
        assert type(disabled.baseline) is float
        np.testing.assert_array_equal(disabled.differences, disabled.scores - disabled.baseline)
    # The two figures show one model.
    assert heads.baseline == pytest.approx(layers.baseline, abs=0.001)


def test_figures_8_and_9_in_the_text():
    """Section 4.6: at most 1.2 points of MRPC from one head, 3.2 of RTE from the first layer."""
    assert 100 * paper.disable_one_head('MRPC').differences.max() == pytest.approx(1.2, abs=0.1)
    layers = paper.disable_one_layer('RTE').differences
    assert layers.argmax() == 0 and 100 * layers[0] == pytest.approx(3.2, abs=0.05)


def test_rank_correlation():
    theirs = paper.attention_change('RTE')
    same = paper.rank_correlation(theirs.astype(np.float32) / 2, theirs)
    assert (same.heads, same.layers) == pytest.approx((1, 1), abs=1e-3)
    assert type(same.heads) is type(same.layers) is float
    # Heads turned round in every layer: these keep their order, and heads do not.
    turned = paper.rank_correlation(theirs[:, ::-1], theirs)
    assert turned.layers == pytest.approx(1) and turned.heads < 0.95


def test_rank_correlation_of_nothing():
    """No warning, which tests take for an error."""
    theirs = paper.attention_change('RTE')
    assert paper.rank_correlation(theirs, None) is None
    assert paper.rank_correlation(theirs[:6], theirs) is None
    constant = paper.rank_correlation(np.ones((12, 12)), theirs)
    assert math.isnan(constant.heads) and math.isnan(constant.layers)
    single = paper.rank_correlation(theirs[:1], theirs[:1] ** 2)
    assert single.heads == pytest.approx(1) and math.isnan(single.layers)
    # What is not known is left out.
    one = np.array([0.1, np.nan, 0.3, 0.2])
    assert paper.spearman(one, np.array([1.0, 9.0, 3.0, 2.0])) == pytest.approx(1)
    assert math.isnan(paper.spearman(one, np.full(4, np.nan)))


def test_published_outlier_dimensions():
    assert paper.outlier_dimensions('google-bert/bert-base-uncased') == (308, 381)
    assert paper.outlier_dimensions('roberta-base') == (77, 588)
    for other in ('bert-base-cased', 'all-MiniLM-L6-v2', 'bert-base-uncased/x', ''):
        assert paper.outlier_dimensions(other) is None


def test_what_clark_et_al_published():
    """Their text: over half on [SEP] in layers 6 to 10, and over 90 % from [SEP] to [SEP]."""
    found = paper.what_bert_looks_at()
    sep = found.layers['all [SEP]'][5:10]
    assert sep.mean() > 0.5 and (sep > 0.5 - 2 * found.error).all()
    assert found.entropy_of_last_cls == 3.89
    assert found.heads_over_half == {'previous token': 4, 'next token': 5}
    for means in found.layers.values():
        assert means.shape == (12,) and means.dtype == np.float64
        assert np.nanmin(means) >= 0 and np.isfinite(means).any()
    # The caller's own.
    found.layers['[CLS]'][:] = 0
    assert paper.what_bert_looks_at().layers['[CLS]'][1] == 0.25
