import asyncio
import platform
import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest

from neve import runtime


async def _story() -> list[tuple[float, int]]:
    seen: list[tuple[float, int]] = []

    async def walker(name: int) -> None:
        for _ in range(20):
            await runtime.sleep(runtime.chance().random())
            seen.append((runtime.monotonic(), name))

    await runtime.gather(*(walker(name) for name in range(5)))
    return seen


def test_the_same_seed_tells_the_same_story():
    assert runtime.simulate(_story(), seed=7) == runtime.simulate(_story(), seed=7)
    assert runtime.simulate(_story(), seed=7) != runtime.simulate(_story(), seed=8)


def test_an_hour_passes_at_once():
    async def nap() -> float:
        await runtime.sleep(3600)
        return runtime.monotonic()

    assert runtime.simulate(nap(), seed=1) == pytest.approx(3600)


def test_a_run_that_can_never_go_on_is_an_error():
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(runtime.DeadlockError):
        runtime.simulate(stuck(), seed=1)


def test_a_run_in_which_time_stands_still_is_an_error():
    async def rushes() -> None:
        while True:
            await runtime.sleep(0)

    with pytest.raises(runtime.SpinError, match="time stands still"):
        runtime.simulate(rushes(), seed=1)


async def test_gather_ends_the_others_when_one_fails():
    ended: list[str] = []

    async def waits() -> None:
        try:
            await runtime.sleep(60)
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await runtime.gather(waits(), fails())
    assert ended == ["cancelled"]


async def test_one_ahead_makes_an_item_while_the_one_before_is_in_use():
    made: list[int] = []
    closed: list[str] = []
    pause = 0.0

    async def source() -> AsyncGenerator[int, None]:
        try:
            for number in range(4):
                made.append(number)
                yield number
                await runtime.sleep(pause)
            raise ValueError("spoilt")
        finally:
            closed.append("closed")

    ahead = runtime.one_ahead(source())
    for number in range(4):
        assert await anext(ahead) == number
        await runtime.sleep(0.01)
        assert made == list(range(min(number + 2, 4)))
    with pytest.raises(ValueError, match="spoilt"):
        await anext(ahead)

    ahead = runtime.one_ahead(source())
    assert await anext(ahead) == 0
    pause = 60
    await runtime.sleep(0.01)
    await ahead.aclose()  # while the next one is being made
    assert closed == ["closed", "closed"]


async def test_first_takes_the_first_success_and_raises_the_last_failure():
    async def after(seconds: float, result: int) -> int:
        await runtime.sleep(seconds)
        if result < 0:
            raise ValueError(str(result))
        return result

    assert await runtime.first(after(0.0, -1), after(0.01, 2), after(5, 3)) == 2
    with pytest.raises(ValueError, match="-2"):
        await runtime.first(after(0.0, -1), after(0.01, -2))


async def test_tasks_tell_of_a_failure_and_end_together():
    told: list[BaseException] = []

    async def fails() -> None:
        raise ValueError("background")

    tasks = runtime.Tasks(on_failure=told.append)
    tasks.start(fails())
    tasks.start(runtime.sleep(60))
    await runtime.sleep(0)
    await tasks.close()
    assert [str(failure) for failure in told] == ["background"]
    assert len(tasks) == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_memory_that_was_freed_is_handed_out_again_without_new_pages() -> None:
    program = """
import resource
from neve import runtime
assert runtime.keep_freed_memory()
def faults_of(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        kept = [bytes(4 << 20) for _ in range(8)]
        for index, block in enumerate(kept):
            kept[index] = b"".join([block[: 2 << 20], block[2 << 20 :]])
        del kept, block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, later = faults_of(1), faults_of(4)
assert later < first / 2, (first, later)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
