"""Fine-tuning on tags of words and on answers: losses, scores, and that something is learnt."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.finetune import answers, losses, tags
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import MASKED_LM, QUESTIONS, TOKENS
from bert_secrets_jax.stats.student import p_above_zero
from tests.conftest import WORDS, as_torch, forward, fresh_params, rarely

SETTINGS = {
    'epochs': 8, 'batch_size': 8, 'micro_batch': 8, 'learning_rate': 5e-3, 'max_length': 16,
}  # fmt: skip
PLAIN = [word for word in WORDS if word.isalpha()]
OTHERS = [word for word in PLAIN if word not in ('cat', 'dog')]


def tagged(count, seed=0):
    """Names are 'cat dog', and what stands before 'dog' alone is none."""
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        words, names = [], []
        for _ in range(rng.integers(2, 5)):
            if rng.random() < 0.4:
                words += ['cat', 'dog']
                names += ['B-PET', 'I-PET']
            else:
                words.append(str(rng.choice(OTHERS)))
                names.append('O')
        texts.append(bs.Tagged(tuple(words), tuple(names), f'toy/{number}'))
    return texts


def asked(count, seed=0):
    """The answer is 'dog', wherever it stands."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        words = list(map(str, rng.choice(OTHERS, rng.integers(3, 7))))
        place = int(rng.integers(len(words) + 1))
        words.insert(place, 'dog')
        start = len(' '.join([*words[:place], '']))
        found.append(bs.Question('cat', ' '.join(words), (('dog', start),), f'toy/{number}'))
    return found


CLASSES = [bs.Tagged(('cat', 'sat'), ('NOUN', 'VERB'), f'{n}') for n in range(4)]
LATE = [bs.Question('dog', 'cat ' * 40 + 'mat', (('mat', 160),), 'late')]


def test_the_loss_of_tags_is_pytorchs():
    torch = pytest.importorskip('torch')
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(3, 7, 5)).astype(np.float32), rng.integers(0, 5, (3, 7))
    labels[rng.random((3, 7)) < 0.4] = losses.NONE
    found = losses.loss_per_example(jnp.asarray(logits), jnp.asarray(labels), head=TOKENS)
    theirs = torch.nn.functional.cross_entropy(
        torch.tensor(logits).transpose(1, 2), torch.tensor(labels), ignore_index=losses.NONE
    )
    mean = found.sum() / losses.terms(labels, head=TOKENS).sum()
    assert float(mean) == pytest.approx(float(theirs), rel=1e-6)


def test_the_loss_of_answers_is_pytorchs_and_ignores_padding():
    torch = pytest.importorskip('torch')
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 7, 2)).astype(np.float32)
    places = np.array([[1, 2], [0, 6], [losses.NONE, losses.NONE]])
    real = np.ones((3, 7), bool)
    found = losses.loss_per_example(logits, places, head=QUESTIONS, real=real)
    theirs = torch.nn.functional.cross_entropy(torch.tensor(logits[:2]), torch.tensor(places[:2]))
    assert float(found[:2].mean()) == pytest.approx(float(theirs), rel=1e-6)
    assert found[2] == 0
    np.testing.assert_array_equal(losses.terms(places, head=QUESTIONS), [1, 1, 0])
    more = np.concatenate([logits, 9 + logits], axis=1)
    real = np.concatenate([real, ~real], axis=1)
    padded = losses.loss_per_example(more, places, head=QUESTIONS, real=real)
    np.testing.assert_allclose(padded, found, rtol=1e-6)


@pytest.mark.parametrize('kind', rarely(['tags', 'answers'], often=['tags']))
def test_gradients_do_not_depend_on_micro_batches(pretrained, kind):
    """Micro-batches are padded to lengths of their own, and add up to the mean over a step."""
    examples = (tagged if kind == 'tags' else asked)(16)
    one, other = (
        bs.finetune(
            pretrained, examples, examples[:6],
            **SETTINGS | {'epochs': 1, 'micro_batch': micro, 'learning_rate': 1e-4},
        ).models[0].params
        for micro in (8, 2)
    )  # fmt: skip
    # Dropout is drawn by example and position, and does not change with the batch either.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), one, other)


