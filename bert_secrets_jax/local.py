"""A page on this machine for one person: a small server that nobody else can reach.

Only this machine can reach it, but all that runs on it can, and so can the pages of any site in its
browser. So every request is checked before it does anything; see `refusal`.
"""

import collections
import contextlib
import http.server
import io
import socket
import threading
import time
from collections.abc import Callable
from email.message import Message

# Connections at a time; a browser opens up to 6, others wait.
_MOST_CONNECTIONS = 32
# Seconds after which the oldest connection makes way for one that waits.
_HURRY = 0.02


def start(handler: Callable[..., 'Handler'], *, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Return a server, on a port (0: any) that only this machine can reach; run `serve_forever`."""
    try:
        return Server(('127.0.0.1', port), handler)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f'The page cannot have the port {port} ({error}). Choose another one, or 0 for any '
            'that is free.'
        ) from error


def serve_until_stopped(server: http.server.ThreadingHTTPServer) -> None:
    """Print the address of a page and serve it, until the program is stopped."""
    print(f'http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C stops)', flush=True)
    try:
        server.serve_forever()
    finally:
        server.server_close()


class Server(http.server.ThreadingHTTPServer):
    """A thread for each connection, up to a number; whoever sends nothing makes way for others."""

    # A program that ends does not wait for a client that is slow.
    daemon_threads = True
    # Connections that wait to be taken: of more, the system drops some, and those try again late.
    request_queue_size = 256

    def __init__(self, *args):
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._open = collections.deque()
        super().__init__(*args)

    def process_request(self, request, client_address):
        while not self._free.acquire(timeout=_HURRY):
            # The oldest reads no more, and loses no answer that is on its way.
            with contextlib.suppress(OSError, IndexError):
                self._open.popleft().shutdown(socket.SHUT_RD)
        self._open.append(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            with contextlib.suppress(ValueError):
                self._open.remove(request)
            self._free.release()

    def shutdown_request(self, request):
        assert isinstance(request, socket.socket)
        # Were it closed with something unread, the system would reset the connection, and an answer
        # on its way could be lost.
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            rest = _Reader(request, seconds=1.0)
            while rest.read(1 << 16):
                pass
        self.close_request(request)


class _Reader(io.RawIOBase):
    """A stream of what a connection sends until a moment: a socket's timeout is for each byte."""

    def __init__(self, connection: socket.socket, *, seconds: float):
        self._connection, self._end = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        # Not 0, which would mean not to wait at all, and to raise another error.
        self._connection.settimeout(max(self._end - time.monotonic(), 1e-3))
        return self._connection.recv_into(buffer)


def refusal(method: str, path: str, headers: Message, port: int) -> str:
    """Return why a request is not from the page itself (DNS rebinding: a site that leads here)."""
    here = (f'127.0.0.1:{port}', f'localhost:{port}')
    # Browsers leave out the port that all have.
    hosts = {*here, '127.0.0.1', 'localhost'} if port == 80 else {*here}
    sent = [host.lower() for host in headers.get_all('Host', [])]
    if len(sent) != 1 or sent[0] not in hosts:
        return f'The page is at http://{here[0]}/ and has no other address.'
    origins = headers.get_all('Origin', [])
    # Its address alone shows nothing, and may be a link of a notebook, for example.
    followed = (method, path, headers.get('Sec-Fetch-Mode')) == ('GET', '/', 'navigate')
    own = followed or headers.get('Sec-Fetch-Site', 'none') in ('same-origin', 'none')
    if any(origin != f'http://{sent[0]}' for origin in origins) or not own:
        return 'Only the page itself may ask this.'
    return ''


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers requests of the page itself, by `do_GET` and `do_POST`, and refuses all others."""

    # Seconds for a client to send its request, and again to take the answer.
    timeout = 10.0
    # The actions that the browser may take on the page (Content-Security-Policy).
    policy = "default-src 'none'"

    def setup(self):
        super().setup()
        self.rfile.close()
        assert self.timeout is not None
        self.rfile = io.BufferedReader(_Reader(self.connection, seconds=self.timeout))

    def handle(self):
        # A browser that was closed, or no longer waits for a map, is no error.
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle()

    def parse_request(self) -> bool:
        # All methods pass here, also those that are not known.
        if not super().parse_request():
            return False
        port = self.connection.getsockname()[1]
        if why := refusal(self.command, self.path, self.headers, port):
            self.send_error(403, why)
        return not why

    def send_error(self, code, message=None, explain=None):
        # One line in the body: a status line has Latin-1 alone. `explain` says the same in general.
        line = ' '.join(str(message or self.responses[code][0]).split())
        self.answer(code, 'text/plain; charset=utf-8', line.encode(errors='backslashreplace'))

    def log_message(self, *_):
        """Requests are no news."""

    def answer(self, status: int, kind: str, body: bytes) -> None:
        # Writing has a time of its own, whatever was left of the time to read.
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Cache-Control', 'no-store')
        self.send_header('X-Content-Type-Options', 'nosniff')
        self.send_header('Content-Security-Policy', self.policy)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)
