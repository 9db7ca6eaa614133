"""A local page that shows the maps of any sentence that one types."""

import functools
import http.server
import threading
import urllib.parse
from collections.abc import Mapping

from markupsafe import Markup

from bert_secrets_jax.analyses.example_maps import maps_of
from bert_secrets_jax.data.encoding import knows_words
from bert_secrets_jax.local import Handler, start
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.templates import render

# Characters of a sentence, more than any model here reads.
_MOST = 5000


def serve(
    models: Mapping[str, Pretrained], *, max_length: int = 128, port: int = 0
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
    models: Mapping[str, Pretrained], first: str = '', second: str = '', *, max_length: int = 128
) -> str:
    """Return the page with the maps of a sentence or pair, if any, and what the models refuse."""
    problem, explorer, cut = '', '', 0
    typed = [each for each in (first, second) if each.strip()]
    if len(first) > _MOST or len(second) > _MOST:
        problem = f'A sentence has at most {_MOST:,} characters.'
    elif (first or second) and not first.strip():
        problem = 'There is no sentence to show: type some words into the first field.'
    elif not all(
        # A model without a tokenizer has a message of its own.
        model.tokenizer is None or knows_words(model.tokenizer, typed)
        for model in models.values()
        if typed
    ):
        problem = (
            f'{" and ".join(models)} can read next to nothing of this: it may be written in '
            'letters or in a language that the model has not learnt. Try another sentence.'
        )
    elif typed:
        texts = [(first, second) if second.strip() else first]
        try:
            maps = {
                name: maps_of(each, texts, max_length=max_length) for name, each in models.items()
            }
            longest = max(len(each[0].tokens) for each in maps.values())
            cut = longest if longest >= max_length else 0
            explorer = Markup(Explorer(maps).html())
        except ValueError as error:
            problem = str(error)
    return render(
        'typed.html',
        names=' and '.join(models),
        first=first,
        second=second,
        most=_MOST,
        problem=problem,
        cut=cut,
        explorer=explorer,
    )


class _Handler(Handler):
    # The explorer brings its own script and style, and asks for nothing.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    # One sentence at a time: each takes all cores.
    _working = threading.Lock()

    def __init__(self, models: Mapping[str, Pretrained], max_length: int, *args):
        self._models, self._max_length = models, max_length
        super().__init__(*args)

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        if address.path != '/':
            self.send_error(404)
            return
        try:
            asked = dict(urllib.parse.parse_qsl(address.query, max_num_fields=8))
        except ValueError:
            self.send_error(400, 'The page asks for text_a and text_b alone.')
            return
        with self._working:
            page = page_of(
                self._models,
                asked.get('text_a', ''),
                asked.get('text_b', ''),
                max_length=self._max_length,
            )
        self.answer(200, 'text/html; charset=utf-8', page.encode())
