"""Iceberg's REST protocol over a SQL catalog: as much of it as a pipeline uses."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

STATUS = {
    CommitFailedException: 409,
    TableAlreadyExistsError: 409,
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
}


class RestServer(ThreadingHTTPServer):
    """`lose_answers` makes so many commits succeed and be answered with an error."""

    daemon_threads = True

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = catalog
        self.lose_answers = 0
        self.lock = threading.Lock()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RestServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"] or 0)))

    def _answer(self, body: bytes) -> None:
        try:
            with self.server.lock:
                status, text = self._handle(body)
        except tuple(STATUS) as error:
            status, kind = STATUS[type(error)], type(error).__name__
            text = json.dumps({"error": {"message": str(error), "type": kind, "code": status}})
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _handle(self, body: bytes) -> tuple[int, str]:
        catalog = self.server.catalog
        parts = [unquote(part) for part in self.path.partition("?")[0].split("/")[2:]]
        if parts == ["config"]:
            return 200, json.dumps({"defaults": {}, "overrides": {}})
        if parts == ["namespaces"]:
            catalog.create_namespace_if_not_exists(tuple(json.loads(body)["namespace"]))
            return 200, body.decode()
        if len(parts) == 2:
            properties = catalog.load_namespace_properties(parts[1])
            return 200, json.dumps({"namespace": [parts[1]], "properties": properties})
        if len(parts) == 3 and not body:
            return 200, json.dumps({"identifiers": []})
        if len(parts) == 3:
            return 200, _shown(self._create(parts[1], body))
        name = (parts[1], parts[3])
        if body:
            request = CommitTableRequest.model_validate_json(body)
            table = catalog.load_table(name)
            catalog.commit_table(table, request.requirements, request.updates)
            if self.server.lose_answers:
                self.server.lose_answers -= 1
                return 502, json.dumps({"error": {"message": "gone", "type": "x", "code": 502}})
        return 200, _shown(catalog.load_table(name))

    def _create(self, namespace: str, body: bytes) -> Table:
        wanted = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
        return self.server.catalog.create_table(
            (namespace, wanted.name),
            wanted.table_schema,
            partition_spec=wanted.partition_spec,  # type: ignore[arg-type]
            properties=wanted.properties,
        )


def _shown(table: Table) -> str:
    metadata = json.loads(table.metadata.model_dump_json())
    content = {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}
    return json.dumps(content)


@contextlib.contextmanager
def rest_server(folder: Path) -> Iterator[RestServer]:
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", warehouse=str(folder))
    server = RestServer(catalog)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        catalog.close()
