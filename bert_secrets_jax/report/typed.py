"""A local page that shows the maps of any sentence that one types, or compares two texts."""

import functools
import http.server
import json
import threading
import urllib.parse
from collections.abc import Mapping

from markupsafe import Markup

from bert_secrets_jax.analyses.example_maps import maps_of
from bert_secrets_jax.data.encoding import knows_words
from bert_secrets_jax.local import Handler, start
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.templates import render
from bert_secrets_jax.report.two_texts import patched_heads, two_texts

# The model, or two, the second of which is compared with the first, by their names.
Models = Mapping[str, Pretrained]
# Characters of a sentence, more than any model here reads.
_MOST = 5000


def serve(
    models: Models, *, max_length: int = 128, port: int = 0
) -> http.server.ThreadingHTTPServer:
    """Return a server of the page, which only this machine can reach; run its `serve_forever`.

    Args:
      models: The model, or two, the second of which is compared with the first, by their names.
      max_length: The greatest number of tokens. Longer inputs are cut, which the page says.
      port: The port; 0 takes any that is free, which `server_address` then holds.

    Raises:
      ValueError: There are no models or more than two, or the port cannot be had.
    """
    if len(models) not in (1, 2):
        raise ValueError(f'The page shows one model or two, got {len(models)}.')
    return start(functools.partial(_Handler, models, max_length), port=port)


def page_of(
    models: Models, first: str = '', second: str = '', max_length: int = 128, view: str = '/'
) -> str:
    """Return the page with the texts in a view, if there are any, and what the models refuse.

    Args:
      view: '/' for the maps of a sentence or pair, '/two' to compare two texts.
    """
    problem, content, cut = '', '', 0
    try:
        _check(models, first, second)
        if first or second:
            show = _compared if view == '/two' else _maps
            content, cut = show(models, first, second, max_length)
    except (ValueError, FloatingPointError) as error:
        problem = str(error)
    return render(
        'typed.html',
        names=' and '.join(models),
        view=view,
        first=first,
        second=second,
        # The other view gets the same texts.
        query=urllib.parse.urlencode({'text_a': first, 'text_b': second}) if first else '',
        most=_MOST,
        problem=problem,
        cut=cut,
        content=content,
    )


def heads_of(models: Models, first: str, second: str, max_length: int, number: str) -> str:
    """Return the effects of the heads of one text in the other, as JSON.

    Raises:
      ValueError: There is no model of this number, or it refuses the texts.
      FloatingPointError: As in `patched_heads`.
    """
    model = {str(at): each for at, each in enumerate(models.values())}.get(number)
    if model is None:
        raise ValueError(f'model must be a number from 0 to {len(models) - 1}.')
    _check(models, first, second)
    return json.dumps(patched_heads(model, first, second, max_length=max_length))


def _check(models: Models, *texts: str) -> None:
    """Refuse texts that no model here reads, with a ValueError."""
    typed = [each for each in texts if each.strip()]
    if any(len(each) > _MOST for each in texts):
        raise ValueError(f'A sentence has at most {_MOST:,} characters.')
    # A model without a tokenizer has a message of its own.
    readers = [each.tokenizer for each in models.values() if typed and each.tokenizer is not None]
    if not all(knows_words(each, typed) for each in readers):
        raise ValueError(
            f'{" and ".join(models)} can read next to nothing of this: it may be written in '
            'letters or in a language that the model has not learnt. Try another sentence.'
        )


def _maps(models, first: str, second: str, max_length: int) -> tuple[Markup, int]:
    if not first.strip():
        raise ValueError('There is no sentence to show: type some words into the first field.')
    texts = [(first, second) if second.strip() else first]
    most = min(max_length, *(each.config.max_length for each in models.values()))
    maps = {name: maps_of(each, texts, max_length=most) for name, each in models.items()}
    return Markup(Explorer(maps).html()), most if any(each[0].cut for each in maps.values()) else 0


def _compared(models, first: str, second: str, max_length: int) -> tuple[Markup, int]:
    if not (first.strip() and second.strip()):
        raise ValueError('There are not two texts: type some words into both fields.')
    shown = [
        {'model': visible(name), 'texts': [first, second]}
        | two_texts(model, first, second, max_length=max_length)
        for name, model in models.items()
    ]
    return render('two_texts.html', shown=shown), max(each['cut'] for each in shown)


class _Handler(Handler):
    # Views bring their own scripts and styles, and ask this server alone.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    # One sentence at a time: each takes all cores.
    _working = threading.Lock()

    def __init__(self, models: Models, max_length: int, *args):
        self._models, self._max_length = models, max_length
        super().__init__(*args)

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path not in ('/', '/two', '/heads'):
            self.send_error(404)
            return
        try:
            asked = dict(urllib.parse.parse_qsl(address.query, max_num_fields=8))
        except ValueError:
            self.send_error(400, 'The page asks for text_a, text_b and model alone.')
            return
        texts = asked.get('text_a', ''), asked.get('text_b', '')
        given, kind = (self._models, *texts, self._max_length), 'text/html; charset=utf-8'
        try:
            with self._working:
                if address.path == '/heads':
                    kind, body = 'application/json', heads_of(*given, asked.get('model', '0'))
                else:
                    body = page_of(*given, address.path)
        except (ValueError, FloatingPointError) as error:
            self.send_error(400, str(error))
            return
        self.answer(200, kind, body.encode())
