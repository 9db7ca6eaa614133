"""Arguments of public functions: their kinds, by the annotations, and the ranges of numbers.

They are checked at the public door alone, where a user comes in: what the package itself calls has
been checked. NumPy and JAX would refuse most of them too, in words that name no argument.
"""

import collections.abc
import functools
import inspect
import math
import os
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from bert_secrets_jax.checks import MENDABLE, shortened, without_endless
from bert_secrets_jax.ranges import Range

Function = TypeVar('Function', bound=Callable[..., Any])
_ARRAY = 'an array'
_MANY = Range(1, 1_000_000_000)
_SHARE = Range(0.0, 1.0, whole=False)
# Numbers by the name of the argument, in every function that has it; others stand on the argument,
# as `Annotated[float, Range(...)]`.
ARGUMENTS: Mapping[str, Range] = {
    'seed': Range(0, 2**32 - 1),
    'donor_seed': Range(0, 2**32 - 1),
    'level': _SHARE,
    'margin': Range(0.0, math.inf, whole=False, without=math.inf),
    'passes': Range(0.0, 1e12, whole=False, without=0.0),
    'sigma': Range(0.0, 1e6, whole=False, without=0.0),
    'steps': Range(0, 1_000_000),
    'resamples': Range(0, 1_000_000),
    'at_least': Range(0, 1_000_000),
} | dict.fromkeys(
    """batch_multiple block fewest length max_length max_units per_unit permutations reach rounds
    sample tokens_per_batch chunk_tokens""".split(),
    _MANY,
)
_WHOLE = Range(-(2**63), 2**63 - 1)
_NUMBER = Range(-math.inf, math.inf, whole=False)
# How to mend what is often mistaken: lists, and objects of a class.
_LISTS = {
    **dict.fromkeys(('train', 'dev'), 'a single one is given as a list of it'),
    'runs': 'runs is a list of folders',
}
_OBJECTS = {
    'pretrained': 'give what bs.from_pretrained returns, or bs.Pretrained(bert, params, tokenizer)',
    'config': 'give the config of a model, such as pretrained.config',
    'batches': 'Batches are several, as bs.encode(pretrained.tokenizer, texts) makes them from '
    'texts: [batch] for a single one',
    'texts': 'bs.stream_texts and bs.read_table make a list of texts from a file',
    'maps': 'bertviz shows one example, one of what bs.attention_maps returns',
    'sets': 'Each set is a list of (layer, head): [[(0, 1)]] disables L1-H2 alone',
}


