"""One bound for a broker's memory, and what it is divided into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import InvalidError
from neve.settings import KIB, MIB, SettingDefinition, Settings, check_memory, declared, load
from neve.settings.memory import PARTS, PROCESS_BYTES, STATE, WHOLE

KNOWN = declared()


def size_of(settings: Settings, name: str) -> int:
    about: SettingDefinition = KNOWN[name]
    size: int = getattr(getattr(settings, about.group), about.field)
    return size


def test_the_defaults_fill_the_default_bound() -> None:
    assert sum(KNOWN[name].default for name in PARTS) + PROCESS_BYTES == KNOWN[WHOLE].default
    check_memory(Settings())
    check_memory(load())


def test_the_default_given_in_words_changes_nothing() -> None:
    assert load(flags={WHOLE: KNOWN[WHOLE].default}) == load()


@given(st.integers(KNOWN[WHOLE].minimum, 64 * 1024 * MIB))
def test_parts_that_are_not_set_have_their_share_of_any_bound(whole: int) -> None:
    settings = load(flags={WHOLE: whole})
    check_memory(settings)
    assert settings.segment.bytes * 2 <= settings.maintenance.tiering_memory_bytes
    assert settings.prefetch.bytes <= whole - PROCESS_BYTES
    left = (whole - PROCESS_BYTES) / (KNOWN[WHOLE].default - PROCESS_BYTES)
    for name in PARTS + STATE:
        assert size_of(settings, name) == pytest.approx(KNOWN[name].default * left, abs=64 * KIB)
    partitions = settings.cluster.partitions_max
    assert partitions == pytest.approx(KNOWN["cluster.partitions.max"].default * left, abs=2)


@given(st.integers(0, 100 * MIB), st.integers(1 * MIB, 64 * MIB))
def test_state_has_what_the_tail_and_the_rest_leave(tail: int, wal: int) -> None:
    parts = {WHOLE: 512 * MIB, "tail.cache.bytes": tail, "wal.buffer.bytes": wal}
    settings = load(flags=parts)
    held = sum(size_of(settings, name) for name in PARTS) + PROCESS_BYTES
    if held <= settings.broker.memory_bytes:
        check_memory(settings)


@pytest.mark.parametrize("state", ["cluster.partitions.max", "offsets.memory.bytes"])
def test_state_that_does_not_fit_is_refused_with_what_would_do(state: str) -> None:
    much = {state: KNOWN[state].default * 20}
    with pytest.raises(InvalidError, match=r"of state beyond tail\.cache\.bytes") as raised:
        check_memory(load(flags=much))
    needed = int(str(raised.value).rsplit(" ", 1)[1])
    check_memory(load(flags={**much, WHOLE: needed}))


def test_what_is_set_is_kept() -> None:
    settings = load(flags={WHOLE: 256 * MIB, "tail.cache.bytes": 0, "segment.bytes": 8 * MIB})
    assert settings.cache.tail_bytes == 0
    assert settings.segment.bytes == 8 * MIB


@pytest.mark.parametrize(
    ("given", "needed_mib"),
    [({"tail.cache.bytes": 400 * MIB}, 824), ({"segment.bytes": 128 * MIB}, 640)],
)
def test_parts_that_do_not_fit_are_refused_with_what_would_do(
    given: dict[str, int], needed_mib: int
) -> None:
    with pytest.raises(InvalidError) as raised:
        check_memory(load(flags=given))
    message = str(raised.value)
    assert message.startswith("broker.memory.bytes is 512 MiB, but ")
    assert f"need {needed_mib} MiB" in message
    assert f"set broker.memory.bytes to at least {needed_mib * MIB}" in message
    all_parts = {name: KNOWN[name].default for name in PARTS} | given
    check_memory(load(flags={**all_parts, WHOLE: needed_mib * MIB}))
