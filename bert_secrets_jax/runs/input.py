"""The inputs of analyses: each is declared once, with its loader, its label, and when it lacks."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from bert_secrets_jax.runs.call import Call

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