def checked(function: Function) -> Function:
    """Return a function that first checks the kinds of its arguments, and takes lists as arrays.

    The error is of one line that names the argument: TypeError if an object of a class is needed,
    such as a model, else ValueError. No error of the function repeats an endless word.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*given, **named)
        except TypeError:
            # Python names what is missing or unknown.
            return function(*given, **named)
        try:
            for name, value in bound.arguments.items():
                about = signature.parameters[name]
                single = about.kind not in (about.VAR_POSITIONAL, about.VAR_KEYWORD)
                if single and value is not about.default:
                    check(name, value, about.annotation)
                    wants = dict(_wanted(name, about.annotation))
                    if type(value) in (list, tuple) and _ARRAY in wants:
                        bound.arguments[name] = np.asarray(value)
            return function(*bound.args, **bound.kwargs)
        except (*MENDABLE, TypeError) as error:
            if isinstance(error, OSError) and error.filename:
                error.filename = without_endless(error.filename)
            error.args = tuple(map(without_endless, error.args))
            raise

    return typing.cast(Function, call)


def check(name: str, value: Any, kind: Any) -> None:
    """Raise ValueError or TypeError for a value that is not of the kind of an annotation."""
    wanted = _wanted(name, kind)
    if any(fits(value) for _, fits in wanted):
        return
    texts = list(dict.fromkeys(text for text, _ in wanted))
    # A hint is about objects of a class and lists of them.
    how = '' if _ARRAY in texts else (_LISTS | _OBJECTS).get(name, '')
    text = f'{name}={shortened(value)} must be {" or ".join(texts)}{": " * bool(how)}{how}.'
    is_object = how in _OBJECTS.values() or texts[0].startswith('a bs.')
    raise (TypeError if is_object else ValueError)(' '.join(text.split()))


@functools.cache
def _wanted(name: str, kind: Any) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return what an annotation allows, each in words and with the test of a value."""
    home, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if home in (typing.Union, types.UnionType):
        found = [each for one in inner for each in _wanted(name, one)]
        # An empty text would be the folder in which one is.
        named = any(text == 'a path' for text, _ in found)
        return [(text, _is_named if named and text == 'a text' else fits) for text, fits in found]
    if home is typing.Annotated:
        return _numbers(kind.__metadata__[0])
    if kind in (None, type(None)):
        return [('None', lambda value: value is None)]
    if kind in (int, float):
        every = (_WHOLE, 'a whole number') if kind is int else (_NUMBER, 'a number')
        return _numbers(ARGUMENTS[name]) if name in ARGUMENTS else _numbers(*every)
    if kind is bool:
        return [('True or False', lambda value: type(value).__name__ in ('bool', 'bool_'))]
    if kind is str:
        return [('a text', _is_text)]
    if home is tuple and inner and Ellipsis not in inner:
        return [(f'a tuple of {len(inner)}', functools.partial(_fits_each, inner))]
    if home in (tuple, collections.abc.Sequence, collections.abc.Iterable):
        return [_sequence(inner[0] if inner else Any, home is collections.abc.Iterable)]
    if home is collections.abc.Mapping:
        return [_mapping(inner[-1] if inner else Any)]
    if home is collections.abc.Callable:
        return [('a function', callable)]
    if hasattr(home, 'dims'):
        return [(_ARRAY, lambda value: hasattr(value, 'shape') or _is_nested(value))]
    if not isinstance(home, type) or home in (Any, inspect.Parameter.empty):
        # Names of a few are checked by whoever knows them.
        return [('something else', lambda value: True)]
    is_path = home is os.PathLike or issubclass(home, pathlib.PurePath)
    text = 'a path' if is_path else f'a bs.{home.__name__}'
    return [(text, lambda value: isinstance(value, home))]


def _numbers(allowed: Range, text: str = '') -> list[tuple[str, Callable[[Any], bool]]]:
    # A number on a device is known when it has been computed, and not here.
    return [(text or str(allowed), lambda value: value in allowed or hasattr(value, 'aval'))]


def _is_nested(value: Any) -> bool:
    """Return whether a value is a list of numbers, or of such lists of one length."""
    try:
        return isinstance(value, list | tuple) and np.asarray(value).dtype.kind in 'biuf'
    # Lists of several lengths.
    except ValueError:
        return False


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and '\0' not in value


def _is_named(value: Any) -> bool:
    return _is_text(value) and bool(value)


def _fits_each(kinds: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, tuple | list) or len(value) != len(kinds):
        return False
    pairs = zip(value, kinds, strict=True)
    return all(any(fits(each) for _, fits in _wanted('', kind)) for each, kind in pairs)


def _mapping(inner: Any) -> tuple[str, Callable[[Any], bool]]:
    """Return a dictionary of an annotation in words, and the test of a value.

    Numbers and arrays come in many kinds, so that only objects of the package are looked at.
    """
    own = isinstance(inner, type) and inner.__module__.startswith('bert_secrets_jax.')
    kind = inner if own else object

    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(each, kind) for each in value.values())

    return f'a dictionary{f" of {inner.__name__}" if own else ""}', fits


def _sequence(inner: Any, once: bool) -> tuple[str, Callable[[Any], bool]]:
    """Return a sequence of an annotation in words, and the test of a value."""
    # The reader of texts names the one that is none.
    mixed = isinstance(inner, TypeVar) or {str, tuple} <= {
        typing.get_origin(each) or each for each in typing.get_args(inner)
    }
    kinds = _wanted('', inner)
    words = {str: 'texts', int: 'whole numbers'}.get(inner) or getattr(inner, '__name__', 'values')

    def fits(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        if not hasattr(value, '__len__'):
            # An iterator is read once, and not here.
            return once
        return mixed or all(any(fit(each) for _, fit in kinds) for each in value)

    return f'a list of {words}', fits
