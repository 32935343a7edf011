"""An HTTP server that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

HANG = "hang"
RESET = "reset"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """The Content-Length to claim, where it is not the body's."""


Script: TypeAlias = Callable[[Request], "Answer | str"]


class ScriptedServer:
    def __init__(self) -> None:
        self.script: Script = lambda request: Answer()
        self.requests: list[Request] = []
        self.connections: list[socket.socket] = []
        self.over = threading.Event()
        self.endpoint = ""

    def fails(self, status: int, code: str = "") -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode()
        self.script = lambda request: Answer(status, body if code else b"")


def _handler(scripted: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            scripted.connections.append(self.connection)

        def answer(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self.rfile.read(size))
            scripted.requests.append(request)
            answer = scripted.script(request)
            if isinstance(answer, str):
                if answer == HANG:
                    scripted.over.wait(60)
                self.close_connection = True
                return
            length = len(answer.body) if answer.length is None else answer.length
            self.send_response(answer.status)
            self.send_header("Content-Length", str(length))
            self.send_header("ETag", '"tag"')
            self.send_header("Last-Modified", "Sun, 15 Nov 2026 08:00:00 GMT")
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = length != len(answer.body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Tests look at `requests`."""

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    block_on_close = True

    def handle_error(self, *args: Any) -> None:
        """A client that went away is what some tests are about."""


@contextlib.contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    server = _Server(("127.0.0.1", 0), _handler(scripted))
    scripted.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield scripted
    finally:
        server.shutdown()
        thread.join()
        scripted.over.set()
        for connection in scripted.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