def test_scores_of_tags_are_those_by_hand():
    """Of four spans one is found; 'I-B' after 'O' begins a span, too."""
    names = ('O', 'B-A', 'I-A', 'B-B', 'I-B')
    true = [[0, 1, 2, 0, 3], [1, 1, 2, 0, 0], [0, 0, 0, 0, 0]]
    predicted = np.array([[0, 1, 2, 0, 1], [1, 2, 2, 0, 0], [0, 4, 0, 0, 0]])
    texts = [bs.Tagged(('w',) * 5, tuple(names[each] for each in row)) for row in true]
    numbers, words = tags.numbered(texts, names), np.tile(np.arange(5, dtype=np.int32), (3, 1))
    np.testing.assert_array_equal(tags.labels_of(words, numbers), true)
    metrics = ('span_f1', 'word_accuracy', 'f1_macro')
    found = tags.evaluate(words, numbers, names, metrics, np.eye(5)[predicted])
    assert found['span_f1'] == pytest.approx(2 * 1 / (4 + 4))
    assert found['word_accuracy'] == pytest.approx(12 / 15)
    assert found['score'] == pytest.approx(np.mean([found[name] for name in metrics]))
    # 'O' is right in two, two and five words; the model in four, four and four.
    test = scipy.stats.ttest_1samp([4 - 2, 4 - 2, 4 - 5], 0, alternative='greater')
    assert found['p_learnt'] == pytest.approx(test.pvalue)


def test_words_that_were_cut_off_count_as_wrong():
    """Of four words 'a b c d' with the tags 'O O B-A O', two are left."""
    words = np.array([[-1, 0, 1, -1]], np.int32)
    logits = np.zeros((1, 4, 2))
    logits[..., 0] = 1
    given = words, [np.array([0, 0, 1, 0])], ('O', 'B-A'), ('word_accuracy', 'span_f1')
    found = tags.evaluate(*given, logits)
    assert found['word_accuracy'] == 0.5 and found['span_f1'] == 0


@pytest.mark.parametrize(
    ('answer', 'right', 'exact', 'f1'),
    [
        ('The Old mat!', 'old mat', 1, 1),
        ('old mat', 'mat', 0, 2 / 3),
        ('an old old mat', 'the old mat', 0, 4 / 5),
        ('door', 'mat', 0, 0),
        ('', 'mat', 0, 0),
    ],
)
def test_scores_of_answers(answer, right, exact, f1):
    assert answers.exact_match(answer, right) == exact
    assert answers.word_f1(answer, right) == pytest.approx(f1)


def test_the_best_answer_is_in_the_text_and_not_too_long(tokenizer):
    question = bs.Question('cat', 'the dog ran and the bird', (('dog', 4),))
    encoded = bs.tokenize(tokenizer, [question.example])
    logits = np.zeros((1, encoded.input_ids.shape[1], 2))
    # The greatest scores are at [CLS] and in the question; an end before its beginning counts less.
    logits[0, :2] = 9
    ((first, last),) = answers.places_of(encoded, [question], 'Dev')
    logits[0, first, 0], logits[0, last, 1], logits[0, first - 1, 1] = 2, 2, 3
    assert answers.evaluate(encoded, [question], ('exact_match',), logits)['exact_match'] == 1


def test_an_answer_at_the_place_of_others_proves_nothing(tokenizer):
    """Questions of different lengths, and the answer is always the first word of the text."""
    rng = np.random.default_rng(0)
    questions = []
    for row in range(40):
        words = [PLAIN[each] for each in rng.choice(len(PLAIN), 6, replace=False)]
        asked_for = ' '.join(['big'] * (1 + row % 5))
        questions.append(bs.Question(asked_for, ' '.join(words), ((words[0], 0),), f'{row}'))
    encoded = bs.tokenize(tokenizer, [each.example for each in questions])
    logits = np.zeros((40, encoded.input_ids.shape[1], 2))
    for row, (first, last) in enumerate(answers.places_of(encoded, questions, 'Dev')):
        logits[row, first, 0] = logits[row, last, 1] = 9
    found = answers.evaluate(encoded, questions, ('answer_f1',), logits)
    assert found['answer_f1'] == 1 and found['p_learnt'] == 1


def test_few_texts_that_are_alike_prove_little():
    assert p_above_zero(np.array([3.0, 3.0])) == 0.25
    assert p_above_zero(np.array([1.0, 1.0, 1.1])) == 0.125
    assert p_above_zero(np.array([5.0])) == p_above_zero(np.zeros(9)) == 1
    rng = np.random.default_rng(0)
    values = rng.normal(0.4, 1, size=30)
    expected = scipy.stats.ttest_1samp(values, 0, alternative='greater').pvalue
    assert p_above_zero(values) == pytest.approx(expected)


