"""`neve serve` as soak tests need it: dying at a chosen store call, on a bad store, with a bug.

Run as a program it is a nursery of brokers. It loads the code once and forks a process for each
line of JSON it is given, so that a start costs what a start does and not what loading Python does.
Each child is a process of its own that runs `neve.cli.main`; it can be killed like any other. When
its input ends, the nursery kills what still runs, and ends.

Every store call that writes is noted in the `tally`, when it begins and when it has ended. Notes go
straight to the system, so they outlive a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from neve import runtime
from neve.broker.metrics.objects import kind_of
from neve.errors import UnavailableError
from neve.log.partition import Appended, PartitionLog
from neve.log.wal.object import SliceMeta
from neve.log.wal.pending import Commit, Flight
from neve.log.wal.writer import WalWriter
from neve.store import url as store_url
from neve.store.faults import Fault, Faults, FaultyStore
from neve.store.port import Buffer, Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")
HANG_POLL_SECONDS = 0.02


# -- the store ---------------------------------------------------------------------------------


class TalliedStore(Wrapper):
    """Notes every write as it begins and ends, and may end the process at one of them."""

    def __init__(self, inner: Store, tally: str, death: dict[str, Any] | None) -> None:
        super().__init__(inner)
        self._notes = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._death = death
        self._seen = 0

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation not in ("create", "put", "delete"):
            return await work()
        name = f"{call.operation} {kind_of(call.key)}"
        dies = self._dies(name)
        self._note(f"+ {name}")
        if dies == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            done = await work()
        except BaseException:
            self._note(f"! {name}")
            raise
        if dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        self._note(f"- {name}")
        return done

    def _dies(self, name: str) -> str | None:
        if self._death is None or self._death["call"] != name:
            return None
        self._seen += 1
        return self._death["when"] if self._seen == self._death["nth"] else None

    def _note(self, text: str) -> None:
        os.write(self._notes, f"{os.getpid()} {text}\n".encode())


class SteeredStore(FaultyStore):
    """A store whose faults are read from a file whenever that changes.

    The file holds probabilities by the names of `Faults`. `only`: they befall calls that begin like
    this, such as `create wal/`. `frozen`: calls wait until it is taken back; half of them then go
    through, and half were lost with their connections.
    """

    def __init__(self, inner: Store, control: Path) -> None:
        super().__init__(inner)
        self._control = control
        self._read_at = -1
        self._frozen = False
        self._only = ""

    def _steer(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            changed = self._control.stat().st_mtime_ns
            if changed != self._read_at:
                wanted = json.loads(self._control.read_text())
                self._read_at = changed
                self._frozen = bool(wanted.pop("frozen", False))
                self._only = wanted.pop("only", "")
                self.faults = Faults(**wanted)

    async def _begin(self, call: Call) -> Fault | None:
        self._steer()
        if self._frozen:
            while self._frozen:
                await runtime.sleep(HANG_POLL_SECONDS)
                self._steer()
            if runtime.chance().random() < 0.5:
                raise UnavailableError(call.key, "injected: the connection hung, and is gone")
        befalls = f"{call.operation} {call.key}".startswith(self._only)
        return await super()._begin(call) if befalls else None


def _wrap_store(spec: dict[str, Any]) -> None:
    open_store = store_url.open_store

    def opened(url: str, settings: Any) -> Store:
        store: Store = open_store(url, settings)
        if spec.get("control"):
            store = SteeredStore(store, Path(spec["control"]))
        return TalliedStore(store, spec["tally"], spec.get("death"))

    store_url.open_store = opened


# -- the network -------------------------------------------------------------------------------


def _connect_from(host: str) -> None:
    """Open connections to other brokers from this address, so that a proxy knows whose they are."""
    open_connection = asyncio.open_connection

    def opened(*given: Any, **named: Any) -> Any:
        return open_connection(*given, local_addr=(host, 0), **named)

    asyncio.open_connection = opened


# -- planted bugs ------------------------------------------------------------------------------


def ack_before_commit() -> None:
    """A producer is told yes as soon as its batch is in the buffer."""
    append = WalWriter.append

    def hasty(self: WalWriter, *given: Any, **named: Any) -> Commit:
        append(self, *given, **named)
        told = Commit()
        told.succeed()
        return told

    WalWriter.append = hasty  # type: ignore[method-assign]


def duplicate_before_original() -> None:
    """A batch that was seen before is told yes at once, although the first is on its way."""
    append = PartitionLog.append

    def hasty(self: PartitionLog, *given: Any, **named: Any) -> Appended:
        done = append(self, *given, **named)
        return done._replace(commit=self._long_committed()) if done.duplicate else done

    PartitionLog.append = hasty  # type: ignore[method-assign]


def failed_flush_tells_the_second() -> None:
    """A create that fails drops what it drained; who waited beside the first is told yes."""
    append = WalWriter.append

    def told_anyway(self: WalWriter, meta: SliceMeta, batch: Buffer, **named: Any) -> Commit:
        commit = append(self, meta, batch, **named)
        if self._waiting[-1].size_bytes == len(batch):
            return commit  # the first one of this flush
        told = Commit()
        commit.then(lambda _: told.succeed())
        return told

    async def tried_once(self: WalWriter, key: str, flight: Flight) -> None:
        await self._store.create(key, flight.data)

    WalWriter.append = told_anyway  # type: ignore[method-assign]
    WalWriter._create = tried_once  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    "ack before commit": ack_before_commit,
    "duplicate before original": duplicate_before_original,
    "failed flush tells the second": failed_flush_tells_the_second,
}


# -- processes ---------------------------------------------------------------------------------


def _die_with_parent() -> None:
    """Whatever becomes of a test run, it leaves nothing running."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _be_broker(spec: dict[str, Any]) -> None:
    """Turn a forked child into a broker; never returns."""
    code = 70
    try:
        os.setsid()
        _die_with_parent()
        for number, path in ((0, os.devnull), (1, spec["output"]), (2, spec["log"])):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            opened = os.open(path, flags, 0o644)
            os.dup2(opened, number)
            os.close(opened)
        runtime.chance().seed()  # or all children would draw the same
        _wrap_store(spec)
        if spec.get("host"):
            _connect_from(spec["host"])
        if spec.get("bug"):
            BUGS[spec["bug"]]()
        from neve.cli import main

        code = main(spec["argv"])
        sys.stdout.flush()
    finally:
        os._exit(code)


def _nursery() -> None:
    _die_with_parent()
    from neve.broker import broker, pages
    from neve.cli import application
    from neve.serving import http, logs

    assert all((broker, http, logs, pages, application))  # loaded for the children
    children: set[int] = set()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "start":
                child = os.fork()
                if child == 0:
                    _be_broker(order)
                children.add(child)
                answer: dict[str, Any] = {"pid": child}
            else:
                flags = 0 if order["do"] == "wait" else os.WNOHANG
                found, status = os.waitpid(order["pid"], flags)
                children.discard(found)
                ended = os.waitstatus_to_exitcode(status) if found else None
                answer = {"code": ended}
            print(json.dumps(answer), flush=True)
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


if __name__ == "__main__":
    _nursery()
