"""`finetune`: what it is given, what it refuses, and what it returns, in memory and in a folder."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune import outcome, train
from bert_secrets_jax.finetune.train import Finetuned, finetune
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.weights import from_pretrained, save_pretrained, with_classifier
from tests.conftest import WORDS
from tests.fuzz.broken import logged
from tests.model.test_weights import assert_equal

# Two seeds wherever nothing else is needed: what was compiled for one test serves the next.
SETTINGS = {
    'seeds': 2, 'epochs': 2, 'batch_size': 8, 'micro_batch': 4, 'learning_rate': 5e-3,
    'max_length': 16, 'log_every': 2,
}  # fmt: skip


def make_examples(count, *, name, seed=0):
    """The class is 1 where the second text begins with "cat" and not with "dog"."""
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if word.isalpha() and word not in ('cat', 'dog')]
    examples = []
    for index in range(count):
        text = lambda longest: list(rng.choice(words, rng.integers(1, longest)))
        first, label = text(9), int(rng.integers(2))
        second = [('dog', 'cat')[label], *text(3)]
        examples.append(Example(' '.join(first), ' '.join(second), label, f'{name}/{index}'))
    return examples


TRAIN = make_examples(30, name='train')
DEV = make_examples(16, name='dev', seed=1)


def relabelled(examples, *labels):
    """Give the first examples other labels."""
    changed = []
    for example, label in zip(examples, labels, strict=False):
        changed.append(dataclasses.replace(example))
        # Past the type checker of the tests, which a user does not have.
        object.__setattr__(changed[-1], 'label', label)
    return changed + examples[len(changed) :]


def as_regression(examples):
    return [dataclasses.replace(example, label=3.0 * example.label + 1) for example in examples]


def assert_same(a, b):
    assert a.config == b.config
    assert_equal(a.params, b.params)


@pytest.fixture(scope='module')
def tuned(pretrained):
    return finetune(pretrained, TRAIN, DEV, **SETTINGS)


@pytest.mark.parametrize('names', [(), 'score'])
def test_a_fresh_classifier_needs_names(pretrained, names):
    with pytest.raises(ValueError, match='(at least 1 needed|must be)'):
        bs.with_classifier(pretrained, names)


@pytest.mark.parametrize('start', ['pretrained', 'random'])
def test_each_seed_has_a_start_of_its_own(pretrained, start):
    """A fresh classifier, or all weights; the rate is so low that nothing moves."""
    settings = SETTINGS | {'seeds': (5, 3), 'epochs': 1, 'learning_rate': 1e-20}
    found = finetune(pretrained, TRAIN, DEV, start=start, **settings)
    assert (found.start, found.seeds) == (start, (5, 3))
    for rows in (found.first_scores, found.scores, found.best_scores):
        assert tuple(row['seed'] for row in rows) == found.seeds
    for seed, model in zip(found.seeds, found.models, strict=True):
        expected = with_classifier(pretrained, ('LABEL_0', 'LABEL_1'), seed=seed)
        assert model.config == expected.config
        params = expected.params if start == 'pretrained' else init_params(model.bert, seed)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), model.params, params
        )


def test_what_it_returns(tuned):
    assert tuned.seeds == (0, 1) and tuned.metrics == ('f1', 'accuracy')
    assert tuned.label_names == ('LABEL_0', 'LABEL_1')
    assert tuned.train_examples == 30 and tuned.dev_examples == 16
    ones = sum(example.label for example in DEV)
    assert tuned.larger_class == max(ones, 16 - ones) / 16
    by_epoch = [
        [r for r in tuned.history if r['split'] == 'dev' and r['epoch'] == e] for e in range(3)
    ]
    assert [tuned.first_scores, tuned.scores] == by_epoch[::2]
    for best, *rows in zip(tuned.best_scores, *by_epoch[1:], strict=True):
        assert best in rows and best['score'] == max(row['score'] for row in rows)
    assert len(repr(tuned)) < 400
    with pytest.raises(ValueError, match='in memory'):
        tuned.checkpoint(0)


def outcome_of(*, labels, metrics=(), **row):
    """A fine-tuning with nothing but a dev row of 200 examples, 60 % of which are of one class."""
    row = {'split': 'dev', 'seed': 0, 'epoch': 1, 'score': 0.0} | row
    larger = 0.6 if len(labels) > 1 else float('nan')
    return Finetuned(
        start='pretrained', seeds=(0,), metrics=metrics, label_names=labels, train_examples=1,
        dev_examples=200, larger_class=larger, history=[row],
    )  # fmt: skip


@pytest.mark.parametrize('right', [0, 119, 120, 131, 132, 140, 200])
def test_learnt_is_a_binomial_test_against_the_larger_class(right):
    found = outcome_of(labels=('a', 'b', 'c'), accuracy=right / 200)
    expected = scipy.stats.binom.sf(right - 1, 200, 0.6)
    assert found.p_learnt == pytest.approx((expected,))
    assert found.learnt == (right >= 132)
    ((low, high),) = found.intervals
    assert 0 <= low <= right / 200 <= high <= 1 and low < high
    assert f'{100 * found.scores[0]["accuracy"]:.0f} of 100 answers are right (' in repr(found)
    assert found.score.endswith(f'{100 * low:.0f} to {100 * high:.0f}); guessing gives 60')


def test_names_of_classes_come_with_the_examples_and_stay(pretrained, tmp_path):
    path, settings = tmp_path / 'a.csv', SETTINGS | {'seeds': (0,), 'epochs': 1}
    path.write_text('text,mood\n' + 'cat,glad\ndog,sad\n' * 4)
    names = ('sad', 'glad')
    one, other = (
        read_table(path, text_a='text', label='mood', labels=each) for each in (names, names[::-1])
    )
    save_pretrained(finetune(pretrained, one, one, **settings).models[0], tmp_path / 'model')
    assert from_pretrained(tmp_path / 'model').config.label_names == names
    with pytest.raises(ValueError, match='glad, sad .*a.csv, line 9.* and sad, glad .*same labels'):
        finetune(pretrained, one, other, **settings)


def test_matthews_without_all_predictions_has_no_interval():
    """Former versions did not keep them."""
    found = outcome_of(labels=('a', 'b'), metrics=('matthews',), matthews=0.5)
    assert np.isnan(found.intervals).all() and found.score == "Matthews' r is 50 of 100"


@pytest.mark.parametrize('slope', [-0.3, 0.0, 0.1, 0.3])
def test_a_regression_has_learnt_where_pearson_is_above_zero(slope):
    rng = np.random.default_rng(3)
    labels = rng.normal(size=200)
    predicted = slope * labels + rng.normal(size=200)
    expected = scipy.stats.pearsonr(predicted, labels, alternative='greater')
    found = outcome_of(labels=('score',), pearson=float(expected.statistic))
    assert found.p_learnt == pytest.approx((expected.pvalue,))
    assert found.learnt == (expected.pvalue <= 0.05)
    interval = scipy.stats.pearsonr(predicted, labels).confidence_interval()
    assert found.intervals[0] == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(('pearson', 'p_value'), [(float('nan'), 1), (1.0, 0), (-1.0, 1)])
def test_correlations_at_their_limits(pearson, p_value):
    found = outcome_of(labels=('score',), pearson=pearson)
    assert found.p_learnt == (p_value,) and np.isnan(found.intervals).all()


def test_every_seed_must_have_learnt(tuned):
    one, other = (
        row | {'accuracy': right} for row, right in zip(tuned.scores, (1.0, 0.5), strict=True)
    )
    both = dataclasses.replace(tuned, history=[one, other])
    assert both.p_learnt[0] < 1e-3 and both.p_learnt[1] > 0.5 and not both.learnt
    assert both.first(1).learnt


def test_a_regression(pretrained):
    found = finetune(pretrained, as_regression(TRAIN), as_regression(TRAIN), **SETTINGS)
    assert found.label_names == ('score',) and found.metrics == ('pearson', 'spearman')
    assert np.isnan(found.larger_class)
    assert found.models[0].config.num_labels == 1
    # Whole numbers are values too where there is one name; Pearson's r is there in any case.
    options = SETTINGS | {'metrics': ['spearman']}
    found = finetune(pretrained, TRAIN, DEV, label_names=['score'], **options)
    assert found.metrics == ('spearman',) and 'pearson' in found.scores[0]
    assert found.scores[0]['score'] == found.scores[0]['spearman']


def test_an_existing_classifier_is_replaced(pretrained, tuned):
    given = with_classifier(pretrained, ('a', 'b', 'c', 'd'), seed=9)
    found = finetune(given, TRAIN, DEV, **SETTINGS)
    assert found.history == tuned.history


TABLES = 'curve.jsonl', 'curve.csv', 'movement.csv'


def test_a_learning_rate_with_which_nothing_is_learnt_is_told(pretrained):
    with logged() as lines:
        finetune(pretrained, TRAIN, DEV, **SETTINGS | {'learning_rate': 1.0, 'epochs': 1})
    assert any(line.startswith('Nothing was learnt in the first epoch') for line in lines)
    with pytest.raises(ValueError, match=r'learning_rate=1\.5 must be a number from 0 to 1'):
        finetune(pretrained, TRAIN, DEV, **SETTINGS | {'learning_rate': 1.5})


def test_a_folder_changes_nothing_and_is_read_again(pretrained, tuned, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    first = finetune(pretrained, TRAIN, DEV, folder=folder, **SETTINGS)
    assert first.history == tuned.history
    assert dataclasses.replace(first, folder=None) == tuned
    assert first.checkpoint(1, 'best') == folder / 'seed1' / 'best'
    for wrong, message in (
        ({'seed': 2}, 'seed=2 must be'),
        ({'seed': 0, 'which': 'first'}, "which='first' must be 'last' or 'best'"),
    ):
        with pytest.raises(ValueError, match=message):
            first.checkpoint(**wrong)

    never = lambda *_, **__: pytest.fail('This is not needed.')
    with monkeypatch.context() as patch:
        patch.setattr(train, 'train_runs', never)
        patch.setattr(train, 'tokenize', never)
        patch.setattr(outcome, 'from_pretrained', never)
        again = finetune(pretrained, TRAIN, DEV, folder=str(folder), **SETTINGS | {'seeds': (0, 1)})
        assert again == first == Finetuned.load(folder)
        assert again.scores == tuned.scores and again.p_learnt == tuned.p_learnt
        # Tables that somebody changed are told, and are then the same bits.
        tables = {name: (folder / name).read_bytes() for name in TABLES}
        (folder / TABLES[0]).write_bytes(b'\xff')
        (folder / TABLES[1]).unlink()
        (folder / TABLES[2]).write_bytes(tables[TABLES[2]].replace(b'0', b'1'))
        for told in (TABLES, ()):
            with logged() as lines:
                assert finetune(pretrained, TRAIN, DEV, folder=folder, **SETTINGS) == first
            assert [line.split(' is ')[0] for line in lines] == [str(folder / n) for n in told]
        assert {name: (folder / name).read_bytes() for name in TABLES} == tables
    for found in (first, again):
        for model, expected in zip(found.models, tuned.models, strict=True):
            assert_same(model, expected)
        assert found.models is found.models


def test_a_folder_of_something_else_is_refused(pretrained, tmp_path):
    settings = SETTINGS | {'epochs': 1, 'folder': tmp_path}
    finetune(pretrained, TRAIN, DEV, **settings)
    moved = jax.tree.map(lambda leaf: leaf + 1e-3, pretrained.params)
    other = dataclasses.replace(pretrained, params=moved)
    for model, train_on, dev, changes, message in (
        (pretrained, TRAIN, DEV, {'learning_rate': 1e-3}, 'learning_rate=0.005, not 0.001: ch'),
        (pretrained, TRAIN, DEV, {'seeds': 1}, r'with seeds=\[0, 1\], not \[0\]'),
        (pretrained, TRAIN, DEV, {'start': 'random'}, "start='pretrained', not 'random'"),
        (pretrained, TRAIN, DEV, {'label_names': ('a', 'b')}, 'label_names='),
        (pretrained, TRAIN[1:], DEV, {}, 'another list of training examples'),
        (pretrained, TRAIN, relabelled(DEV, 1 - DEV[0].label), {}, 'another list of dev examples'),
        (other, TRAIN, DEV, {}, 'another model'),
    ):
        with pytest.raises(ValueError, match=message):
            finetune(model, train_on, dev, **settings | changes)
    (tmp_path / 'inputs.json').unlink()
    with pytest.raises(ValueError, match='of another version'):
        finetune(pretrained, TRAIN, DEV, **settings)


def test_settings_that_came_later_count_where_they_are_not_at_their_defaults(pretrained):
    """So what was kept before them is found again: this is how models were described then."""
    config = pretrained.config
    shown = train._described(config)
    assert shown.startswith("BertConfig(model_type='bert', vocab_size=")
    assert 'rope_frequencies=None, add_pooler=True' in shown
    assert not any(name in shown for name in train._CAME_LATER)
    assert vars(config).keys() >= train._CAME_LATER
    other = dataclasses.replace(
        config, model_type='ernie', use_task_id=True, task_type_vocab_size=3
    )
    assert 'use_task_id=True, task_type_vocab_size=3' in train._described(other)


def test_the_dev_examples_have_a_limit_of_their_own(pretrained):
    settings = SETTINGS | {'epochs': 1, 'seeds': (3, 4), 'metrics': ('f1',)}
    few = finetune(pretrained, TRAIN, DEV, max_dev_examples=6, **settings)
    assert few.dev_examples == 6 and few.train_examples == 30
    chosen = sorted(np.random.default_rng(3).permutation(16)[:6])
    assert few == finetune(pretrained, TRAIN, [DEV[index] for index in chosen], **settings)
    # An accuracy is there whatever the metrics are.
    assert few.scores[0]['score'] == few.scores[0]['f1'] and 'accuracy' in few.scores[0]


def placed(label):
    return dataclasses.replace(TRAIN[-1], label=label, where='mine.csv, line 31')


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'start': 'scratch'}, "start='scratch' must be 'pretrained' or 'random'"),
        ({'max_dev_examples': -1}, 'max_dev_examples=-1 must be a whole number, 0 for all'),
        ({'metrics': ('f1', 'pearson')}, "For 2 classes, metric='pearson' must be 'accuracy'"),
        ({'metrics': 'f1'}, "metric='f1' must be a list of 'accuracy'"),
        ({'metrics': ()}, 'must be a list of'),
        ({'metrics': ('f1',), 'label_names': tuple('abc')}, "For 3 classes, metric='f1' must be"),
        ({'max_length': 64}, 'more than the 4 tokens that the model reads: give max_length=4'),
        ({'train': []}, 'There are no training examples: 0 given, at least 1'),
        ({'dev': []}, 'There are no dev examples'),
        ({'train': relabelled(TRAIN, 0, None)}, 'Training example train/1 has no label'),
        ({'dev': [Example('the cat', 'a dog')]}, 'Dev example text/0 has no label'),
        ({'train': relabelled(TRAIN, 'yes')}, "Training example train/0 has the label 'yes'"),
        ({'dev': relabelled(DEV, 0, 2)}, 'Dev example dev/1 has the label 2, and the classes are'),
        ({'train': relabelled(TRAIN, *[0] * 30)}, "All training labels are 'LABEL_0', so that"),
        (
            {'train': relabelled(TRAIN, *[0] * 30), 'label_names': ('no', 'yes')},
            "All training labels are 'no'.* one_class=True",
        ),
        ({'train': relabelled(TRAIN, *[0.5] * 30)}, 'All training labels are 0.5, so that noth'),
        # By file and line, where there are any.
        ({'train': [*TRAIN[:-1], placed(10**9)]}, r'mine\.csv, line 31 .* are 0 to 999'),
        ({'dev': [placed(2), *DEV[1:]]}, r'Dev example mine\.csv, line 31 .* are 0 to 1'),
        ({'dev': [Example('a', None, 0)]}, 'or both be pairs: train/0 and text/0 differ'),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_before_anything_is_trained(
    pretrained, monkeypatch, changes, message
):
    monkeypatch.setattr(train, 'train_runs', lambda *_, **__: pytest.fail('It was trained.'))
    if 'max_length' in changes:
        monkeypatch.setattr(pretrained.tokenizer, 'reads', 4, raising=False)
    arguments = {'train': TRAIN, 'dev': DEV} | SETTINGS | changes
    with pytest.raises(ValueError, match=message):
        finetune(pretrained, arguments.pop('train'), arguments.pop('dev'), **arguments)


def test_a_class_without_examples_is_told():
    with logged() as lines:
        assert len(train._names_from(relabelled(TRAIN, 3), DEV)) == 4
    assert lines == ['No training example is of the class 2: classes are counted from 0.']
