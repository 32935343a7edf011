"""docs/operators/permissions.md: each program's S3 requests are what its policy allows."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pytest
from confluent_kafka import Producer

import neve
from neve.cli import main
from support.brokers import start_broker
from support.servers import moto

PAGE = Path(__file__).parents[3] / "docs" / "operators" / "permissions.md"
RECORDS = 200


class Request(NamedTuple):
    action: str
    resource: str
    status: int


class Recorder:
    """The S3 requests that a server received, as permissions on resources."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def around(self, app: Any) -> Any:
        def recorded(environ: dict[str, Any], start_response: Any) -> Any:
            def responded(status: str, *rest: Any) -> Any:
                action, resource = permission(environ)
                with self._lock:
                    self.requests.append(
                        Request(action, resource, int(status.split(maxsplit=1)[0]))
                    )
                return start_response(status, *rest)

            return app(environ, responded)

        return recorded

    @contextmanager
    def recording(self) -> Iterator[list[Request]]:
        found: list[Request] = []
        before = len(self.requests)
        yield found
        found += self.requests[before:]


def permission(environ: dict[str, Any]) -> tuple[str, str]:
    """The permission that S3 requires for a request, and on which resource."""
    bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    method = environ["REQUEST_METHOD"]
    if not key and method == "GET" and query.get("list-type") == ["2"]:
        return "s3:ListBucket", f"arn:aws:s3:::{bucket}"
    names = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
    if key and method in names and not query:
        return f"s3:{names[method]}", f"arn:aws:s3:::{bucket}/{key}"
    return f"unexpected {method} {sorted(query)}", environ["PATH_INFO"]


class Policy:
    """A policy of the page, for another bucket."""

    def __init__(self, title: str, bucket: str) -> None:
        text = PAGE.read_text(encoding="utf-8")
        block = re.search(rf"^## {title}\n\n```json\n(.*?)```", text, re.DOTALL | re.MULTILINE)
        assert block is not None, title
        statements = json.loads(block[1].replace("my-bucket", bucket))["Statement"]
        assert all(set(each) == {"Effect", "Action", "Resource"} for each in statements)
        self.rows = [
            (action, each["Resource"])
            for each in statements
            for action in ([each["Action"]] if isinstance(each["Action"], str) else each["Action"])
        ]

    def allows(self, request: Request) -> bool:
        return any(
            request.action == action and fnmatchcase(request.resource, resource)
            for action, resource in self.rows
        )

    def assert_covers(self, requests: list[Request]) -> None:
        assert requests
        assert [each for each in requests if not self.allows(each)] == []

    def assert_is_the_least(self, requests: list[Request]) -> None:
        self.assert_covers(requests)
        assert {each.action for each in requests} == {action for action, _ in self.rows}


class World(NamedTuple):
    recorder: Recorder
    bucket: str
    url: str
    folder: Path

    def broker(self) -> list[Request]:
        """Serve a topic: tier, roll up and retire, stop, start again, delete the topic."""
        small = {
            "segment_bytes": 4096,
            "wal_tail_objects": 4,
            "maintenance_gc_interval_ms": 50,
            "cluster_poll_ms": 100,
            "manifest_checkpoint_numbers": 2,
        }
        with self.recorder.recording() as found:
            for _ in range(2):
                broker = start_broker(self.url, self.folder / "log", **small)
                try:
                    self._produce(broker.bootstrap)
                finally:
                    assert broker.stop() == 0, broker.log
        return found

    def _produce(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for at in range(RECORDS):
            producer.produce("t", b"%d" % at * 50)
            if at % 20 == 0:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    def reader(self) -> list[Request]:
        with self.recorder.recording() as found, neve.open(self.url) as bucket:
            assert sum(1 for _ in bucket.read("t")) == 2 * RECORDS
            assert bucket.plan("t")
            assert bucket.describe()
        return found

    def command(self, *tokens: str) -> list[Request]:
        with self.recorder.recording() as found:
            assert main([*tokens[:2], self.url, *tokens[2:]]) == 0
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    recorder = Recorder()
    with moto(around=recorder.around) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        bucket = server.new_bucket()
        yield World(recorder, bucket, f"s3://{bucket}/neve", tmp_path_factory.mktemp("world"))


@pytest.mark.slow
def test_policies_allow_what_programs_request_and_nothing_else(world: World) -> None:
    write, read = Policy("Read and write", world.bucket), Policy("Read", world.bucket)
    served = world.broker()
    write.assert_is_the_least(served)
    assert any(each.action == "s3:GetObject" and each.status == 404 for each in served)
    read.assert_is_the_least(world.reader())
    read.assert_covers(world.command("storage", "verify", "--no-probe", "--settle-seconds", "0"))
    read.assert_covers(world.command("maintain", "verify", "--local", "--settle-seconds", "0"))
    read.assert_covers(world.command("storage", "ls"))
    write.assert_is_the_least(world.command("storage", "verify", "--settle-seconds", "0"))
    write.assert_is_the_least(world.command("maintain", "merge", "--local"))
    write.assert_covers(world.command("maintain", "expire", "--local"))
    write.assert_covers(world.command("maintain", "build-index", "--local"))


@pytest.mark.parametrize(
    ("method", "query", "expected"),
    [
        ("GET", "list-type=2&prefix=a", "unexpected"),
        ("POST", "uploads", "unexpected"),
        ("PUT", "uploadId=1&partNumber=1", "unexpected"),
        ("PUT", "", "s3:PutObject"),
    ],
)
def test_requests_in_parts_would_be_noticed(method: str, query: str, expected: str) -> None:
    asked = {"PATH_INFO": "/b/k", "QUERY_STRING": query, "REQUEST_METHOD": method}
    assert permission(asked)[0].startswith(expected)
