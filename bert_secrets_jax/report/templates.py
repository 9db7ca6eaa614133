"""The templates of pages: what is put in is escaped, and what is hidden in it is seen."""

import functools
import json
import re
import urllib.parse
from typing import Any

import jinja2
from markupsafe import Markup, escape

from bert_secrets_jax.names import visible

# The values that a template or a script shows, by the names that it has there.
Fields = dict[str, Any]
# Where heads of a model lead to: the text before their names in addresses, and the numbers of
# layers and of heads in each. None for no model.
Heads = tuple[str, int, int] | None
_HEAD = re.compile(r'\bL(\d{1,3})-H(\d{1,3})\b')
# From here to the end of the sentence the heads are those of a published model.
_PUBLISHED = re.compile(r'\b(?:[Tt]he paper|[Pp]ublished)\b.*?(?=[.;]\s|$)', re.DOTALL)
# Characters that a browser shows as a space.
_SPACES = '\t\n'


def render(name: str, **values: Any) -> Markup:
    """Return a template of this folder, filled in; texts are escaped, `Markup` is not."""
    return Markup(_environment().get_template(name).render(values))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('bert_secrets_jax', 'report'),
        autoescape=True,
        finalize=_seen,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {'linked': linked, 'links': links, 'data': data, 'one_way': one_way, 'file': file}
    environment.filters |= filters
    return environment


def _seen(value: Any) -> Any:
    """Return what is put in, with its hidden characters spelt out."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, keep=_SPACES)
    return value


def data(value: Any) -> Markup:
    """Return a value as JSON within a script: a text in it may be "</script>"."""
    # In one order, whether a figure was drawn now or read again.
    text = json.dumps(value, separators=(',', ':'), sort_keys=True)
    return Markup(text.replace('<', '\\u003c'))


def one_way(text: str) -> Markup:
    """Return a text within a line, which turns nothing beside it if it is Hebrew or Arabic."""
    return Markup('<bdi dir="ltr">{}</bdi>').format(_seen(text))


def file(name: str) -> str:
    """Return the name of a file as an address; what no address can hold becomes a question mark."""
    return urllib.parse.quote(name, errors='replace')


def links(text: Markup) -> Markup:
    """Return the links of a text alone."""
    return Markup(', '.join(re.findall('<a .*?</a>', text)))


# A page is written after each of its sections, with all that was on it before.
@functools.lru_cache(maxsize=100_000)
def linked(text: str, heads: Heads) -> Markup:
    """Return a text in which the name of each head leads to that head.

    Heads of a published model, after "the paper" or "published", lead nowhere, and a name beyond
    the numbers of `heads` is no head of this model. None leaves the text as it is.
    """
    safe = escape(_seen(str(text)))
    if heads is None:
        return safe
    prefix, layers, count = heads
    elsewhere = [match.span() for match in _PUBLISHED.finditer(safe)]

    def link(match: re.Match) -> str:
        layer, head = map(int, match.groups())
        foreign = any(start <= match.start() < end for start, end in elsewhere)
        if foreign or not (1 <= layer <= layers and 1 <= head <= count):
            return match[0]
        return f'<a href="#{prefix}{match[0]}">{match[0]}</a>'

    return Markup(_HEAD.sub(link, safe))
