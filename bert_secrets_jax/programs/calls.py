"""The call of an analysis, bound once: its result, its key, its line of Python and its command.

A section binds an analysis to inputs, which a study loads, and to values, which settings have. The
line has the values that are not defaults, the command the settings that the call or an input reads.
"""

import dataclasses
import inspect
import operator
import pathlib
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.data.masking import Masking
from bert_secrets_jax.data.tasks import draw
from bert_secrets_jax.programs import inputs
from bert_secrets_jax.programs.settings import in_clone, set_texts
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.result import Result, Subject

# These say how something is computed, and change no result that a reader could tell.
OF_NO_MATTER = (
    'ablation.chunk_tokens', 'encoding.tokens_per_batch', 'probe.cache_mb',
    'train.checkpoint_every', 'train.log_every', 'train.micro_batch',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Expression:
    """An argument that is no plain value: as Python ('' for a default), from a study, as digest."""

    python: str
    load: Callable[[Study], Any]
    digest: Callable[[Study], Any]


@dataclasses.dataclass(frozen=True)
class Call:
    """The call of an analysis, by its name in `bs.analyses`.

    Attributes:
      given: The arguments that stand first.
      named: The other arguments by their names: values, or expressions.
      annotated: Whether it looks at words.
      like: A function or class that has the defaults of further arguments.
      subject: Returns the names of the model and texts that the result is about.
      title: The name under which the result is kept; empty for that of the analysis.
    """

    analysis: str
    given: tuple[Expression, ...]
    named: Mapping[str, Any]
    annotated: bool = False
    like: Callable | None = None
    subject: Callable[[Study], Subject] = lambda study: study.subject
    title: str = ''

    @property
    def function(self) -> Callable:
        """The analysis."""
        return getattr(bs.analyses, self.analysis)

    @property
    def computing(self) -> str:
        """How the function is told how to compute: by `settings`, `compute`, or by a length."""
        parameters = inspect.signature(self.function).parameters
        whole = [name for name in ('settings', 'compute') if name in parameters]
        return whole[0] if whole else 'max_length' if self.like else ''

    def key(self, study: Study) -> dict[str, Any]:
        """Return everything that the result depends on."""

        def of(value: Any) -> Any:
            return value.digest(study) if isinstance(value, Expression) else value

        key = {
            'analysis': self.analysis,
            'given': [of(each) for each in self.given],
            'named': {name: of(value) for name, value in self.named.items()},
        }
        # It says which metrics are the default.
        key['task'] = self.subject(study).task
        if self.computing:
            key['max_length'] = study.config.encoding.max_length
        if self.computing == 'settings':
            key['pipeline'] = study.config.linguistics.pipeline
        if self.annotated and study.has_words:
            key['annotations'] = study.input('annotations')
        return key

    def result(self, study: Study, folder: pathlib.Path, *, second: str = '') -> Result:
        """Compute the result, with unfinished work in a folder; `second` as in `Study.compute`."""

        def of(value: Any) -> Any:
            return value.load(study) if isinstance(value, Expression) else value

        named = {name: of(value) for name, value in self.named.items()}
        match self.computing:
            case 'compute':
                named['compute'] = study.compute(folder, second=second)
            case 'settings':
                named['settings'] = dataclasses.replace(study.settings, folder=folder)
            case 'max_length':
                named |= {'max_length': study.config.encoding.max_length, 'folder': folder}
        return self.function(*map(of, self.given), **named, subject=self.subject(study))

    def python(self, arguments: 'Arguments', subject: Subject) -> str:
        """Return the call as Python writes it; the arguments note what names it needs."""
        given = {**self.named, **arguments.computing(self.computing)}
        if subject == arguments.study.subject:
            given['subject'] = arguments.input('subject')
        else:
            about = f'bs.analyses.{subject!r}'
            given['subject'] = Expression(about, lambda study: subject, lambda study: about)
        return arguments.call(f'analyses.{self.analysis}', *self.given, like=self.like, **given)


# Binds an analysis to its arguments; None for a section that is no call.
Binding = Callable[['Arguments'], Call | None]


def kept(
    bind: Binding,
    *,
    check: Callable[[Study], object] = lambda study: None,
    shares: bool = False,
    second: str = '',
) -> Callable[[Study, Mapping[str, Result]], Result]:
    """Return what answers a section by one call, whose result is kept under the call's key.

    Args:
      bind: Binds the analysis of the section.
      check: Refuses settings before any input is loaded or trained.
      shares: Whether the parts of the work, such as sweeps, stay for other sections.
      second: A second axis of the devices, as in `Study.compute`.
    """

    def answer(study: Study, results: Mapping[str, Result]) -> Result:
        call = bind(Arguments(study, results))

        def compute(folder: pathlib.Path) -> Result:
            check(study)
            return call.result(study, study.folder / 'parts' if shares else folder, second=second)

        kind = inspect.signature(call.function).return_annotation
        title = call.title or call.analysis.replace('_', ' ')
        result = study.kept_whole(title, kind, call.key(study), compute)
        return dataclasses.replace(result, subject=call.subject(study))

    return answer


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """The lines that make a result again: a statement of Python and a command.

    The statement is empty if there is no such call. `names` are the expressions that make the names
    in it, each of which needs only those before it.
    """

    python: str
    shell: str
    names: Mapping[str, str]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a language and a line, as a part of the page has them."""
        pairs = (('Python', self.python), ('Shell', self.shell))
        return tuple((language, line) for language, line in pairs if line)


def lines_of(
    study: Study,
    section: str,
    result: Result,
    results: Mapping[str, Result],
    bindings: Mapping[str, Binding],
) -> Reproduction:
    """Return the lines that make the result of a section again, by names and settings alone."""
    arguments = Arguments(study, results, bindings)
    call = arguments.bound(section)
    python = ''
    if call is not None:
        subject = getattr(result, 'subject', Subject())
        python = f'{section} = {call.python(arguments, subject)}'
    sections = list(dict.fromkeys([*arguments.others, section]))
    return Reproduction(python, command(study.config, sections, arguments.read), arguments.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Names(Result):
    """The names that the lines of Python of a page need, as in `Reproduction`."""

    names: Mapping[str, str]

    @property
    def title(self) -> str:
        return 'To go on in Python'

    def notes(self) -> list[str]:
        return [
            'Run this line first, then the line of Python of a section. Some lines use the names '
            'of other sections: run the lines of these before.'
        ]

    @property
    def python(self) -> str:
        """The statements that make the names."""
        made = [f'{name} = {expression}' for name, expression in self.names.items()]
        return '; '.join(['import bert_secrets_jax as bs', *made])


class Arguments:
    """The inputs and settings of calls; the study loads nothing here.

    `read` has the settings that were looked at, `names` the expressions that make the names, in the
    order to run them, `others` the sections whose results are needed.
    """

    def __init__(
        self,
        study: Study,
        results: Mapping[str, Result],
        bindings: Mapping[str, Binding] | None = None,
    ):
        self.study, self.results = study, results
        self._bindings = bindings or {}
        self._settings = flatten_dict(study.config.to_dict(), sep='.')
        self.read: set[str] = {'model.name'}
        self.names: dict[str, str] = {}
        self.others: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._settings[name]

    def group(self, group: str, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the settings of a group, by their last names."""
        names = [name for name in self._settings if name.startswith(f'{group}.')]
        of_group = {name.partition('.')[2]: name for name in names}
        return {last: self[name] for last, name in of_group.items() if last not in without}

    def bound(self, section: str) -> Call | None:
        """Return the call of a section; None for one that is no call."""
        return self._bindings[section](self) if section in self._bindings else None

    def input(self, name: str) -> Expression:
        """Return an input, and note what makes it."""
        # The inputs that it is made of are noted first.
        made = INPUTS[name](self)
        self.names.setdefault(name, made.python)
        return dataclasses.replace(made, python=name)

    def result(self, section: str) -> Expression:
        """Return the result of another section, and note that it is needed."""
        self.others.append(section)
        # Its settings and inputs matter here, too.
        call = self.bound(section)
        if call is not None:
            call.python(self, self.study.subject)
        result = self.results[section]
        return Expression(section, lambda study: result, lambda study: store.content(result))

    def listed(self, expressions: Sequence[Expression]) -> Expression:
        """Return a list of expressions."""
        return Expression(
            f'[{", ".join(each.python for each in expressions)}]',
            lambda study: [each.load(study) for each in expressions],
            lambda study: [each.digest(study) for each in expressions],
        )

    def call(
        self, function: str, *given: str | Expression, like: Callable | None = None, **named: Any
    ) -> str:
        """Return a call of `bs` without the arguments that are defaults, also of one `like` it."""
        called = operator.attrgetter(function)(bs)
        defaults = {
            name: parameter.default
            for each in (like, called)
            if each is not None
            for name, parameter in inspect.signature(each).parameters.items()
        }
        words = [each.python if isinstance(each, Expression) else each for each in given]
        for name, value in named.items():
            if isinstance(value, Expression):
                words += [f'{name}={value.python}'] * bool(value.python)
            elif _plain(value) != _plain(defaults[name]):
                words.append(f'{name}={value!r}')
        return f'bs.{function}({", ".join(words)})'

    def analysis(
        self,
        analysis: str,
        *given: str | Expression,
        annotated: bool = False,
        like: Callable | None = None,
        subject: Callable[[Study], Subject] = lambda study: study.subject,
        title: str = '',
        **named: Any,
    ) -> Call:
        """Return a `Call`; arguments that stand first are expressions, or names of inputs."""
        inputs = [self.input(each) if isinstance(each, str) else each for each in given]
        return Call(analysis, tuple(inputs), named, annotated, like, subject, title)

    def computing(self, how: str) -> dict[str, Any]:
        """Return the arguments that say how something is computed."""
        if how not in INPUTS:
            return self.length if how else {}
        return {how: self.input(how)}

    @property
    def length(self) -> dict[str, Any]:
        return {'max_length': self['encoding.max_length']}

    @property
    def seed(self) -> dict[str, Any]:
        return {'seed': self['seed']}

    @property
    def tuned(self) -> dict[str, Any]:
        """The argument of analyses that compare a model with its fine-tunings, if there are any."""
        return {'tuned': self.input('tuned')} if self.study.has_training else {}

    def tuned_by(self, start: str, **others: Any) -> str:
        """Return the call of a fine-tuning, with other settings in place of some of the study's."""
        settings = self.study.finetune_settings(start) | others
        # They are noted as read.
        _ = self.group('train', without=['starts']), self.length, self.seed, self['data.metrics']
        given = [self.input(name) for name in ('pretrained', 'train', 'dev')]
        return self.call('finetune', *given, like=bs.FinetuneConfig, **settings)

    @property
    def tuned_already(self) -> dict[str, Any]:
        """The same of sections for which nothing is fine-tuned, if another one has done that."""
        if 'finetune' not in self.results:
            return {}
        self.result('finetune')
        return self.tuned

    @property
    def model(self) -> Expression:
        """The model that is ablated; in Python, several, of which it is the first one."""
        as_it_is = self['ablation.checkpoint'] == 'model'
        return Expression(
            self.input('pretrained' if as_it_is else 'tuned').python,
            lambda study: study.ablated_model(),
            lambda study: study.digest_of_ablated(),
        )

    @property
    def with_own_head(self) -> Expression:
        """The model with the head that it came with, which has the same name in Python."""
        whole = operator.attrgetter('with_own_head')
        return dataclasses.replace(self.input('pretrained'), load=whole)

    @property
    def models(self) -> Expression:
        """The models that are ablated."""
        count, models = self['ablation.seeds'], self.model
        if models.python == 'pretrained':
            return models
        tuned = self.input(models.python)
        if not 0 < count < self['train.num_seeds']:
            return tuned
        return Expression(
            f'{tuned.python}.first({count})',
            lambda study: tuned.load(study).first(count),
            lambda study: [tuned.digest(study), count],
        )

    @property
    def metrics(self) -> tuple[str, ...] | None:
        self['data.metrics']
        return inputs.metrics(self.study.config.data) or None

    @property
    def metric(self) -> str | None:
        return self.metrics[0] if self.metrics else None

    @property
    def statistics(self) -> tuple[str, ...] | Expression:
        """The statistics of the settings; the code of one's own is part of what they are."""
        names = self['statistics']
        if not any(':' in name for name in names):
            return names
        return Expression(repr(names), lambda study: names, lambda study: [names, study.own_code])

    @property
    def masking(self) -> dict[str, Any]:
        settings = self.group('masked_lm') | self.seed
        call = self.call('Masking', **settings)
        if call == 'bs.Masking()':
            return {}
        masking = Expression(call, lambda study: Masking(**settings), lambda study: settings)
        return {'masking': masking}

    def drawn(self, examples: str, setting: str) -> Expression:
        """Return the examples of an input that a setting draws."""
        wanted, seed, whole = self[setting], self['seed'], self.input(examples)
        if not wanted:
            return whole
        return Expression(
            f'bs.draw({whole.python}, {wanted}, {seed})',
            lambda study: draw(whole.load(study), wanted, seed, setting=setting),
            lambda study: [whole.digest(study), wanted, seed],
        )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _pretrained(a: Arguments) -> str:
    settings = a.group('model', without=['name'])
    return a.call('from_pretrained', repr(a['model.name']), **settings)


def _read(a: Arguments, split: str) -> str:
    a.group('data', without=['max_examples', 'metrics'])
    reading = inputs.reading(a.study.config.data, split)
    given, named = [*map(repr, reading.given)], reading.named
    if reading.function == 'read_segments':
        given.append(f'{a.input("pretrained").python}.tokenizer')
        named = {**named, **a.length}
    return a.call(reading.function, *given, **named)


def _texts(a: Arguments) -> str:
    drawn = a.drawn('dev', 'data.max_examples').python
    # Texts are parts of what is read there.
    parts = a['data.source'] in ('tags', 'questions', 'treebank')
    return f'[each.example for each in {drawn}]' if parts else drawn


def _known(a: Arguments, others: str) -> str:
    return f'{{each.texts for each in (*{a.input("train").python}, *{a.input(others).python})}}'


def _left_out(a: Arguments, known: str, setting: str) -> str:
    left = f'[each for each in {_read(a, "train")} if each.texts not in {a.input(known).python}]'
    return f'bs.draw({left}, {a[setting]}, {a["seed"]})'


def _ablated(a: Arguments) -> str:
    drawn = a.drawn('dev', 'ablation.max_examples').python
    if not a['ablation.left_out_examples']:
        return drawn
    return f'[*{drawn}, *{_left_out(a, "seen", "ablation.left_out_examples")}]'


def _treebank(a: Arguments, part: str) -> str:
    path, read = a[f'treebank.{part}'], f'bs.treebank_sample({part!r})'
    if path:
        read = a.call('read_treebank', repr(path), bad_rows=a['data.bad_rows'])
    return _drawn(a, read, f'treebank.max_{part}')


def _search(a: Arguments) -> str:
    files, columns = a['retrieval.files'], a['retrieval.columns']
    how = {'columns': columns, 'bad_rows': a['data.bad_rows']}
    return a.call('read_search', *map(repr, files), **how) if files else 'bs.search_sample()'


def _parallel(a: Arguments) -> str:
    a.group('across')
    how, named = {'bad_rows': a['data.bad_rows']}, a.study.parallel_files.items()
    read = (f'{name!r}: {a.call("read_treebank", repr(file), **how)}' for name, file in named)
    return f'{{{", ".join(read)}}}'


def _pairs(a: Arguments) -> str:
    return a.input('texts').python if a.study.has_pairs else 'bs.similarity_sample()'


def _text_settings(a: Arguments) -> str:
    names = {'pipeline': 'linguistics.pipeline', 'language': 'data.language'}
    given = {name: a[each] for name, each in names.items()} if a.study.has_words else {}
    if a.study.has_trees:
        trees = a.drawn('dev', 'data.max_examples').python
        given = {'annotations': Expression(f'bs.annotate({trees})', lambda study: None, str)}
    return a.call('analyses.TextSettings', **a.length, **given)


def _drawn(a: Arguments, read: str, setting: str) -> str:
    wanted = a[setting]
    return f'bs.draw({read}, {wanted}, {a["seed"]})' if wanted else read


def _input(
    write: Callable[[Arguments], str], attribute: str, digest_of: str | None = ''
) -> Callable[[Arguments], Expression]:
    """Return what makes the expression of an input, an attribute of a study.

    `Study.input` knows its content by `digest_of`: '' is the attribute's name, None is no digest.
    """
    name = attribute.replace('_', ' ') if digest_of == '' else digest_of

    def digest(study: Study) -> str | None:
        return study.input(name) if name else None

    return lambda a: Expression(write(a), operator.attrgetter(attribute), digest)


def _tuning(start: str) -> Callable[[Arguments], Expression]:
    return lambda a: Expression(
        a.tuned_by(start),
        lambda study: study.finetuned(start),
        lambda study: study.finetuning_digest(start),
    )


# By the names of the inputs in Python.
INPUTS: Mapping[str, Callable[[Arguments], Expression]] = {
    'pretrained': _input(_pretrained, 'pretrained', 'weights'),
    'train': _input(lambda a: _drawn(a, _read(a, 'train'), 'train.max_examples'), 'train'),
    'dev': _input(lambda a: _read(a, a['data.split']), 'dev'),
    'texts': _input(_texts, 'texts'),
    'seen': _input(lambda a: _known(a, 'dev'), 'ablated_texts'),
    'ablated': _input(_ablated, 'ablated_texts'),
    'measured': _input(
        lambda a: a.drawn('train', 'importance.max_examples').python, 'measured_texts'
    ),
    'known': _input(lambda a: _known(a, 'ablated'), 'choosing_texts'),
    'choosing': _input(
        lambda a: _left_out(a, 'known', 'ablation.choose_examples'), 'choosing_texts'
    ),
    'pairs': _input(_pairs, 'pairs'),
    'search': _input(_search, 'search'),
    'trees': _input(lambda a: _treebank(a, 'train'), 'train_trees', 'treebank'),
    'dev_trees': _input(lambda a: _treebank(a, 'dev'), 'dev_trees', 'treebank'),
    'parallel': _input(_parallel, 'parallel'),
    'tuned': _tuning('pretrained'),
    'tuned_random': _tuning('random'),
    'settings': _input(_text_settings, 'settings', None),
    'compute': lambda a: Expression(
        a.call('Compute', **a.length), lambda study: study.compute(), lambda study: None
    ),
    'subject': _input(lambda a: f'bs.analyses.{a.study.subject!r}', 'subject', None),
}


def command(
    config: ConfigDict,
    sections: Sequence[str],
    read: Collection[str] | None = None,
    *,
    out: str = '',
) -> str:
    """Return the shortest command that answers sections; settings not read do not matter.

    In a run that `experiments` has started, it is one of these, otherwise of `bert-secrets`.
    """
    program = ['report', f'--sections={",".join(sections)}'] if len(sections) > 1 else sections
    own = flatten_dict(config.to_dict(), sep='.')
    commands = []
    for flags, start in _starts(config):
        usual = flatten_dict(start.to_dict(), sep='.')
        words = ['bert-secrets', *program, f'--model={own["model.name"]}', *flags]
        words += [
            f'--set={name}={own[name]}'
            for name in own
            if (read is None or name in read) and name != 'model.name' and name not in OF_NO_MATTER
            if _plain(own[name]) != _plain(usual[name])
        ]
        commands.append(words + [f'--out={out}'] * bool(out))
    words = min(commands, key=len)
    return ' '.join(map(quoted, _in_clone(*words[1:]) if in_clone() else words))


def _in_clone(program: str, *flags: str) -> list[str]:
    """Return a command with the names that the launchers of the clone have."""
    given = {'--config': 'quickstart', '--out': 'results'}
    given |= {flag: value for flag, _, value in (each.partition('=') for each in flags)}
    name, colon, variant = given['--config'].partition(':')
    words = [each for each in flags if each.startswith('--sections=')]
    words += [f'--config=configs/{name}.py{colon}{variant}']
    words += [f'--config.model.name={given["--model"]}']
    words += [f'--config.{each[6:]}' for each in flags if each.startswith('--set=')]
    launcher = 'reproduce' if program == 'report' else program
    return ['python', '-m', f'experiments.{launcher}', *words, f'--workdir={given["--out"]}']


def _starts(config: ConfigDict) -> list[tuple[list[str], ConfigDict]]:
    """Return the settings that a command can start from, each with the flags that ask for them."""
    data = config.data
    if data.source == 'file' and not in_clone():
        given = {'texts': data.file, 'train': data.train_file}
        given |= {name: data[name] for name in ('text_a', 'text_b', 'label')}
        # Names with commas are a setting, since the flag would divide them.
        labels = () if any(',' in name for name in data.labels) else data.labels
        start = base.get_config()
        set_texts(start, **given, labels=labels)
        flags = [f'--{flag.replace("_", "-")}={value}' for flag, value in given.items() if value]
        if labels:
            flags.append(f'--labels={",".join(labels)}')
        return [(flags, start)]
    starts = [([], quickstart.get_config())]
    named = [('quickstart:smoke', quickstart.get_config('smoke'))]
    named += [('base', base.get_config()), ('base:smoke', base.get_config('smoke'))]
    if data.source == 'glue':
        tasks = [data.task, f'{data.task}:smoke']
        named += [(f'paper:{task}', paper.get_config(task)) for task in tasks]
    return starts + [([f'--config={name}'], start) for name, start in named]


def quoted(word: str) -> str:
    """Return a word for a shell, in double quotes where it has single ones, as Python writes."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)
