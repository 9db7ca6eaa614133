"""A small local page on which a person labels attention maps.

It shows one map at a time. The keys 1 to 5 choose a class, and u takes the last choice back. Every
choice is written to a CSV file at once: the last row of a map holds, and an empty class means that
a choice was taken back. A page that is opened again goes on with the first map without a label.
Several pages may share a file, in one process or in several.
"""

import base64
import contextlib
import errno
import functools
import hashlib
import http.server
import io
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any

from bert_secrets_jax.files import locked, parse_json, write_csv
from bert_secrets_jax.local import Handler, start
from bert_secrets_jax.patterns.classes import CLASSES, TITLES
from tools.patterns.maps import MapSample
from tools.patterns.sample import labels_of, number_of, read_decisions, row_of, sheet

# Seconds to wait for another process that writes the same file.
_LOCK_PATIENCE = 5.0
# Bytes of a request's body.
_MOST_BYTES = 4096


class Refused(ValueError):
    """A request that changes nothing, with the status and the one line that answer it."""

    def __init__(self, status: int, line: str):
        super().__init__(line)
        self.status = status


class Labels:
    """The classes that somebody chose for some maps.

    They are kept in their file alone, which is read before each choice: what is shown is what is
    written, whatever happens to this process, and another one may write the same file.
    """

    def __init__(self, maps: MapSample, path: pathlib.Path):
        self._maps, self._path, self._lock = maps, path, threading.Lock()

    def state(self) -> dict:
        """Return what the page needs to go on.

        Returns:
          `next`, the number of the map to label next (None if all are labelled); `done`, how many
          are labelled; `total`, how many there are; and `last`, the number and class of the last
          choice (None if there is none).

        Raises:
          ValueError: The file is damaged, or has labels of other maps.
        """
        return self._state(read_decisions(self._path, self._maps)[1])

    def decide(self, number: int, name: str) -> dict:
        """Write the choice of a class for a map.

        Args:
          number: The number of the map, from 0.
          name: One of CLASSES; empty to take a choice back.

        Returns:
          The new `state`.

        Raises:
          ValueError: The file is damaged.
          OSError: The file cannot be written; it stays as it was.
        """
        with self._alone():
            return self._add(*read_decisions(self._path, self._maps), number, name)

    def take_back(self) -> dict:
        """Take back the last choice, if there is one.

        Returns:
          The new `state`.

        Raises:
          ValueError: The file is damaged.
          OSError: The file cannot be written; it stays as it was.
        """
        with self._alone():
            columns, rows = read_decisions(self._path, self._maps)
            labels = labels_of(rows)
            if not labels:
                return self._state(rows)
            return self._add(columns, rows, next(reversed(labels)), '')

    def _add(
        self, columns: Sequence[str], rows: Sequence[Sequence], number: int, name: str
    ) -> dict:
        # The whole file, since half of a row that is appended would be read as another one.
        rows = [*rows, row_of(self._maps, number, name)]
        write_csv(self._path, columns, rows)
        return self._state(rows)

    def _state(self, rows: Sequence[Sequence]) -> dict:
        labels = labels_of(rows)
        waiting = (number for number in range(len(self._maps)) if number not in labels)
        last = next(reversed(labels), None)
        return {
            'next': next(waiting, None),
            'done': len(labels),
            'total': len(self._maps),
            'last': None if last is None else [last, labels[last]],
        }

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads and processes from writing between reading and writing the file.

        Raises:
          TimeoutError: Another process does not finish its own writing.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A file of its own, since the table is another file after each writing.
        beside = self._path.with_name(f'{self._path.name}.lock')

        def waiting(seconds: float) -> None:
            if seconds > _LOCK_PATIENCE:
                raise TimeoutError(f'Another program has locked {beside}: stop it, or try again.')

        with self._lock, locked(beside, waiting=waiting, pause=0.02):
            yield


