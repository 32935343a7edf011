"""A store in memory whose calls a test can delay, fail, apply late or corrupt.

Scripts are tried in the order in which they were added; the first that matches a call handles it.
A script is used once unless it has `times=None`. Every call is recorded before its script runs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from neve import runtime
from neve.errors import UnavailableError
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[[], Awaitable[Any]]
Action = Callable[[Call, Work], Awaitable[Any]]


def in_simulation(test: Callable[P, Coroutine[Any, Any, None]], seed: int = 1) -> Callable[P, None]:
    """Run an `async def test_…` in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        runtime.simulate(test(*args, **kwargs), seed=seed)

    return run


class KilledError(Exception):
    """The process that made this call was killed: none of its code may continue."""


@dataclass
class Script:
    operation: str
    key: str | Callable[[str], bool]
    action: Action
    times: int | None = 1

    def fits(self, call: Call) -> bool:
        if self.operation != call.operation or self.times == 0:
            return False
        return self.key(call.key) if callable(self.key) else self.key == call.key


class ScriptedStore(Wrapper):
    def __init__(
        self, bucket: MemoryBucket | None = None, *, latency: Callable[[], float] | None = None
    ) -> None:
        self.memory = MemoryStore(bucket)
        super().__init__(self.memory)
        self.latency = latency
        self.scripts: list[Script] = []
        self.calls: list[Call] = []
        self.kill_at: int | None = None
        self._late: list[asyncio.Task[Any]] = []

    @property
    def bucket(self) -> MemoryBucket:
        return self.memory.bucket

    def listed(self, prefix: str = "") -> list[str]:
        return [key for key in self.bucket.keys if key.startswith(prefix)]

    def data(self, key: str) -> bytes:
        return self.bucket.objects[key][0]

    def asked(self, operation: str, key: str | None = None) -> int:
        return sum(
            call.operation == operation and (key is None or call.key == key) for call in self.calls
        )

    def when(
        self,
        operation: str,
        key: str | Callable[[str], bool],
        action: Action,
        *,
        times: int | None = 1,
    ) -> None:
        self.scripts.append(Script(operation, key, action, times))

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if self.kill_at is not None and len(self.calls) >= self.kill_at:
            raise KilledError(f"killed before {call}")
        self.calls.append(call)
        if self.latency is not None:
            await runtime.sleep(self.latency())
        for script in self.scripts:
            if script.fits(call):
                if script.times is not None:
                    script.times -= 1
                result: T = await script.action(call, work)
                return result
        return await work()

    def late(self, seconds: float, error: Exception | None = None) -> Action:
        """Raise an error now; the call takes effect later."""

        async def action(call: Call, work: Work) -> Any:
            async def land() -> None:
                await runtime.sleep(seconds)
                await asyncio.wait([runtime.spawn(_quiet(work))])

            self._late.append(runtime.spawn(land()))
            raise error or UnavailableError(call.key, "timed out")

        return action


async def _quiet(work: Work) -> None:
    try:
        await work()
    except Exception:
        return


def refuse(error: type[Exception], *, after: bool = False) -> Action:
    """Fail with a store error, before or after the call took effect."""

    async def action(call: Call, work: Work) -> Any:
        if after:
            await _quiet(work)
        raise error(call.key, "scripted")

    return action


def hold(release: asyncio.Event, reached: asyncio.Event | None = None) -> Action:
    """Wait until released, then make the call."""

    async def action(call: Call, work: Work) -> Any:
        if reached is not None:
            reached.set()
        await release.wait()
        return await work()

    return action


def slow(seconds: float) -> Action:
    async def action(call: Call, work: Work) -> Any:
        await runtime.sleep(seconds)
        return await work()

    return action


def first(step: Callable[[], Awaitable[Any]]) -> Action:
    """Run `step` just before the call takes effect."""

    async def action(call: Call, work: Work) -> Any:
        await step()
        return await work()

    return action


def then(step: Callable[[], Awaitable[Any]]) -> Action:
    """Run `step` just after the call took effect, before its result is returned."""

    async def action(call: Call, work: Work) -> Any:
        result = await work()
        await step()
        return result

    return action


def changed(change: Callable[[bytes], bytes]) -> Action:
    """Return changed bytes from a read: torn or damaged."""

    async def action(call: Call, work: Work) -> Any:
        return memoryview(change(bytes(await work())))

    return action
