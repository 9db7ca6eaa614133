"""A small local page on which a person labels attention maps.

It shows one map at a time. The keys 1 to 5 choose a class, and u takes the last choice back. Every
choice is written to a CSV file at once: the last row of a map holds, and an empty class means that
a choice was taken back. A page that is opened again goes on with the first map without a label.
"""

import contextlib
import csv
import functools
import http.server
import io
import json
import pathlib
import threading
from importlib import resources

from bert_secrets_jax.patterns.cnn import CLASSES, TITLES
from bert_secrets_jax.patterns.sample import COLUMNS, MapSample, read_labels, row_of, sheet


class Labels:
    """The classes that somebody chose for some maps, kept in a file."""

    def __init__(self, maps: MapSample, path: pathlib.Path):
        self._maps, self._path, self._lock = maps, path, threading.Lock()
        self._labels = read_labels(path, maps)

    def state(self) -> dict:
        """Return what the page needs to go on.

        Returns:
          `next`, the number of the map to label next (None if all are labelled); `done`, how many
          are labelled; `total`, how many there are; and `last`, the number and class of the last
          choice (None if there is none).
        """
        waiting = (number for number in range(len(self._maps)) if number not in self._labels)
        last = next(reversed(self._labels), None)
        return {
            'next': next(waiting, None),
            'done': len(self._labels),
            'total': len(self._maps),
            'last': None if last is None else [last, self._labels[last]],
        }

    def decide(self, number: int, name: str) -> None:
        """Write the choice of a class for a map; an empty name takes a choice back.

        Raises:
          ValueError: There is no such map or class.
        """
        if number not in range(len(self._maps)) or name not in ('', *CLASSES):
            raise ValueError(f'no map {number!r} or class {name!r}')
        with self._lock:
            new = not self._path.exists()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open('a', newline='', encoding='utf-8') as file:
                writer = csv.writer(file, lineterminator='\n')
                if new:
                    writer.writerow(COLUMNS)
                writer.writerow(row_of(self._maps, number, name))
            self._labels.pop(number, None)
            if name:
                self._labels[number] = name

    def take_back(self) -> None:
        """Take back the last choice, if there is one."""
        last = self.state()['last']
        if last is not None:
            self.decide(last[0], '')


def serve(maps: MapSample, path: pathlib.Path, *, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Return a server of the page, which only this machine can reach; run its `serve_forever`.

    Args:
      maps: The maps to label.
      path: The CSV file for the choices.
      port: The port; 0 takes any that is free, which `server_address` then holds.
    """
    handler = functools.partial(_Handler, maps, Labels(maps, path))
    return http.server.ThreadingHTTPServer(('127.0.0.1', port), handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, maps: MapSample, labels: Labels, *args):
        self._maps, self._labels = maps, labels
        super().__init__(*args)

    def do_GET(self):
        match self.path.strip('/').split('/'):
            case ['']:
                page = resources.files(__package__).joinpath('page.html').read_text('utf-8')
                page = page.replace('<!-- buttons -->', _BUTTONS)
                self._answer('text/html; charset=utf-8', page.encode())
            case ['state']:
                self._answer_state()
            case ['map', number] if number.isdecimal() and int(number) < len(self._maps):
                self._answer('image/png', _draw(self._maps.take([int(number)])))
            case _:
                self.send_error(404)

    def do_POST(self):
        # A page of another site can send neither this type nor this address without being asked.
        local = self.headers.get('Host', '').split(':')[0] in ('127.0.0.1', 'localhost')
        if not local or self.headers.get('Content-Type') != 'application/json':
            self.send_error(403)
            return
        try:
            sent = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
            if self.path == '/undo':
                self._labels.take_back()
            else:
                self._labels.decide(sent['number'], sent['class'])
        except (ValueError, KeyError, TypeError) as error:
            self.send_error(400, str(error))
            return
        self._answer_state()

    def _answer_state(self) -> None:
        self._answer('application/json', json.dumps(self._labels.state()).encode())

    def log_message(self, *_):
        """Requests are no news."""

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Cache-Control', 'no-store')
        self.end_headers()
        # A key pressed before the map was there: the browser no longer waits for it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)


# Settings of matplotlib are the whole process's, and each request is a thread.
_DRAWING = threading.Lock()


def _draw(one: MapSample) -> bytes:
    data = io.BytesIO()
    with _DRAWING:
        sheet(one, [''], columns=1).savefig(data, format='png', dpi=220)
    return data.getvalue()


_BUTTONS = ''.join(
    f'<button data-class="{name}"><kbd>{key}</kbd> {title}</button>'
    for key, (name, title) in enumerate(zip(CLASSES, TITLES, strict=True), 1)
)