def serve(maps: MapSample, path: pathlib.Path, *, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Return a server of the page, which only this machine can reach; run its `serve_forever`.

    Args:
      maps: The maps to label.
      path: The CSV file for the choices.
      port: The port; 0 takes any that is free, which `server_address` then holds.

    Raises:
      ValueError: The file is damaged or has labels of other maps, or the port cannot be had.
    """
    labels = Labels(maps, path)
    labels.state()
    return start(functools.partial(_Handler, maps, labels), port=port)


def _decision(sent: Any, count: int) -> tuple[int, str]:
    """Return the number of the map and the class that a body names.

    Args:
      sent: The body, as JSON.
      count: The number of maps.

    Raises:
      Refused: It is something else than `Labels.decide` takes.
    """
    if not isinstance(sent, dict) or sent.keys() != {'number', 'class'}:
        raise Refused(400, 'The body is an object with number and class.')
    number, name = sent['number'], sent['class']
    # To Python, true is a number.
    if type(number) is not int or not 0 <= number < count:
        raise Refused(400, f'number is a whole number from 0 to {count - 1}.')
    if name not in ('', *CLASSES):
        raise Refused(400, f'class is one of {", ".join(CLASSES)} or empty.')
    return number, name


class _Handler(Handler):
    def __init__(self, maps: MapSample, labels: Labels, *args):
        self._maps, self._labels = maps, labels
        super().__init__(*args)

    @property
    def policy(self) -> str:
        return _page()[1]

    def do_GET(self):
        match self.path.split('/'):
            case ['', '']:
                self.answer(200, 'text/html; charset=utf-8', _page()[0])
            case ['', 'state']:
                self._answer_state(self._labels.state)
            case ['', 'map', text] if (number := number_of(text, len(self._maps))) is not None:
                self.answer(200, 'image/png', _draw(self._maps.take([number])))
            case _:
                self.send_error(404)

    def do_POST(self):
        match self.path:
            case '/label':
                self._answer_state(self._decide)
            case '/undo':
                self._answer_state(self._undo)
            case _:
                self.send_error(404)

    def sent(self) -> Any:
        """Return the body, as JSON."""
        # A page of another site cannot send this type without being asked.
        if self.headers.get_content_type() != 'application/json':
            raise Refused(403, 'A body has the Content-Type application/json.')
        sent = self.headers.get_all('Content-Length', [])
        if not sent or 'Transfer-Encoding' in self.headers:
            raise Refused(411, 'A body needs its Content-Length, and no Transfer-Encoding.')
        if len(sent) > 1 or not (sent[0].isascii() and sent[0].isdecimal()):
            raise Refused(400, 'Content-Length is one number.')
        # Thousands of digits are no number to `int`.
        length = int(sent[0]) if len(sent[0]) < 10 else _MOST_BYTES + 1
        if length > _MOST_BYTES:
            raise Refused(413, f'A body has at most {_MOST_BYTES} bytes.')
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise Refused(408, f'The body took over {self.timeout:.0f} seconds.') from None
        if len(body) < length:
            raise Refused(400, f'The body has {len(body)} bytes and not {length}.')
        try:
            return parse_json(body.decode())
        except ValueError as error:
            raise Refused(400, f'The body is no JSON: {error}.') from error

    def _decide(self) -> dict:
        return self._labels.decide(*_decision(self.sent(), len(self._maps)))

    def _undo(self) -> dict:
        if self.sent() != {}:
            raise Refused(400, 'The body is an empty object.')
        return self._labels.take_back()

    def _answer_state(self, change: Callable[[], dict]) -> None:
        """Answer with the state after a change, or with what kept it from being made."""
        try:
            state = change()
        except Refused as refused:
            self.send_error(refused.status, str(refused))
        except TimeoutError as error:
            self.send_error(503, str(error))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self.send_error(507 if full else 500, str(error))
        except ValueError as error:
            self.send_error(500, str(error))
        else:
            self.answer(200, 'application/json', json.dumps(state).encode())


# Settings of matplotlib are the whole process's, and each request is a thread.
_DRAWING = threading.Lock()


def _draw(one: MapSample) -> bytes:
    data = io.BytesIO()
    with _DRAWING:
        sheet(one, [''], columns=1).savefig(data, format='png', dpi=220)
    return data.getvalue()


@functools.cache
def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that lets it run its own script alone."""
    buttons = ''.join(
        f'<button data-class="{name}"><kbd>{key}</kbd> {title}</button>'
        for key, (name, title) in enumerate(zip(CLASSES, TITLES, strict=True), 1)
    )
    page = resources.files(__package__).joinpath('page.html').read_text('utf-8')
    page = page.replace('<!-- buttons -->', buttons)
    policy = (
        f"default-src 'none'; script-src {_hash(page, 'script')}; "
        f"style-src {_hash(page, 'style')}; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page.encode(), policy


def _hash(page: str, tag: str) -> str:
    """Return what a policy calls the only element of a page with a tag."""
    content = page.partition(f'<{tag}>')[2].partition(f'</{tag}>')[0]
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
