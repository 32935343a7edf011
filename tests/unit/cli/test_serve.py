"""`neve serve` around a stand-in for the broker: what it prints, when it ends and with what."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from neve import __version__
from neve.broker import heap_trimming
from neve.cli import main
from neve.cli import serve as serving
from neve.cluster.log import ReplacedError
from neve.errors import FencedError, InvalidError, NeveError, StoreFailedError, UnavailableError
from neve.serving.addresses import Address
from neve.settings import MIB, HttpSettings

FREE = ["--listen", "127.0.0.1:0", "--set", "http.listen="]


class FakeBroker:
    """Starts as it is told to, and notes how it was ended."""

    def __init__(self, settings: Any, advertised: Address) -> None:
        self.settings = settings
        self.advertised = advertised
        self.node_id = settings.broker.node_id
        self.node = SimpleNamespace(incarnation=7)
        self.ended: asyncio.Future[NeveError] = asyncio.get_running_loop().create_future()
        self.log: list[str] = []
        self.commits_all = True

    async def stop(self) -> bool:
        self.log.append("stopped")
        return self.commits_all

    async def abort(self) -> None:
        self.log.append("aborted")


class Scene:
    """What the stand-in does once it has started, and what came of it."""

    def __init__(self) -> None:
        self.broker: FakeBroker | None = None
        self.refusal: BaseException | None = None
        self.refusals_that_pass: list[BaseException] = []
        self.started: dict[str, Any] = {}
        self.then: Any = lambda broker: signal.raise_signal(signal.SIGTERM)
        self.hangs = False

    async def start(self, stack: Any, settings: Any, where: socket.socket, **about: Any) -> Any:
        self.started = {"port": where.getsockname()[1], **about}
        if self.refusals_that_pass:
            raise self.refusals_that_pass.pop()
        if self.refusal is not None:
            raise self.refusal
        if self.hangs:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        self.broker = FakeBroker(settings, about["advertised"])
        asyncio.get_running_loop().call_later(0.01, self.then, self.broker)
        return self.broker


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene()
    module = ModuleType("neve.broker.broker")
    module.Broker = scene  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "neve.broker.broker", module)
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    logged = (list(root.handlers), root.level, logging.raiseExceptions)
    thresholds = gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield scene
    root.handlers[:], root.level, logging.raiseExceptions = logged
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_without_flags_it_serves_a_folder_here(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *FREE]) == 0
    out = capsys.readouterr().out
    url = (tmp_path / "neve-data").as_uri()
    port = scene.started["port"]
    assert out == (
        f"neve {__version__} ready: kafka 127.0.0.1:{port}, http off, store {url}, node 1, "
        "incarnation 7\n"
    )
    assert scene.started["advertised"] == ("127.0.0.1", port)
    assert scene.started["puts_cost"] is False
    assert scene.broker is not None
    assert scene.broker.log == ["stopped"]


@pytest.mark.parametrize(("store", "bounds"), [("data", [256 * MIB]), ("memory://x", [])])
def test_memory_is_looked_after_unless_the_bucket_is_in_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, store: str, bounds: list[int]
) -> None:
    async def stay_below(bytes_max: int) -> None:
        seen.append(bytes_max)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(bytes_max)

    seen, ended = list[int](), list[int]()
    monkeypatch.setattr(heap_trimming, "stay_below", stay_below)
    flags = ["--store", store, "--set", f"broker.memory.bytes={256 * MIB}"]
    assert main(["serve", *FREE, *flags]) == 0
    assert seen == ended == bounds


def test_that_memory_is_not_looked_after_any_more_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stay_below(_: int) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(heap_trimming, "stay_below", stay_below)
    assert main(["serve", *FREE]) == 0, "it serves on"
    assert (
        "the check of broker.memory.bytes has failed and stopped: can't start"
        in capsys.readouterr().err
    )


def test_a_store_that_is_away_is_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "START_PAUSE_MS", 1)
    scene.refusals_that_pass = [UnavailableError("meta/log/", "503 SlowDown") for _ in range(3)]
    assert main(["serve", *FREE]) == 0
    assert scene.refusals_that_pass == []
    told = capsys.readouterr()
    assert told.err.count("503 SlowDown") == 3
    assert "ready" in told.out


def test_waiting_for_the_store_ends_with_a_signal(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        raise UnavailableError("meta/log/", "503 SlowDown")

    scene.start = refuse  # type: ignore[method-assign]
    assert main(["serve", *FREE]) == 0
    assert capsys.readouterr().out == ""


def test_flags_become_settings(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--store", "memory://x", "--advertise", "k.example:0", "--node-id", "4", "--rack", "a"]
    assert main(["serve", *FREE, *flags, "--set", "broker.connections.max=9"]) == 0
    assert scene.broker is not None
    given = scene.broker.settings.broker
    assert (given.node_id, given.rack, given.connections_max) == (4, "a", 9)
    port = scene.started["port"]
    assert f"advertised k.example:{port}, store memory://x, node 4" in capsys.readouterr().out


def test_the_http_port_is_in_the_line(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--listen", "127.0.0.1:0", "--set", "http.listen=127.0.0.1:0"]
    assert main(["serve", *flags]) == 0
    assert ", http 127.0.0.1:" in capsys.readouterr().out


def test_what_was_made_at_the_start_is_not_collected_again(scene: Scene) -> None:
    frozen: list[int] = []

    def look(_: object) -> None:
        frozen.append(gc.get_freeze_count())
        signal.raise_signal(signal.SIGINT)

    scene.then = look
    assert main(["serve", *FREE]) == 0
    assert frozen[0] > 1_000


@pytest.mark.parametrize(
    ("failure", "cause", "code", "words"),
    [
        (
            ReplacedError("started again"),
            None,
            3,
            "the broker (node 1) stops: started again. Each broker of a bucket needs a --node-id",
        ),
        (FencedError("full"), StoreFailedError("k", "disk full"), 4, "the store does not accept"),
        (NeveError("odd"), None, 1, "the broker has failed: odd"),
    ],
)
def test_a_broker_that_ends_says_why_and_exits_with_its_code(
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    failure: NeveError,
    cause: Exception | None,
    code: int,
    words: str,
) -> None:
    failure.__cause__ = cause
    scene.then = lambda broker: broker.ended.set_result(failure)
    assert main(["serve", *FREE]) == code
    assert scene.broker is not None
    assert scene.broker.log == ["aborted"]
    started, ended = capsys.readouterr().err.splitlines()
    assert " INFO neve.serve: broker starting " in started
    assert words in ended


def test_a_broker_that_was_declared_dead_starts_again_on_its_port(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "START_PAUSE_MS", 1)
    ports = []

    def then(broker: FakeBroker) -> None:
        ports.append(scene.started["port"])
        if len(ports) < 3:
            broker.ended.set_result(FencedError("declared dead"))
        else:
            signal.raise_signal(signal.SIGTERM)

    scene.then = then
    assert main(["serve", "--store", "memory://again", *FREE]) == 0
    assert ports == [ports[0]] * 3
    captured = capsys.readouterr()
    assert captured.err.count("the broker (node 1) stops: declared dead") == 2
    assert captured.out.count(" ready: ") == 3


def test_a_start_that_is_refused_is_one_line(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.refusal = InvalidError("the cluster log is not ours")
    assert main(["serve", *FREE]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[1:] == ["neve: the cluster log is not ours"]


def test_a_signal_while_it_starts_ends_it(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.hangs = True
    assert main(["serve", *FREE]) == 0
    assert capsys.readouterr().out == ""


def test_a_default_http_port_that_is_taken_is_replaced_by_a_free_one(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = HttpSettings().listen.split(":")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # another process has it already: as good
            stack.enter_context(socket.create_server((host, int(port))))
        assert main(["serve", "--listen", "127.0.0.1:0"]) == 0
        captured = capsys.readouterr()
        found = re.search(r"http 127\.0\.0\.1:(\d+),", captured.out)
        assert found is not None
        assert found[1] != port
        assert f"{host}:{port} is in use" in captured.err
        assert f"at 127.0.0.1:{found[1]}; set http.listen" in captured.err
        scene.started.clear()
        listen = f"--set=http.listen={host}:{port}"  # the same, but asked for
        assert main(["serve", "--listen", "127.0.0.1:0", listen]) == 1
        assert scene.started == {}


@pytest.mark.parametrize("name", ["broker.listen", "http.listen"])
def test_a_taken_port_is_told_before_the_bucket_is_touched(
    scene: Scene, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        free = {"broker.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", name: taken}
        code = main(["serve", *(f"--set={key}={value}" for key, value in free.items())])
    assert code == 1
    assert scene.started == {}
    err = capsys.readouterr().err
    assert err == (
        f"neve: cannot listen on {taken} ({name}): the port is in use: stop the other process, or "
        "choose another port\n"
    )


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--node-id", "-1"], 2, "broker.node.id"),
        (["--node-id", "one"], 2, "--node-id"),
        (["--listen", "9092"], 2, "broker.listen"),
        (["--listen", "foo"], 2, "broker.listen = 'foo' is not host:port"),
        (["--listen", "127.0.0.1:0", "--set", "http.listen=foo"], 2, "http.listen = 'foo'"),
        (["--advertise", "0.0.0.0:1", "--listen", "127.0.0.1:0"], 2, "broker.advertise"),
        (["--store", "ftp://x", *FREE], 2, "ftp://"),
        (["--store", "s3://a--use1-az4--x-s3", *FREE], 2, "wal.durability=zone"),
        (["--set", "wal.linger=5"], 2, "did you mean wal.linger.ms?"),
        (["--set", "store.endpoint=localhost:9000"], 2, "use http://host:port or https://"),
        (["--set", "tail.cache.bytes=1073741824"], 2, "broker.memory.bytes"),
        (["--config", "nowhere.toml"], 2, "nowhere.toml"),
        (["--rack", "a", "--set", "broker.rack=b"], 2, "twice"),
        (["--what"], 2, "--what"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flags_and_settings_are_named_in_one_line(
    scene: Scene, capsys: pytest.CaptureFixture[str], flags: list[str], code: int, words: str
) -> None:
    assert main(["serve", *flags]) == code
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert scene.started == {}


def test_a_stop_that_could_not_commit_all_is_told_by_its_exit_code(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    def then(broker: FakeBroker) -> None:
        broker.commits_all = False
        signal.raise_signal(signal.SIGTERM)

    scene.then = then
    assert main(["serve", *FREE]) == 1
    assert "not committed or not answered" in capsys.readouterr().err


def test_a_stop_that_does_not_end_is_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class LeftError(Exception):
        pass

    def leave(code: int) -> None:
        raise LeftError(code)

    async def endless(self: FakeBroker) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(FakeBroker, "stop", endless)
    monkeypatch.setattr(serving, "STOP_MARGIN_SECONDS", 0.05)
    with pytest.raises(LeftError, match="1"):
        main(["serve", *FREE, "--set", "broker.stop.grace.ms=0"])
    assert "not stopped within" in capsys.readouterr().err
