"""The lines that make a result again can be called and have the settings of the run, no others."""

import ast
import inspect
import pathlib
import re
import shlex

import pytest
from flax.traverse_util import flatten_dict

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs import cli, lines, settings
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.report import SECTIONS
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.runs.call import plain
from bert_secrets_jax.runs.result import Result
from tests.conftest import parameters_of


def of_table():
    config = base.get_config()
    settings.set_texts(config, 'own dev.csv', train='train.csv', text_a='a', text_b='b', label='l')
    config.data.labels, config.data.metrics = ('bad', "so-so, isn't it"), 'f1_macro'
    return config


def changed():
    config = base.quickstart()
    config.data.max_examples, config.train.max_examples = 20, 30
    config.ablation.choose_examples = config.importance.max_examples = 10
    config.ablation.left_out_examples = 10
    config.ablation.together, config.ablation.pairs_of = 'L1-H2,L2-H3', 'L1-H2,L2-H3'
    config.ablation.baseline, config.ablation.seeds, config.train.num_seeds = 'zero', 2, 3
    config.encoding.max_length = 48
    config.train.checkpoint_every = 7
    config.seed = 3
    return config


CONFIGS = {
    'quickstart': base.quickstart,
    'smoke': lambda: base.quickstart('smoke'),
    'paper': lambda: base.paper('rte'),
    'table': of_table,
    'changed': changed,
}


@pytest.fixture(params=CONFIGS)
def study(request, tmp_path):
    return Study(CONFIGS[request.param](), tmp_path)


# Lines are written without looking at a result.
EVERY = dict.fromkeys(SECTIONS, Result())


def written(study, section):
    return lines.lines_of(Given(study, EVERY), section)


def called(code):
    """Yield each call of something public, with what it calls and its arguments."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith('bs.'):
            yield eval(ast.unparse(node.func), {'bs': bs}), node


def test_every_line_of_python_can_be_called(study):
    for section in SECTIONS:
        found = written(study, section)
        names = lines.Names(found.names).python
        for function, call in called(f'{names}; {found.python}'):
            given = {word.arg: word.value for word in call.keywords}
            starred = any(isinstance(word, ast.Starred) for word in call.args)
            bound = inspect.signature(function).bind_partial if starred else (
                inspect.signature(function).bind
            )  # fmt: skip
            bound(*call.args, **given)
            assert given.keys() <= parameters_of(function), section
        # Whatever a line needs is a name of the page or the result of another section.
        known = {'bs', *SECTIONS}
        for statement in ast.parse(f'{names}; {found.python}').body[1:]:
            loads = [
                node.id for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            ]  # fmt: skip
            assert set(loads) <= known, (section, loads)
            known.add(statement.targets[0].id)


def test_a_command_has_the_settings_of_the_run(study):
    own = flatten_dict(study.config.to_dict(), sep='.')
    for section in SECTIONS:
        command = written(study, section).shell
        program, *words = shlex.split(command)
        assert program == 'bert-secrets'
        config = cli._config(cli._parse(words))
        config = flatten_dict(config.to_dict(), sep='.')
        given = Given(study, EVERY)
        SECTIONS[section].call(given)
        for name in given.read - set(lines.OF_NO_MATTER):
            assert plain(config[name]) == plain(own[name]), (section, name)


def test_a_command_has_no_settings_of_other_sections(tmp_path):
    study = Study(changed(), tmp_path)
    found = {section: written(study, section).shell for section in SECTIONS}
    given = {section: set(re.findall(r'--set=([\w.]+)', found[section])) for section in SECTIONS}
    assert given['special_tokens'] == {'data.max_examples', 'encoding.max_length', 'seed'}
    assert given['frames'] == {'encoding.max_length', 'seed'}
    assert given['syntax_heads'] == {'encoding.max_length', 'seed'}
    assert {'ablation.choose_examples', 'train.num_seeds'} <= given['ablate']
    assert 'importance.max_examples' not in given['ablate']
    assert not any('checkpoint_every' in command for command in found.values())
    # A command also has the sections whose results it needs.
    assert '--sections=ablate,contributions' in found['contributions']


def test_the_settings_of_a_line(tmp_path):
    study = Study(changed(), tmp_path)
    found = written(study, 'ablate')
    assert "baseline='zero'" in found.python and 'choose_on=choosing' in found.python
    assert 'bs.masks.disable(pretrained.config, [[(0, 1), (1, 2)]])' in found.python
    assert found.names['tuned'].startswith('bs.finetune(pretrained, train, dev, seeds=(3, 4, 5), ')
    assert 'tuned.first(2)' in written(study, 'prune').python
    assert 'tuned=tuned' in written(study, 'patterns').python
    settings = {'settings': 'bs.analyses.TextSettings(max_length=48)'}
    assert settings.items() <= written(study, 'look_at').names.items()


def test_treebanks_of_one_name_are_told_apart_and_may_have_bad_sentences(tmp_path):
    config, tree = changed(), '1\tHe\t_\tPRON\t_\t_\t{}\troot\t_\t_\n\n'
    files = tuple(str(tmp_path / language / 'dev.conllu') for language in ('en', 'de'))
    for file in map(pathlib.Path, files):
        file.parent.mkdir()
        file.write_text(tree.format(0) + tree.format(1))
    config.across.files = files
    with pytest.raises(ValueError, match="its own head.*bad_rows='skip'"):
        Given(Study(config, tmp_path)).value('parallel')
    config.data.bad_rows = 'skip'
    study = Study(config, tmp_path)
    parallel = Given(study).value('parallel')
    assert tuple(parallel) == files and {*map(len, parallel.values())} == {1}
    found = written(study, 'across')
    assert eval(found.names['parallel'], {'bs': bs}) == parallel
    assert ', '.join(files) in found.python


@pytest.mark.parametrize(
    'word', ["--set=a=('x', 'y')", '--set=a=1', 'a b', "it's $HOME", 'a"b', "'`\\!"]
)
def test_a_shell_reads_a_command_as_it_was_meant(word):
    assert shlex.split(lines.quoted(word)) == [word]
