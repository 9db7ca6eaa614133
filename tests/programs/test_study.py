"""Shared measurements of a study, and what the names of its results depend on."""

import dataclasses
import functools
import json
import shutil
import sys

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.configs import schema
from bert_secrets_jax.measure.catalogue import named
from bert_secrets_jax.programs import inputs, report, sources
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sources import Given, measured_before, statistic_key
from bert_secrets_jax.runs.call import INPUTS, call
from bert_secrets_jax.runs.folder import open_folder
from tests.analyses.conftest import with_outliers
from tests.conftest import relative
from tests.experiments.conftest import check_lines
from tests.programs.conftest import fake

outliers = sys.modules['bert_secrets_jax.analyses.outliers']


def value(study, name):
    return Given(study).value(name)


def kept(study):
    names = {file.stem.rpartition('-')[0] for file in (study.folder / 'kept').glob('*.npz')}
    return {name for name in names if not name.startswith('fact')}


def check_lines_of(answers, section):
    lines = {section: answers.lines[section].python}
    check_lines(answers.in_order()[-1].result.python, lines, answers.study.folder)


def test_one_pass_measures_what_all_want(study, monkeypatch):
    wants = fake(print, wants=lambda given: [named('[SEP]'), named('self')])
    monkeypatch.setitem(ANALYSES, 'wants', wants)
    study.watched = ('wants',)
    found, _ = measured_before(Given(study), [named('[CLS]')])
    assert list(found) == ['[CLS]'] and kept(study) == {'_CLS_', '_SEP_', 'self'}
    batches = bs.encode(value(study, 'pretrained').tokenizer, value(study, 'texts'), max_length=24)
    expected = bs.collect(value(study, 'pretrained'), batches, ['[CLS]'])['[CLS]']
    np.testing.assert_allclose(found['[CLS]'].mean, expected.mean, atol=2e-6)
    assert measured_before(Given(study), [named('self')])[0]['self'].count == 20


def faulty(attentions, marks):
    raise RuntimeError('No number of this.')


def test_what_others_want_and_fails_takes_nothing_along(study, monkeypatch):
    own = bs.Described('mine', 'mine', faulty)
    monkeypatch.setitem(ANALYSES, 'wants', fake(print, wants=lambda given: [own, named('[SEP]')]))
    study.watched = ('wants',)
    assert measured_before(Given(study), [named('[CLS]')])[0]['[CLS]'].count == 20
    assert kept(study) == {'_CLS_'}
    with pytest.raises(RuntimeError, match='No number of this'):
        measured_before(Given(study), [own])


def test_code_of_ones_own_is_what_it_depends_on(study, tmp_path, monkeypatch):
    """A function, one that the library makes, and one with a title: edited, it is another one."""
    monkeypatch.syspath_prepend(tmp_path)
    source = (
        'import bert_secrets_jax as bs\n'
        'def half(attentions, marks): ...\n'
        "to_word = bs.statistics.attention_to('token')\n"
        "titled = bs.Described('a title', 'a title', half)\n"
    )
    names = [f'study_module:{name}' for name in ('half', 'to_word', 'titled')]
    study.config.statistics = ('[CLS]', *names)
    found = []
    for text in (source, f'{source}\n# Edited.\n'):
        (tmp_path / 'study_module.py').write_text(text)
        study.release()
        found.append([statistic_key(Given(study), named(name)) for name in ('[CLS]', *names)])
    (first, *before), (second, *after) = found
    assert first == second and 'code' not in first and before[-1]['statistic'] == 'a title'
    for key, other in zip(before, after, strict=True):
        assert key['code'] != other['code'] and key == other | {'code': key['code']}
    del sys.modules['study_module']


def test_digests_are_of_content(study, checkpoint, glue_dir, tmp_path):
    """Texts and weights may lie elsewhere; others in the same place are others."""
    first = {name: Given(study).digest(name) for name in ('pretrained', 'texts', 'train', 'dev')}
    assert first['texts'] == first['dev']
    moved = Study(study.config.copy_and_resolve_references(), tmp_path / 'other')
    (tmp_path / 'glue').symlink_to(glue_dir)
    (tmp_path / 'model').symlink_to(checkpoint)
    moved.config.data.glue_dir = str(tmp_path / 'glue')
    moved.config.model.name = str(tmp_path / 'model')
    assert {name: Given(moved).digest(name) for name in first} == first
    fewer = Study(study.config.copy_and_resolve_references(), tmp_path / 'other')
    fewer.config.data.max_examples = 5
    assert (
        Given(fewer).digest('texts') != first['texts']
        and Given(fewer).digest('dev') == first['dev']
    )


