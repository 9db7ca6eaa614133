"""A call that is a value: it can be run, has a key, and is written as Python by `repr`.

An input of analyses is declared once, with such a call.
"""

import dataclasses
import functools
import hashlib
import inspect
import operator
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from bert_secrets_jax import lazy

_GETTERS = (operator.attrgetter, operator.itemgetter)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Call:
    """A function with its arguments, each a plain value, a call, or a list or dictionary of these.

    Its `repr` is the call as a user writes it, without the arguments that are defaults.

    Attributes:
      function: A public function, class or method; or an `operator.attrgetter` or `itemgetter` for
        a part of what another call returns.
      given, named: The arguments.
      aside: Further arguments, such as folders and devices. They change no result, so that they
        are neither part of the key nor of the line.
      like: A function or class that has the defaults of further arguments.
      name: The name that others write in its place; empty if they write the call itself.
      make: Makes the value in another way than by calling the function.
      content: Returns what stands for the call in keys; None takes the function and its arguments.
    """

    function: Callable[..., Any]
    given: tuple[Any, ...] = ()
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    aside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    like: Callable[..., Any] | None = None
    name: str = ''
    make: Callable[[], Any] | None = None
    content: Callable[[], Any] | None = None

    def __repr__(self) -> str:
        return self.name or self.python

    @property
    def chosen(self) -> dict[str, Any]:
        """The named arguments that are not the defaults of the function, nor of one `like` it."""
        defaults = {
            name: parameter.default
            for each in (self.like, self.function)
            if each is not None
            for name, parameter in inspect.signature(each).parameters.items()
        }
        return {
            name: value
            for name, value in self.named.items()
            if isinstance(value, Call) or plain(value) != plain(defaults[name])
        }

    @property
    def python(self) -> str:
        """The call itself, also where it has a name."""
        given = [*map(repr, self.given)]
        if isinstance(self.function, operator.itemgetter):
            return f'{given[0]}[{self._part!r}]'
        if isinstance(self.function, operator.attrgetter):
            return f'{given[0]}.{self._part}'
        words = given + [f'{name}={value!r}' for name, value in self.chosen.items()]
        if self.function.__qualname__.rpartition('.')[0].isidentifier():
            # A method.
            return f'{words[0]}.{self.function.__name__}({", ".join(words[1:])})'
        return f'{public_name(self.function)}({", ".join(words)})'

    @property
    def key(self) -> Any:
        """Everything that the value depends on, as JSON; two calls with one key are the same."""
        if self.content is not None:
            return self.content()
        of_call, function = operator.attrgetter('key'), self.function
        if isinstance(function, _GETTERS):
            return [str(self._part), _each(self.given, of_call)]
        name = f'{function.__module__}.{function.__qualname__}'
        return [name, _each(self.given, of_call), _each(self.chosen, of_call)]

    @property
    def _part(self) -> Any:
        """The name of the part that a getter takes."""
        return self.function.__reduce__()[1][0]

    def value(self) -> Any:
        """Run the call, and before it those that are its arguments."""
        if self.make is not None:
            return self.make()
        of_call = operator.methodcaller('value')
        named = _each({**self.named, **self.aside}, of_call)
        return self.function(*_each(self.given, of_call), **named)


def call(function: Callable[..., Any], *given: Any, **named: Any) -> Call:
    """Return the call of a function."""
    return Call(function, given, named)


def plain(value: Any) -> Any:
    """Return a value for comparison: a list is the tuple of the same items."""
    return tuple(value) if isinstance(value, list) else value


def _each(value: Any, of_call: Callable[[Call], Any]) -> Any:
    """Return a value with each call replaced, also within lists and dictionaries."""
    match value:
        case Call():
            return of_call(value)
        case dict():
            return {key: _each(each, of_call) for key, each in value.items()}
        case tuple() | list():
            return type(value)(_each(each, of_call) for each in value)
    return value


def public_name(function: Callable[..., Any]) -> str:
    """Return the name of a public function or class, as in 'bs.masks.disable'."""
    function = inspect.unwrap(function)
    name, home = function.__name__, function.__module__
    names = _public()
    if f'{home}.{name}' in names:
        return f'bs.{names[f"{home}.{name}"]}'
    # In a public module, or in a module of a public package.
    while home not in names and '.' in home:
        home = home.rpartition('.')[0]
    return f'bs.{names[home]}.{name}' if home in names else f'bs.analyses.{name}'


@functools.cache
def _public() -> dict[str, str]:
    """Return the public names by the modules and members that they stand for."""
    homes = lazy.public_names(pathlib.Path(__file__).parents[1] / '__init__.py')
    return {'.'.join(home): name for name, home in homes.items()}


# A `programs.given.Given`, which looks up settings and inputs.
Given = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """Something that analyses take, as the settings of a run name it.

    Attributes:
      make: Returns the call that loads it, of a public function; None leaves it out.
      missing: Names what the run lacks for it, as behind "needs"; empty if nothing is lacking.
      label: Returns the name of texts, for sentences and captions; empty for the texts of the run.
      load: Loads it, where a run does more than the call says, such as keeping it in a folder.
      ready: Whether its content is known without computing it.
      content: Returns the digest of what was loaded, which results depend on. None leaves that to
        the key of the call, for what no file holds.
    """

    make: Callable[[Given], Any]
    missing: Callable[[Given], str] = lambda given: ''
    label: Callable[[Given], str] = lambda given: ''
    load: Callable[[Given, Call], Any] = lambda given, call: call.value()
    ready: Callable[[Given], bool] = lambda given: True
    content: Callable[[Given, str], str] | None = None


def of_value(given: Given, name: str) -> str:
    """Return the digest of an input itself, by its `repr`."""
    return hashlib.sha256(repr(given.value(name)).encode()).hexdigest()


# By the names that lines of Python have for them.
INPUTS: dict[str, Input] = {}


def an_input(
    *, content: Callable[[Given, str], str] | None = of_value, **about: Any
) -> Callable[[Callable[[Given], Any]], Callable[[Given], Any]]:
    """Return a decorator of the function that makes the call of an input named after it."""

    def declare(make):
        INPUTS[make.__name__] = Input(make=make, content=content, **about)
        return make

    return declare