@pytest.fixture(scope='module')
def learnt(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp('tags')
    return bs.finetune(pretrained, tagged(64), tagged(24, 1), folder=folder, **SETTINGS)


def test_tags_are_learnt(learnt):
    assert learnt.head == TOKENS and learnt.metrics == ('span_f1', 'word_accuracy')
    assert learnt.label_names == ('O', 'B-PET', 'I-PET')
    assert learnt.learnt and min(row['span_f1'] for row in learnt.scores) > 0.9
    assert 0.3 < learnt.larger_class < 0.9
    model = learnt.models[0]
    assert model.config.head == TOKENS and model.config.label_names == learnt.label_names
    again = bs.Finetuned.load(learnt.folder)
    assert again.scores == learnt.scores and again.p_learnt == learnt.p_learnt
    report = bs.analyses.finetuning(learnt)
    assert 'span F1' in str(report)


def test_what_is_exported_is_read_by_transformers(learnt):
    torch = pytest.importorskip('torch')
    import transformers

    theirs = transformers.AutoModelForTokenClassification.from_pretrained(learnt.checkpoint(0))
    model = learnt.models[0]
    (batch,) = bs.encode(model.tokenizer, [tagged(1, 5)[0].text])
    ours = forward(model.bert, model.params, batch.inputs).logits
    with torch.no_grad():
        expected = theirs.eval()(**as_torch(model.config, batch.inputs)).logits.numpy()
    real = batch.marks['token']
    np.testing.assert_allclose(np.asarray(ours)[real], expected[real], atol=2e-5)
    assert theirs.config.id2label == {0: 'O', 1: 'B-PET', 2: 'I-PET'}


def test_answers_are_learnt(pretrained, tmp_path):
    found = bs.finetune(pretrained, asked(96), asked(24, 1), folder=tmp_path, **SETTINGS)
    assert found.head == QUESTIONS and found.metrics == ('exact_match', 'answer_f1')
    assert found.learnt and found.scores[0]['exact_match'] > 0.8
    assert found.models[0].config.label_names == ('start', 'end')
    assert 'exact match' in str(bs.analyses.finetuning(bs.Finetuned.load(tmp_path)))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'dev': [bs.Tagged(('a',), ('B-X',))]}, "dev/0 has the tag 'B-X', none of those"),
        ({'dev': [bs.Example('a', None, 1)]}, 'several kinds are mixed'),
        ({'dev': []}, 'There are no dev examples'),
        ({'metrics': ['accuracy']}, "For these 3 tags of words, metric='accuracy' must"),
        ({'train': [bs.Tagged(('a',), ('O',))]}, "too few tags of words: .* not .'O',. alone"),
        ({'train': bs.Tagged(('a',), ('O',))}, 'a single one is given as a list'),
        ({'train': None, 'dev': None}, 'train=None must be a list of Example'),
        ({'metrics': ['span_f1', 'span_f1']}, "has 'span_f1' twice"),
        ({'train': CLASSES, 'dev': CLASSES, 'metrics': ['span_f1']}, "For these 2 .*'span_f1'"),
        ({'train': asked(4), 'dev': asked(4), 'label_names': ('a', 'b')}, 'have no classes'),
        ({'train': LATE, 'dev': LATE, 'max_length': 16}, 'cut before the answer in all of them'),
    ],
)
def test_what_does_not_fit_is_named(pretrained, change, message, untyped):
    given = {'train': tagged(8), 'dev': tagged(4, 1)} | change
    with pytest.raises((ValueError, TypeError), match=message):
        bs.finetune(pretrained, **given)


def test_a_masked_lm_can_be_finetuned_in_a_folder(pretrained, tmp_path):
    """It has no classes, and another head takes the place of its own."""
    bert = Bert(dataclasses.replace(pretrained.config, head=MASKED_LM, label_names=()))
    model = dataclasses.replace(pretrained, bert=bert, params=fresh_params(bert, 0))
    found = bs.finetune(model, tagged(8), tagged(4, 1), folder=tmp_path, **SETTINGS | {'epochs': 1})
    assert found.models[0].config.head == TOKENS