def test_what_a_finetuning_depends_on(study):
    """A setting that changes nothing about it leads to the same folder."""
    first = Given(study).input('tuned').key
    for name, value, other in (
        ('links.draws', 200, False),
        ('ablation.baseline', 'zero', False),
        ('train.starts', ('random',), False),
        ('data.max_examples', 7, False),
        ('train.checkpoint_every', 7, False),
        ('train.epochs', 7, True),
        ('train.max_examples', 7, True),
        ('train.max_dev_examples', 7, True),
        ('encoding.max_length', 20, True),
        ('seed', 1, True),
    ):
        changed = Study(study.config.copy_and_resolve_references(), study.folder)
        changed.config.update_from_flattened_dict({name: value})
        assert (Given(changed).input('tuned').key != first) == other, name
    assert Given(study).input('tuned_random').key != first


@pytest.fixture
def choosing(study, monkeypatch):
    """A study of twenty training texts, of which no two are alike, and six to measure on."""
    words = ('cat', 'dog', 'bird', 'house', 'teacher')
    pairs = [(f'the {one} saw it .', f'a {other} ran .') for one in words for other in words]

    def read(given, split):
        rows = pairs[:20] if split == 'train' else pairs[20:]
        rows += [('the teacher ran .', 'a bird saw it .')] * (split != 'train')
        return [bs.Example(*row, label=i % 2, id=f'{split}/{i}') for i, row in enumerate(rows)]

    monkeypatch.setattr(sources, '_reading', lambda given, split: call(read, given, split))
    study.config.train.max_examples = 14
    study.config.ablation.choose_examples = 4
    return study


def test_the_best_is_chosen_on_texts_that_train_nothing(choosing, give):
    """Texts that no model has seen, whose sweep is kept by itself."""
    choosing.config.ablation.sets = ('layers', 'one_head_left')
    chosen = value(choosing, 'choosing')
    assert len(chosen) == 4 and not set(chosen) & {
        *value(choosing, 'train'),
        *value(choosing, 'dev'),
    }
    tuned = bs.with_classifier(value(choosing, 'pretrained'), ('no', 'yes'), seed=3)
    give('model', tuned)
    found = Given(choosing).answer('ablate')
    parts = sorted((choosing.folder / 'parts').iterdir())
    assert found.sets['layers'].elsewhere.choosing == 4
    assert found.sets['one_head_left'].elsewhere is None
    again = Study(choosing.config, choosing.folder, writable=False)
    assert Given(again).finished('ablate').sets['layers'].elsewhere.choosing == 4
    # Without it, the sweep of the ablated texts is the same one.
    choosing.config.ablation.choose_examples = 0
    without = Study(choosing.config, choosing.folder)
    assert Given(without).answer('ablate').sets['layers'].elsewhere is None
    assert sorted((choosing.folder / 'parts').iterdir()) == parts


def test_texts_that_training_left_out_are_ablated_too(choosing):
    """They come behind those of dev, and the best is chosen on still others."""
    choosing.config.ablation.left_out_examples, choosing.config.ablation.choose_examples = 4, 2
    dev, left = value(choosing, 'ablated')[:-4], value(choosing, 'ablated')[-4:]
    assert dev == value(choosing, 'dev')
    name = INPUTS['ablated'].label(Given(choosing))
    assert name.endswith('and 4 texts that training left out')
    assert (
        len(
            {
                each.texts
                for each in (*value(choosing, 'train'), *left, *value(choosing, 'choosing'))
            }
        )
        == 20
    )
    digest = Given(choosing).digest('ablated')
    other = Study(choosing.config, choosing.folder)
    other.config.ablation.left_out_examples = 3
    assert Given(other).digest('ablated') != digest
    other.config.ablation.left_out_examples = 7
    with pytest.raises(ValueError, match='ablation.left_out_examples=7 takes training texts'):
        Given(Study(other.config, choosing.folder)).value('ablated')


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('train.max_examples', 17, r'only 3 are neither trained on \(train.max_examples=17'),
        ('train.max_examples', 0, r'only 0 are neither trained on \(train.max_examples=0'),
        ('ablation.checkpoint', 'model', 'it is not known which texts its model has seen'),
        ('ablation.sets', ('one_head_left',), 'neither is disabled here: set it to 0'),
    ],
)
def test_texts_that_were_trained_on_choose_nothing(choosing, name, value, message):
    choosing.config.update_from_flattened_dict({name: value})
    with pytest.raises(ValueError, match=message):
        Given(choosing).answer('ablate')


