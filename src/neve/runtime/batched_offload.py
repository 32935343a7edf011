"""Small blocking calls that come together, done in one turn of a thread.

To hand a call to a thread and its result back takes longer than to read a small file does, and the
threads take the interpreter from each other meanwhile. What is asked for in one go of the loop is
therefore done in as few turns as it takes, and what comes while all threads are busy shares the
next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from neve.runtime.context import simulated
from neve.runtime.threads import offload

T = TypeVar("T")
P = ParamSpec("P")

TURNS_MAX = 4
"""Turns at once. A call that hangs holds up its own turn alone."""
CALLS_WORTH_A_TURN = 8


class _Asked(NamedTuple):
    """A call, and who waits for what it gives."""

    call: Callable[[], Any]
    answer: asyncio.Future[Any]


_Outcome = tuple[Any, BaseException | None]


class BatchedOffload:
    """For calls that each take next to no time, and seldom more."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: list[_Asked] = []
        self._turns = 0
        self._will_start = False

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work beside the loop, with others; inline in simulation."""
        if simulated():
            return await offload(work, *args, **kwargs)
        loop = self._on_this_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.append(_Asked(lambda: work(*args, **kwargs), answer))
        if not self._will_start and self._turns < TURNS_MAX:
            self._will_start = True
            loop.call_soon(self._start)  # others may ask before this go of the loop is over
        return await answer

    def _on_this_loop(self) -> asyncio.AbstractEventLoop:
        """Turns of a loop that was closed never end: another one begins without them."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._asked, self._turns, self._will_start = loop, [], 0, False
        return loop

    def _start(self) -> None:
        self._will_start = False
        loop = self._on_this_loop()
        while self._asked and self._turns < TURNS_MAX:
            share = -(-len(self._asked) // (TURNS_MAX - self._turns))
            count = max(CALLS_WORTH_A_TURN, share)
            taken, self._asked = self._asked[:count], self._asked[count:]
            self._turns += 1
            turn = loop.run_in_executor(None, _done, [each.call for each in taken])
            turn.add_done_callback(lambda turn, taken=taken: self._ended(turn, taken))  # type: ignore[misc]

    def _ended(self, turn: asyncio.Future[list[_Outcome]], taken: list[_Asked]) -> None:
        self._turns -= 1
        for each, (result, failure) in zip(taken, turn.result(), strict=True):
            if each.answer.done():
                continue  # nobody waits for it any more
            if failure is None:
                each.answer.set_result(result)
            else:
                each.answer.set_exception(failure)
        self._start()


def _done(calls: list[Callable[[], Any]]) -> list[_Outcome]:
    return [_outcome(call) for call in calls]


def _outcome(call: Callable[[], Any]) -> _Outcome:
    try:
        return call(), None
    except Exception as failure:  # it is told to who asked, and to nobody else of this turn
        return None, failure
