"""Messages of programs when something is wrong: one line, and nothing is begun."""

import shutil

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs import conversation
from bert_secrets_jax.programs.settings import assign
from bert_secrets_jax.runs.folder import open_folder
from tests.data.test_language import GERMAN


@pytest.fixture
def fails(checkpoint, glue_dir, tmp_path):
    """Return a function that runs sections and returns what a program ends with."""

    def fails(*settings, sections=('special_tokens',), workdir=tmp_path / 'run'):
        config = base.paper('mrpc')
        given = {'model.name': str(checkpoint), 'data.glue_dir': str(glue_dir)}
        given['encoding.max_length'] = 24
        for name, value in (given | dict(settings)).items():
            assign(config, name, value)
        with pytest.raises(SystemExit) as stopped:
            conversation.run_in(
                workdir, config, lambda studies: conversation.answer(studies, sections)
            )
        line = str(stopped.value)
        assert len(line.splitlines()) == 1
        assert not (workdir / 'report.html').exists() and not (workdir / 'finetune').exists()
        return line

    return fails


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('data.task', 'nonsense', "error: task='nonsense' must be 'mrpc', 'sts-b'"),
        ('data.task', 'mrpc,rte,MRPC', "error: data.task has 'mrpc' twice: give each once."),
        ('data.metrics', 'bleu', "error: data.metrics='bleu' must be any"),
        ('data.split', 'test', "error: split='test' must be 'train' or 'dev'"),
        ('data.glue_dir', '/nowhere', 'error: /nowhere has no folder MRPC'),
        ('model.name', '/nowhere', "error: '/nowhere' is no directory here"),
        ('statistics', ('[CLSS]',), "error: There is no statistic '[CLSS]'. Did you mean [CLS]"),
        ('statistics', ('nowhere:mine',), "error: Statistic 'nowhere:mine': there is no module"),
    ],
)
def test_errors_are_one_line(fails, name, value, message):
    assert fails((name, value)).startswith(message)
    if name == 'statistics':
        # It is said before there is a model.
        assert fails((name, value), ('model.name', '/nowhere')).startswith(message)


ONE = {'ablation.baseline': 'resample', 'ablation.max_examples': 1}


@pytest.mark.parametrize(
    ('section', 'settings', 'message'),
    [
        ('ablate', {'ablation.checkpoint': 'model'}, 'has 3 classes and MRPC dev 2'),
        ('ablate', {'ablation.together': 'L9-H1'}, 'L9-H1 does not exist: the model has 3 layers'),
        ('ablate', {'ablation.sets': ()}, 'Nothing to ablate: give ablation.sets'),
        ('ablate', ONE, '1 given, at least 2 needed for an interval'),
        ('maps', {'maps.examples': 0}, 'maps.examples must be at least 1'),
    ],
)
def test_sections_are_checked_before_anything_is_trained(fails, section, settings, message):
    assert message in fails(*settings.items(), sections=[section])


def test_sections_say_what_they_need(fails, tmp_path):
    (tmp_path / 'mine.csv').write_text('text\nthe cat ran\n')
    own = (('data.source', 'file'), ('data.file', str(tmp_path / 'mine.csv')))
    own += (('data.text_a', 'text'),)
    assert fails(*own, sections=['features', 'finetune']).startswith(
        'error: finetune needs a fine-tuned model: give labelled texts to train on'
    )
    line = fails(*own, ('linguistics.pipeline', ''), sections=['relations'])
    assert line.startswith('error: relations needs a spaCy pipeline')
    line = fails(*own, ('linguistics.pipeline', 'xx_no_such_sm'), sections=['relations'])
    assert "The spaCy pipeline 'xx_no_such_sm' is not installed" in line
    (tmp_path / 'mine.csv').write_text('\n'.join(['text', *(f'"{each}"' for each in GERMAN)]))
    for section in ('relations', 'frames', 'probe'):
        line = fails(*own, sections=[section])
        assert line.startswith(f'error: {section} needs ') and 'German (de)' in line
    nothing = (*own, ('data.language', 'en'), ('linguistics.pipeline', 'en_no_such_sm'))
    assert 'is not installed' in fails(*nothing, sections=['relations'])
    line = fails(*own, ('ablation.checkpoint', 'model'), sections=['ablate'])
    assert line.startswith('error: ablate needs labels')


def test_classes_in_another_order_are_refused(fails, model, tmp_path):
    bs.save_pretrained(bs.with_classifier(model, ('1', '0')), tmp_path / 'swapped')
    of_model = (('model.name', str(tmp_path / 'swapped')), ('ablation.checkpoint', 'model'))
    line = fails(*of_model, sections=['ablate'])
    assert 'swapped numbers its classes 1, 0, and the labels are numbered 0, 1' in line


def test_folders_of_something_else_are_refused(fails, tmp_path):
    (tmp_path / 'file').write_text('')
    assert 'is a file: choose another folder' in fails(workdir=tmp_path / 'file')
    (tmp_path / 'thesis').mkdir()
    (tmp_path / 'thesis' / 'thesis.tex').write_text('mine')
    assert 'holds files of no run' in fails(workdir=tmp_path / 'thesis')
    assert [path.name for path in (tmp_path / 'thesis').iterdir()] == ['thesis.tex']
    # The folder of one task is no place for several.
    open_folder(tmp_path / 'one', {})
    line = fails(('data.task', 'mrpc,rte'), workdir=tmp_path / 'one')
    assert 'one holds a run of one task: choose another' in line


def test_a_folder_that_is_deleted_meanwhile_is_named(checkpoint, glue_dir, tmp_path):
    folder, config = tmp_path / 'run', base.paper('mrpc')
    assign(config, 'model.name', str(checkpoint))
    assign(config, 'data.glue_dir', str(glue_dir))

    def main(studies):
        shutil.rmtree(folder)
        (folder / 'claims.csv').write_text('')

    with pytest.raises(SystemExit, match=f'error: {folder} was deleted or moved while this run'):
        conversation.run_in(folder, config, main)


def test_a_command_that_fails_leaves_no_folder(fails, tmp_path):
    """Whether the texts are wrong, or what a section needs of the model."""
    for given in (('data.glue_dir', '/nowhere'), ('data.max_examples', 7)):
        fails(given, workdir=tmp_path / 'new' / 'run', sections=['masked_lm'])
        assert not (tmp_path / 'new').exists()
    # One that was there stays.
    open_folder(tmp_path / 'old', {})
    fails(sections=['masked_lm'], workdir=tmp_path / 'old')
    assert (tmp_path / 'old' / 'config.json').exists()