def test_a_text_that_is_ablated_too_is_not_chosen_on(choosing, give):
    """The same words under another id are the same text."""
    drawn = value(choosing, 'train')
    left = [example for example in value(choosing, 'all_train') if example not in drawn]
    twins = [dataclasses.replace(example, id='twin') for example in left[:3]]
    give('ablated', twins)
    with pytest.raises(ValueError, match='of 20 only 3 are neither'):
        _ = value(choosing, 'choosing')
    other = Study(choosing.config, choosing.folder)
    other.config.ablation.choose_examples = 3
    assert value(other, 'choosing') == left[3:]


@pytest.fixture
def with_words(study, masked_lm, tmp_path):
    """The study, of a model with a head that predicts wordpieces."""
    bs.save_pretrained(masked_lm, tmp_path / 'masked')
    study.config.model.name = str(tmp_path / 'masked')
    return study


def test_a_model_without_such_a_head_is_not_asked_for_words(study):
    with pytest.raises(ValueError, match='masked_lm needs a model with the head of a masked LM'):
        report.check(study, ['masked_lm'])
    study.config.model.name = 'no such folder'
    assert 'masked_lm' not in report.applicable(study)


def test_the_masked_lm_is_asked_as_it_is(with_words):
    """Kept once, and without the head for everything else."""
    assert 'masked_lm' in report.applicable(with_words)
    found = Given(with_words).answer('masked_lm')
    assert not found.after
    assert {name for name in kept(with_words) if 'masked' in name} == {'masked_LM'}
    again = Given(with_words).finished('masked_lm')
    assert str(again) == str(found) and 'nats' in str(found)
    # The same texts under another name are those, and other wordpieces are another question.
    with_words.config.data.name = 'mine'
    assert Given(with_words).finished('masked_lm').subject.texts == 'mine'
    with_words.config.masked_lm.share = 0.5
    assert Given(with_words).finished('masked_lm') is None


def test_a_fine_tuned_encoder_is_read_with_the_same_head(with_words, give):
    tuned = bs.with_classifier(value(with_words, 'pretrained'), ('no', 'yes'))
    tuned = dataclasses.replace(
        tuned,
        params=tuned.params | {'layers': jax.tree.map(lambda x: 1.2 * x, tuned.params['layers'])},
    )
    give('tuned', tuned)
    results = {'finetune': object.__new__(bs.analyses.Finetuning)}
    found = Given(with_words, results).answer('masked_lm')
    assert abs(found.tuning.difference[0]) > 1e-3
    assert set(found.figures()) == {'heads', 'heads_after', 'layers', 'layers_after'}


def test_outliers_of_the_model_and_of_its_fine_tuning(study, masked_lm, tmp_path, give):
    """Kept once; nothing is fine-tuned for it, and what is, is scored."""
    bs.save_pretrained(with_outliers(masked_lm, [5]), tmp_path / 'outliers')
    study.config.model.name = str(tmp_path / 'outliers')
    study.config.outliers.draws, study.config.outliers.max_examples = 19, 8
    found = Given(study).answer('outliers')
    assert found.disabled == (5,) and not found.scores
    assert found.loss.effects.sample == 8 and len(found.loss.random) == 19
    tuned = bs.with_classifier(value(study, 'pretrained'), ('no', 'yes'))
    give('tuned', tuned)
    results = {'finetune': object.__new__(bs.analyses.Finetuning)}
    assert Given(study, results).finished('outliers') is None
    both = Given(study, results).answer('outliers')
    assert both.scores['f1'].effects.sample == 8 and set(both.scores) == {'f1', 'accuracy'}
    assert both.loss.effects.intact == found.loss.effects.intact
    assert kept(study) == {'outliers'}


NEEDS = {
    'outliers': 'needs a model whose layers end with LayerNorm',
    'subnetworks': 'needs a model that uses each of its layers',
}


