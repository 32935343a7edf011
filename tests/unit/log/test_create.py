"""Creating a key until its fate is known."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    StoreFailedError,
    UnavailableError,
)
from neve.log import create
from neve.log.create import decide
from support.scripted_store import ScriptedStore, in_simulation, refuse

KEY = "wal/x"


@in_simulation
async def test_a_create_that_succeeds_is_one_call() -> None:
    store = ScriptedStore()
    await decide(store, KEY, b"mine")
    assert [call.operation for call in store.calls] == ["create"]
    assert store.data(KEY) == b"mine"


@in_simulation
async def test_a_key_that_is_taken_is_decided() -> None:
    store = ScriptedStore()
    await store.put(KEY, b"theirs")
    await decide(store, KEY, b"mine")
    assert store.data(KEY) == b"theirs"


@pytest.mark.parametrize("error", [ConflictError, ExistsError, UnavailableError])
def test_an_error_with_nothing_landed_is_tried_again(error: type[Exception]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEY, refuse(error), times=3)
        await decide(store, KEY, b"mine")
        assert store.data(KEY) == b"mine"
        assert store.asked("create") == 4

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("error", [ConflictError, ExistsError, UnavailableError])
def test_an_error_after_it_took_effect_is_found_out_by_reading(error: type[Exception]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEY, refuse(error, after=True))
        await decide(store, KEY, b"mine")
        assert store.asked("create") == 1

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_read_that_fails_decides_nothing() -> None:
    store = ScriptedStore()
    store.when("create", KEY, refuse(UnavailableError, after=True))
    store.when("get_range", KEY, refuse(UnavailableError))
    await decide(store, KEY, b"mine")
    assert store.asked("create") == 2
    assert store.data(KEY) == b"mine"


@pytest.mark.parametrize("error", [DeniedError, StoreFailedError])
def test_what_does_not_pass_is_raised_at_once(error: type[Exception]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        store.when("create", KEY, refuse(error))
        with pytest.raises(error):
            await decide(store, KEY, b"mine")
        assert store.asked("create") == 1

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_an_attempt_ends_when_the_key_no_longer_matters() -> None:
    store = ScriptedStore()
    store.when("create", KEY, refuse(ConflictError), times=None)
    asked = 0

    async def passed() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    await decide(store, KEY, b"mine", passed)
    assert store.asked("create") == 3
    assert KEY not in store.listed()


@in_simulation
async def test_a_fate_that_cannot_be_learnt_is_told_after_a_bounded_time() -> None:
    store = ScriptedStore()
    store.when("create", KEY, refuse(ConflictError), times=None)
    started = runtime.monotonic()
    with pytest.raises(UnavailableError, match=KEY):
        await decide(store, KEY, b"mine")
    taken = runtime.monotonic() - started
    longest_pause = create.UNDECIDED_PAUSE_MS_MAX / 1000
    assert create.UNDECIDED_SECONDS_MAX < taken < create.UNDECIDED_SECONDS_MAX + longest_pause


@in_simulation
async def test_pauses_grow_so_that_a_store_in_trouble_is_left_alone() -> None:
    store = ScriptedStore()
    store.when("create", KEY, refuse(ConflictError), times=None)
    with pytest.raises(UnavailableError):
        await decide(store, KEY, b"mine")
    assert store.asked("create") < 50
