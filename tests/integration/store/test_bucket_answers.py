"""What each answer of a server becomes, and what is sent to it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from neve.settings import StoreSettings
from neve.store.port import Store
from neve.store.url import open_store, stack

from .scripted_server import HANG, RESET, Answer, Request, ScriptedServer, scripted_server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"secret").decode())
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")


def opened(server: ScriptedServer, url: str = "s3://bucket/pre", **changes: Any) -> Store:
    settings = {"endpoint": server.endpoint, "region": "eu-west-1", **changes}
    return open_store(url, StoreSettings(**settings))


CREATE_ANSWERS = [
    (412, "PreconditionFailed", ExistsError),
    (409, "ConditionalRequestConflict", ConflictError),
    (409, "OperationAborted", ConflictError),
    (409, "BlobAlreadyExists", ExistsError),
    (404, "NoSuchBucket", StoreFailedError),
    (400, "ExpiredToken", DeniedError),
    (401, "", DeniedError),
    (403, "AccessDenied", DeniedError),
    (403, "", DeniedError),
    (429, "", UnavailableError),
    (400, "RequestTimeout", UnavailableError),
    (500, "InternalError", UnavailableError),
    (502, "", UnavailableError),
    (503, "SlowDown", UnavailableError),
    (504, "", UnavailableError),
    (301, "PermanentRedirect", StoreFailedError),
    (400, "InvalidRequest", StoreFailedError),
    (501, "NotImplemented", StoreFailedError),
]


@pytest.mark.parametrize(("status", "code", "kind"), CREATE_ANSWERS)
async def test_answers_to_a_create(status: int, code: str, kind: type[Exception]) -> None:
    with scripted_server() as server:
        server.fails(status, code)
        with pytest.raises(kind) as caught:
            await opened(server).create("k", b"x")
        assert type(caught.value) is kind
        assert str(caught.value).startswith("k: ")
        assert len(server.requests) == 1  # obstore tries nothing again by itself


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "NoSuchKey", NotFoundError),
        (404, "NoSuchBucket", StoreFailedError),
        (403, "AccessDenied", DeniedError),
        (503, "SlowDown", UnavailableError),
    ],
)
async def test_answers_to_reads(status: int, code: str, kind: type[Exception]) -> None:
    with scripted_server() as server:
        server.fails(status, code)
        store = opened(server)
        for work in (store.get("k"), store.get_range("k", 0, 9)):
            with pytest.raises(kind):
                await work
        if kind is not NotFoundError:
            with pytest.raises(kind):
                await store.list("k/")
        assert len(server.requests) <= 3


async def test_a_connection_that_breaks_or_is_refused_passes() -> None:
    with scripted_server() as server:
        store = opened(server)
        server.script = lambda request: RESET
        for work in (store.create("k", b"x"), store.get("k"), store.list(""), store.delete("k")):
            with pytest.raises(UnavailableError):
                await work
        server.script = lambda request: Answer(body=b"half", length=8)
        with pytest.raises(UnavailableError):
            await store.get("k")
    with pytest.raises(UnavailableError):
        await store.get("k")


async def test_a_server_that_hangs_is_given_up() -> None:
    with scripted_server() as server:
        server.script = lambda request: HANG
        with pytest.raises(UnavailableError):
            await opened(server, request_timeout_ms=200).create("k", b"x")
        wrapped = stack(opened(server), StoreSettings(request_timeout_ms=200, retry_attempts_max=0))
        with pytest.raises(UnavailableError):
            await wrapped.store.create("k", b"x")
        assert wrapped.gate.in_flight == 0


async def test_what_an_s3_create_sends() -> None:
    with scripted_server() as server:
        await opened(server).create("a/b", b"body")
        [request] = server.requests
        assert (request.method, request.path) == ("PUT", "/bucket/pre/a/b")
        assert request.headers["if-none-match"] == "*"
        assert request.headers["x-amz-content-sha256"].upper() == "UNSIGNED-PAYLOAD"
        assert "/eu-west-1/s3/" in request.headers["authorization"]
        assert request.body == b"body"
        await opened(server, unsigned_payload=False).put("k", b"body")
        assert len(server.requests[-1].headers["x-amz-content-sha256"]) == 64
        assert "if-none-match" not in server.requests[-1].headers


async def test_what_the_other_clouds_creates_send() -> None:
    with scripted_server() as server:
        await opened(server, "gs://bucket/pre").create("k", b"body")
        assert server.requests[-1].headers["x-goog-if-generation-match"] == "0"
        assert server.requests[-1].path.endswith("/bucket/pre%2Fk")
        await opened(server, "az://container/pre").create("k", b"body")
        assert server.requests[-1].headers["if-none-match"] == "*"
        assert server.requests[-1].path.endswith("/container/pre/k")


async def test_a_delete_of_what_is_not_there_is_fine() -> None:
    with scripted_server() as server:
        server.fails(404, "NoSuchKey")
        for url in ("s3://bucket", "gs://bucket"):
            await opened(server, url).delete("k")
        assert [request.method for request in server.requests] == ["DELETE", "DELETE"]
        server.fails(404, "NoSuchBucket")
        with pytest.raises(StoreFailedError):
            await opened(server).delete("k")


async def test_connections_are_kept_for_as_many_calls_as_the_gate_lets_through() -> None:
    with scripted_server() as server:
        store = opened(server, concurrency_max=8)
        for _ in range(10):
            await runtime.gather(*(store.put(f"{number}", b"x") for number in range(8)))
        # A call that starts before the last connection is back in the pool opens one more.
        assert len(server.connections) <= 16
        await store.close()


async def test_a_cancelled_upload_ends_quietly() -> None:
    with scripted_server() as server:
        server.script = lambda request: HANG
        store = opened(server)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with runtime.deadline(0.02):
                    await store.create("k", bytes(1000))


async def test_a_missing_bucket_says_what_to_do() -> None:
    with scripted_server() as server:
        server.fails(404, "NoSuchBucket")
        with pytest.raises(StoreFailedError, match="create it, or correct the URL"):
            await opened(server).get("k")


async def test_credentials_of_a_role_are_fetched_anew_when_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with scripted_server() as server:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/credentials")
        token = "/dev/null"
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)
        fetched = 0

        def script(request: Request) -> Answer:
            nonlocal fetched
            if request.path != "/credentials":
                return Answer()
            fetched += 1
            expires = runtime.wall_from_ms(runtime.now_ms() + 1_000)
            told = {
                "AccessKeyId": f"KEY{fetched}",
                "SecretAccessKey": "secret",
                "Token": "token",
                "Expiration": expires.isoformat().replace("+00:00", "Z"),
            }
            return Answer(body=json.dumps(told).encode())

        server.script = script
        store = opened(server)
        await store.put("k", b"1")
        await runtime.sleep(0.3)
        await store.put("k", b"2")
        used = [request.headers["authorization"] for request in server.requests if request.body]
        assert len(used) == 2
        assert "KEY1/" in used[0]
        assert "KEY2/" in used[1]


async def test_credentials_that_cannot_be_had_are_told_as_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with scripted_server() as server:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.endpoint)
        server.fails(404)
        with pytest.raises(DeniedError, match="no credentials"):
            await opened(server).get("k")