@pytest.mark.parametrize('section', NEEDS)
def test_what_sections_need_of_a_model_is_told_before_anything_is_trained(
    study, monkeypatch, give, section
):
    report.check(study, [section])
    monkeypatch.setattr(outliers.layer_norm, 'ends_with_norm', lambda config: False)
    shared = relative(value(study, 'pretrained').config, 'albert')
    albert = dataclasses.replace(value(study, 'pretrained'), bert=bs.Bert(shared))
    give('pretrained', albert)
    # Facts about another model with the same weights.
    study.run.forget()
    shutil.rmtree(study.folder / 'kept')
    assert section not in report.applicable(study)
    with pytest.raises(ValueError, match=f'{section} {NEEDS[section]}'):
        report.check(study, [section])


def test_own_texts_are_called_as_the_user_says(study, tmp_path):
    """A file without header, whose labels are numbers with names."""
    (tmp_path / 'dev.tsv').write_text('1\tthe cat saw a dog\t1\n2\tshe ran\t0\n')
    data = study.config.data
    data.source, data.file, data.text_a = 'file', str(tmp_path / 'dev.tsv'), 'text'
    data.columns, data.label, data.labels = ('id', 'text', 'y'), 'y', ('no', 'yes')
    assert study.subject.texts == 'dev.tsv' and study.subject.task is None
    data.name = 'reviews'
    assert study.subject.texts == 'reviews'
    assert [each.label for each in value(study, 'texts')] == [1, 0]
    data.train_file = data.file
    assert inputs.text_name(data, 'train') == 'reviews, train'


def test_segments_of_running_text(study, tmp_path):
    """Segments come from the package or a file; one cut to another length is another text."""
    data = study.config.data
    data.source = 'segments'
    assert study.subject.texts == 'example prose' and not study.has_training
    assert len(value(study, 'texts')) > 100 and value(study, 'texts')[0].id == 'prose/0'
    file = tmp_path / 'wiki.txt'
    file.write_text('The cat saw a dog . It ran . She liked it . The dog ran .\n')
    data.file = str(file)
    again = Study(study.config, study.folder)
    assert again.subject.texts == 'wiki.txt' and len(value(again, 'texts')) == 1
    found = Given(again).digest('texts')
    file.unlink()
    assert Given(Study(study.config, study.folder)).digest('texts') == found
    data.train_file = str(file)
    with pytest.raises(ValueError, match='train_file'):
        inputs.reading(data, 'dev')


def test_relations_of_ones_own(study, tmp_path):
    """A file of links is measured as frames are."""
    links = [{'source': [[22, 24]], 'target': [[4, 7]]}]
    line = {'text_a': 'the cat saw a dog and it ran .', 'relations': {'anaphor-antecedent': links}}
    study.config.frames.sample = str(tmp_path / 'own.jsonl')
    (tmp_path / 'own.jsonl').write_text(f'{json.dumps(line)}\n' * 2)
    found = Given(study).answer('frames')
    rows = found.frames()['frames'].query('statistic == "anaphor to antecedent"')
    assert len(rows) == 12 and rows['mean'].between(0, 1).all()


@pytest.mark.slow
def test_tags_are_learnt(study, tmp_path):
    """From CoNLL-U; the attention of the same texts can be analysed, disabling heads cannot."""
    words = (('the', 'DET'), ('cat', 'NOUN'), ('liked', 'VERB'))
    sentence = ''.join(
        f'{number}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t_\n'
        for number, (word, tag) in enumerate(words, 1)
    )
    (tmp_path / 'few.conllu').write_text(f'{sentence}\n' * 9)
    data = study.config.data
    data.source, data.file = 'tags', str(tmp_path / 'few.conllu')
    assert not study.has_training and value(study, 'texts')[0].text_a == 'the cat liked'
    data.train_file = data.file
    study.config.train.num_seeds, study.config.train.epochs = 1, 1
    result = Given(study).answer('finetune')
    assert result.starts['pretrained'].metrics == ('word_accuracy', 'f1_macro')
    assert value(study, 'tuned').label_names == ('DET', 'NOUN', 'VERB')
    for name in ('ablate', 'ablate_seeds', 'interactions', 'gates'):
        assert 'one label of each text' in report.missing(study, name)


@pytest.mark.slow
def test_answers_are_learnt(study, tmp_path):
    row = {
        'question': 'dog', 'context': 'the cat saw a dog',
        'answers': {'text': ['dog'], 'answer_start': [14]},
    }  # fmt: skip
    (tmp_path / 'few.jsonl').write_text(f'{json.dumps(row)}\n' * 9)
    data = study.config.data
    data.source, data.file = 'questions', str(tmp_path / 'few.jsonl')
    data.train_file, data.metrics = data.file, 'answer_f1'
    study.config.train.num_seeds, study.config.train.epochs = 1, 1
    assert value(study, 'texts')[0].texts == ('dog', 'the cat saw a dog')
    result = Given(study).answer('finetune')
    tuned = result.starts['pretrained']
    assert tuned.metrics == ('answer_f1',) and tuned.tested == 'answer_f1'
    # All answers stand at one place: nothing but the place need have been learnt.
    assert 'answers at the same places in other texts' in str(result)


