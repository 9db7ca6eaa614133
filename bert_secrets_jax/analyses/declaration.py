"""The declaration of an analysis, by which reports, programs and lines of Python have it.

    @analysis(question='which heads do so', group='What heads do', inputs={'examples': 'ablated'})
    def my_analysis(pretrained, examples, *, draws=100, seed=0): ...

An argument of the function is the input of its name, or else the setting of its name, such as
`seed` or, in the section `my_analysis`, `my_analysis.draws`. `inputs` says where it is otherwise.
The literals `question`, `group`, `report`, `time`, `section`, `settings` and `reads` are also read
without loading the module (`configs.declared`), so that `--help` takes no time.
"""

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bert_secrets_jax.configs.declared import Declared
from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.runs.call import INPUTS, Call, Given
from bert_secrets_jax.runs.result import Result, Subject

Function = TypeVar('Function', bound=Callable[..., Result])


def nothing(*_: Any) -> tuple:
    """Return nothing: a section without the function."""
    return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis(Declared):
    """A section of reports and a program, made of a function and of what it takes.

    Functions of `given` look up inputs and settings (`programs.given.Given`).

    Attributes:
      function: The analysis.
      question: The question that it answers, in a line.
      group: The group of programs, and the chapter of the page, that it belongs to.
      report: When a report has it: 'always', with 'all' sections, or only by its 'name'.
      time: The time that it takes for the quickstart on two cores, for the help; '' if unknown.
      section: The name of the section and the program; '' is that of the function.
      file: The beginning of the names of its files; '' is the name of the function.
      title: The name of its kept result; '' is the name of the function in words.
      settings: Its own settings, by their names behind that of the section and a dot; each has the
        fields that `settings.toml` explains.
      reads: The beginnings of the settings that its help lists; () is its section with a dot.
      inputs: The arguments that are not the input or the setting of their name: the name of an
        input or, with a dot, of a setting; the name of an input and the place of a part of it; a
        function of `given`, of which None leaves the argument out; or `...` for the default.
      needs: Further inputs that a run must have, by name, or functions that name what is missing.
      packages: The packages of extras that it imports, which are asked for before a run begins.
      aside: Inputs and settings of further arguments that change no result, such as a folder.
      like: A class that has the defaults of the arguments that go through `**settings`.
      wants, compares: The statistics, of the model as it is and of it with a fine-tuned one, that
        it measures in the passes that sections share.
      words: Whether it looks at words, if the run knows them.
      check: Refuses settings before anything is loaded or trained.
      cost: Returns its own work in tokens through the model, beside what sections share: passes
        for what it `wants` and `compares`, fine-tuning, and scores of heads.
      shares: Whether the parts of its work, such as sweeps, stay for other sections.
      axis: A second axis of devices that it can use.
      kept: Whether the result is kept; what takes no time is made again.
      also: Writes further files of a new result into a folder of theirs.
    """

    function: Callable[..., Result]
    file: str = ''
    title: str = ''
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    needs: tuple[str | Callable[[Given], str], ...] = ()
    packages: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    like: Callable[..., Any] | None = None
    wants: Callable[[Given], Iterable[Described]] = nothing
    compares: Callable[[Given], Iterable[Described]] = nothing
    words: bool = False
    check: Callable[[Given], object] = nothing
    cost: Callable[[Given], float] = lambda given: 0.0
    shares: bool = False
    axis: str = ''
    kept: bool = True
    also: tuple[str, Callable[[Given, Any, Any], object]] | None = None

    @property
    def name(self) -> str:
        """The name of the section and of the program."""
        return self.section or self.function.__name__

    @property
    def files(self) -> str:
        """The beginning of the names of its files."""
        return self.file or self.function.__name__

    @property
    def kind(self) -> type[Result]:
        """The class of its results."""
        return inspect.signature(self.function).return_annotation

    def missing(self, given: Given) -> str:
        """Return what a run lacks for it, as behind "needs"; empty if it has everything."""
        inputs = filter(None, map(_input_of, self._sources().values()))
        for each in (*self.needs, *inputs):
            if found := INPUTS[each].missing(given) if isinstance(each, str) else each(given):
                return found
        return ''

    def call(self, given: Given) -> Call:
        """Return the call of the analysis on the inputs and settings of a run."""
        positional, named, open_ended, about = [], {}, False, ''
        parameters = inspect.signature(self.function).parameters
        for name, source in self._sources(given.settings).items():
            value = given.find(source)
            kind = parameters[name].kind if name in parameters else inspect.Parameter.KEYWORD_ONLY
            if value is None:
                # Arguments behind it have names.
                open_ended = True
                continue
            if _input_of(source) and not about:
                about = INPUTS[_input_of(source)].label(given)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                positional += value
            elif kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and not open_ended:
                positional.append(value)
            else:
                named[name] = value
        named['subject'] = given.subject_about(about)
        aside = {name.rpartition('.')[2]: given.find(name) for name in self.aside}
        return Call(self.function, tuple(positional), named, aside, self.like)

    def _sources(self, settings: Iterable[str] = ()) -> dict[str, Any]:
        """Return where each argument comes from: an input, a setting, or a function of `given`."""
        parameters = inspect.signature(self.function).parameters
        found, known = {}, {*INPUTS, *settings}
        for name in dict.fromkeys((*parameters, *self.inputs)):
            usual = (each for each in (name, f'{self.name}.{name}') if each in known)
            found[name] = self.inputs[name] if name in self.inputs else next(usual, ...)
        return {name: source for name, source in found.items() if source is not ...}


def _input_of(source: Any) -> str:
    """Return the name of the input that an argument comes from; empty if it is none."""
    name = source[0] if isinstance(source, tuple) else source
    return name if isinstance(name, str) and name in INPUTS else ''


# By the names of sections, in the order in which the modules are imported: that in which they run.
ANALYSES: dict[str, Analysis] = {}


def analysis(**about: Any) -> Callable[[Function], Function]:
    """Return a decorator that declares an analysis; the arguments are those of `Analysis`."""

    def declare(function: Function) -> Function:
        declared = Analysis(function=with_subject(function), **about)
        ANALYSES[declared.name] = declared
        return declared.function  # pyright: ignore[reportReturnType]

    return declare


def with_subject(function: Function) -> Function:
    """Let an analysis take a `subject`, too: the names of the model, the texts and the task.

    Sentences, captions and published numbers go by them.
    """

    @functools.wraps(function)
    def named(*given, subject: Subject | None = None, **settings):
        result = function(*given, **settings)
        return result if subject is None else dataclasses.replace(result, subject=subject)

    signature = inspect.signature(function)
    own = inspect.Parameter(
        'subject', inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Subject | None
    )
    # `**settings` come last.
    every = [*signature.parameters.values(), own]
    parameters = sorted(every, key=operator.attrgetter('kind'))
    named.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore
    return named  # pyright: ignore[reportReturnType]
