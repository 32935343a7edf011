"""A schema registry on this machine that knows what it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    """Serves `answers` by path; remembers what it was asked and with which credentials."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.credentials: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.credentials.append(self.headers.get("Authorization"))
                unknown = (404, {"error_code": 40403, "message": "Schema not found"})
                status, answer = outer.answers.get(self.path, unknown)
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.place = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.place}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def add(self, schema_id: int, schema: Any, **more: Any) -> None:
        self.answers[f"/schemas/ids/{schema_id}"] = (200, {"schema": json.dumps(schema), **more})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