def test_cola_is_marked_as_not_in_the_paper(study):
    study.config.data.task = 'cola'
    assert study.subject.texts == 'CoLA dev (not in the paper)'
    assert study.subject.as_in('Figure 8') == 'in the manner of Figure 8'


def test_minimal_pairs_of_the_package_and_of_ones_own(with_words, tmp_path):
    """A masked LM is asked as it is; a file of one's own, changed, is another question."""
    assert Given(with_words).answer('minimal_pairs').told[''].pairs == 60
    own = tmp_path / 'own.jsonl'
    row = '{"sentence_good": "the cat %s", "sentence_bad": "cat the %s", "phenomenon": "order"}\n'
    own.write_text(''.join(row % (word, word) for word in ('ran', 'saw it', 'liked a dog')))
    settings = with_words.config.minimal_pairs
    settings.file, settings.good, settings.bad = str(own), 'sentence_good', 'sentence_bad'
    study = Study(with_words.config, with_words.folder)
    found = Given(study).answer('minimal_pairs')
    assert list(found.told) == ['', 'order'] and found.subject.texts == 'own'
    assert str(Given(study).finished('minimal_pairs')) == str(found)
    own.write_text(own.read_text() + row % ('sleep', 'sleep'))
    assert Given(Study(study.config, study.folder)).finished('minimal_pairs') is None


def test_a_search_of_ones_own(study, model, tmp_path):
    """Its files are named as in BEIR; without them, the embedded pairs are searched."""
    bs.save_pretrained(bs.with_pooling(model, 'mean'), tmp_path / 'embedder')
    study.config.model.name = str(tmp_path / 'embedder')
    assert [*map(len, value(study, 'search')[:2])] == [60, 180]
    row = '{"_id": "%s", "text": "the %s ran"}\n'
    for name, words in (('queries', ('cat', 'dog')), ('corpus', ('dog', 'bird', 'cat'))):
        rows = ''.join(row % (f'{name[0]}{each}', each) for each in words)
        (tmp_path / f'{name}.jsonl').write_text(rows)
    judged = tmp_path / 'qrels.tsv'
    judged.write_text('query-id\tcorpus-id\tscore\nqcat\tccat\t2\nqdog\tcdog\t1\n')
    files = [str(tmp_path / name) for name in ('queries.jsonl', 'corpus.jsonl', 'qrels.tsv')]
    study.config.retrieval.files = tuple(files)
    other = Study(study.config, open_folder(tmp_path / 'own', study.config.to_dict()))
    assert not report.missing(other, 'retrieval')
    (answers,) = write_report([other], ['retrieval'])
    found = answers.results['retrieval']
    assert found.documents == 3 and found.subject.texts == 'queries'
    # Each query is among the documents.
    assert found.outcomes['heads']['MRR'].intact == 1
    check_lines_of(answers, 'retrieval')
    judged.write_text('query-id\tcorpus-id\tscore\nqcat\tccat\t1\nqcat\tcdgo\t1\n')
    with pytest.raises(ValueError, match=r"line 3: 'cdgo' is in no row of .*corpus\.jsonl"):
        bs.read_search(*files)
    names = ('_id', 'text', 'query-id', 'corpus-id')
    assert bs.read_search(*files, columns=names, bad_rows='skip')[2] == [('qcat', 'ccat')]


def test_gates_need_what_is_trained_here(study):
    assert not report.missing(study, 'gates')
    assert 'gates' not in report.chosen_of(study, ['all'])[0]
    study.config.data.source, study.config.data.file = 'file', 'mine.csv'
    study.config.data.label, study.config.ablation.checkpoint = 'label', 'model'
    assert 'labelled texts to train on' in report.missing(study, 'gates')


