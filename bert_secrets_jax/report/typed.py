"""A local page that shows the maps of any sentence that one types, or compares two texts."""

import functools
import http.server
import json
import threading
import urllib.parse

from markupsafe import Markup

from bert_secrets_jax.analyses.example_maps import maps_of
from bert_secrets_jax.data.encoding import knows_words
from bert_secrets_jax.local import Handler, start
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.templates import render
from bert_secrets_jax.report.two_texts import patched_heads, two_texts

# Characters of a sentence, more than any model here reads.
_MOST = 5000


def serve(
    name: str, model: Pretrained, *, max_length: int = 128, port: int = 0
) -> http.server.ThreadingHTTPServer:
    """Return a server of the page, which only this machine can reach; run its `serve_forever`.

    Args:
      name: The name of the model.
      max_length: The greatest number of tokens. Longer inputs are cut, which the page says.
      port: The port; 0 takes any that is free, which `server_address` then holds.

    Raises:
      ValueError: The port cannot be had.
    """
    return start(functools.partial(_Handler, name, model, max_length), port=port)


def page_of(
    name: str,
    model: Pretrained,
    first: str = '',
    second: str = '',
    max_length: int = 128,
    view: str = '/',
) -> str:
    """Return the page with the texts in a view, if there are any, and what the model refuses.

    Args:
      view: '/' for the maps of a sentence or pair, '/two' to compare two texts.
    """
    problem, content, cut = '', '', 0
    try:
        if first or second:
            check_texts(model, first, second)
            show = _compared if view == '/two' else _maps
            content, cut = show(name, model, first, second, max_length)
    except (ValueError, FloatingPointError) as error:
        problem = str(error)
    return render(
        'typed.html',
        model=name,
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


def check_texts(model: Pretrained, *texts: str) -> None:
    """Refuse texts that a model does not read, with a ValueError."""
    typed = [each for each in texts if each.strip()]
    if any(len(each) > _MOST for each in texts):
        raise ValueError(f'A sentence has at most {_MOST:,} characters.')
    # A model without a tokenizer has a message of its own.
    if typed and model.tokenizer is not None and not knows_words(model.tokenizer, typed):
        raise ValueError(
            'The model can read next to nothing of this: it may be written in letters or in a '
            'language that it has not learnt. Try another sentence.'
        )


def _maps(
    name: str, model: Pretrained, first: str, second: str, max_length: int
) -> tuple[Markup, int]:
    if not first.strip():
        raise ValueError('There is no sentence to show: type some words into the first field.')
    most = min(max_length, model.config.max_length)
    maps = maps_of(model, [(first, second) if second.strip() else first], max_length=most)
    return Markup(Explorer({name: maps}).html()), most if maps[0].cut else 0


def _compared(
    name: str, model: Pretrained, first: str, second: str, max_length: int
) -> tuple[Markup, int]:
    if not (first.strip() and second.strip()):
        raise ValueError('There are not two texts: type some words into both fields.')
    shown = two_texts(model, first, second, max_length=max_length)
    return render('two_texts.html', shown={'texts': [first, second]} | shown), shown['cut']


class _Handler(Handler):
    # Views bring their own scripts and styles, and ask this server alone.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    # One sentence at a time: each takes all cores.
    _working = threading.Lock()

    def __init__(self, name: str, model: Pretrained, max_length: int, *args):
        self._name, self._model, self._max_length = name, model, max_length
        super().__init__(*args)

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path not in ('/', '/two', '/heads'):
            self.send_error(404)
            return
        try:
            asked = dict(urllib.parse.parse_qsl(address.query, max_num_fields=8))
        except ValueError:
            self.send_error(400, 'The page asks for text_a and text_b alone.')
            return
        texts = asked.get('text_a', ''), asked.get('text_b', '')
        kind, longest = 'text/html; charset=utf-8', self._max_length
        try:
            with self._working:
                if address.path == '/heads':
                    check_texts(self._model, *texts)
                    heads = patched_heads(self._model, *texts, max_length=longest)
                    kind, body = 'application/json', json.dumps(heads)
                else:
                    body = page_of(self._name, self._model, *texts, longest, address.path)
        except (ValueError, FloatingPointError) as error:
            self.send_error(400, str(error))
            return
        self.answer(200, kind, body.encode())
