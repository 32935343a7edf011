"""Work beside the loop: lanes of their own, and an interpreter that is given up soon."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from neve import runtime

BUSY_THREADS = 64


async def test_work_in_a_lane_does_not_wait_behind_other_work() -> None:
    release = threading.Event()
    lane = runtime.ThreadPool(1, "of-its-own")
    busy = [runtime.spawn(runtime.offload(release.wait)) for _ in range(BUSY_THREADS)]
    try:
        await asyncio.sleep(0)
        name = await asyncio.wait_for(lane.offload(lambda: threading.current_thread().name), 10)
    finally:
        release.set()
        await asyncio.wait(busy)
        lane.close()
    assert name.startswith("of-its-own")


async def test_what_was_begun_ends_after_its_lane_was_closed() -> None:
    release = threading.Event()
    lane = runtime.ThreadPool(1, "closing")
    begun = runtime.spawn(lane.offload(release.wait))
    await asyncio.sleep(0)
    lane.close()
    with pytest.raises(RuntimeError):
        await lane.offload(print)
    release.set()
    assert await begun


async def test_what_work_raises_is_raised_to_who_waits() -> None:
    lane = runtime.ThreadPool(1, "failing")
    for offload in (runtime.offload, lane.offload):
        with pytest.raises(ZeroDivisionError):
            await offload(lambda: 1 // 0)
    lane.close()


def test_a_simulation_has_no_threads() -> None:
    async def scenario() -> set[str]:
        lane = runtime.ThreadPool(1, "never-used")
        names = {await offload(_thread_name) for offload in (runtime.offload, lane.offload)}
        lane.close()
        return names

    assert runtime.simulate(scenario(), seed=1) == {threading.current_thread().name}


def _thread_name() -> str:
    return threading.current_thread().name


def test_threads_give_the_interpreter_up_sooner_once_they_are_told() -> None:
    code = (
        "import sys; from neve import runtime\n"
        "before = sys.getswitchinterval(); runtime.favour_the_loop()\n"
        "print(sys.getswitchinterval() < before / 5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