def test_who_scores_minimal_pairs(study, give, monkeypatch):
    """A masked LM, or a classifier with the class of good texts; the embedded ones are English."""
    needed = functools.partial(report.missing, name='minimal_pairs')
    assert 'or a classifier and the class of good texts' in needed(study)
    study.config.minimal_pairs.label = 'yes'
    assert not needed(study)
    tuned = bs.with_classifier(value(study, 'pretrained'), ('no', 'yes'))
    give('model', tuned)
    assert "of 'yes'" in Given(study).answer('minimal_pairs').scored_by
    monkeypatch.setattr(Given, 'foreign', lambda given, known='en': 'German (de)')
    assert (
        needed(study) == 'minimal pairs that suit texts and tokenizer (setting minimal_pairs.file)'
    )
    study.config.minimal_pairs.file = 'own.jsonl'
    assert not needed(study)
    study.config.minimal_pairs.anchor = 'query'
    assert needed(study).startswith('a model that says how it pools')


def test_without_labels_patching_is_of_an_embedding(study, model, tmp_path, monkeypatch):
    """And a model that neither classifies nor pools is refused."""
    # As in the library; the errors of estimates are so small that rounding moves p-values.
    monkeypatch.setattr(Study, 'mesh_with', lambda self, second: None)
    bs.save_pretrained(bs.with_pooling(model, 'mean'), tmp_path / 'embedder')
    data = study.config.data
    data.source, data.file, data.text_a = 'file', str(tmp_path / 'own.csv'), 'text_a'
    words = ('cat', 'dog', 'bird', 'house', 'teacher')
    (tmp_path / 'own.csv').write_text('text_a\n' + ''.join(f'the {each} ran .\n' for each in words))
    needed = functools.partial(report.missing, name='patching')
    assert needed(study).endswith('or a model that says how it pools')
    study.config.model.name = str(tmp_path / 'embedder')
    other = Study(study.config, study.folder)
    assert not needed(other)
    other = Study(study.config, open_folder(tmp_path / 'own', study.config.to_dict()))
    (answers,) = write_report([other], ['patching'])
    found = answers.results['patching']
    check_lines_of(answers, 'patching')
    assert found.total.outcome.name == 'closeness' and found.total.sample == 2
    study.config.ablation.checkpoint = 'model'
    assert needed(other)


def test_sentences_of_a_treebank_bring_their_words(study, tmp_path):
    """In whatever language; an edited annotation of the same texts is another one."""
    data, own = study.config.data, tmp_path / 'own.conllu'
    row = (
        '1\tcat\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\t{}\t_\tVERB\t_\tPolarity=Neg\t0\troot\t_\t_\n\n'
    )
    own.write_text(''.join(map(row.format, ('ran', 'saw', 'liked'))))
    data.source, data.file, data.language, data.max_examples = 'treebank', str(own), 'de', 2
    other = Study(study.config, open_folder(tmp_path / 'own', study.config.to_dict()))
    given = Given(other)
    assert not INPUTS['annotations'].missing(given) and INPUTS['tuned'].missing(given)
    assert given.foreign() == 'German (de)'
    (answers,) = write_report([other], ['features'])
    found = answers.results['features']
    assert (
        found.names == ['noun', 'verb', 'subject', 'negation'] and len(value(other, 'texts')) == 2
    )
    check_lines_of(answers, 'features')
    own.write_text(own.read_text().replace('Polarity=Neg', '_'))
    study = Study(other.config, other.folder)
    found = Given(study).answer('features')
    assert found.names == ['noun', 'verb', 'subject']
    assert found.notes()[-1].endswith(': pronouns, objects, negations, punctuation.')
    data.source, data.file, study.config.linguistics.pipeline = 'corpus', None, 'en_core_web_sm'
    assert 'for German (de), or data.language if' in report.missing(
        Study(study.config, study.folder), 'features'
    )


def test_schedules_have_names_and_rates_of_their_own(study, caplog):
    own, train = study.config.where_it_changes, study.config.train
    own.layer_decays, own.schedules, train.layer_decay = '0.65,0.6500001,1', 'constant', 0.5
    names = ['decay 0.65 (constant)', 'decay 0.6500001 (constant)', 'decay 1 (constant)']
    assert [*Given(study).find(ANALYSES['where_it_changes'].inputs['tuned'])] == names
    ANALYSES['where_it_changes'].check(Given(study))
    (told,) = [each for each in caplog.messages if 'train.' in each]
    assert told.startswith('train.layer_decay=0.5 does not count') and 'layer_decays.' in told
    for value in ('', 'linear,linear'):
        own.schedules = value
        with pytest.raises(ValueError, match='at least one of these, each once') as found:
            schema.check(study.config)
        assert str(found.value).count('where_it_changes') == 1
