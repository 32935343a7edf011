"""Whatever bytes come, decoding gives a message or MalformedError, soon, and in little memory."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from neve.protocol.errors import MalformedError
from neve.protocol.frames import decode_request_header
from neve.protocol.messages import APIS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.produce import PRODUCE
from support.protocol_samples import Message, every_message, messages

quick = settings(
    max_examples=3,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EDGES = [0, 1, 0x7F, 0x80, 0xFF]


def turning_points() -> list[Message]:
    """Every API in its oldest and newest version, and in those around its first flexible one."""
    return [
        each
        for each in every_message()
        if each.version
        in (
            each.api.min_version,
            each.api.flexible_from - 1,
            each.api.flexible_from,
            each.api.max_version,
        )
    ]


def attempt(message: Message, data: bytes) -> Any:
    """What the bytes decode to; None where they are refused as they should be."""
    with contextlib.suppress(MalformedError):
        return message.decode(data)
    return None


def mutations(written: bytes, chance: random.Random) -> list[bytes]:
    found = []
    for _ in range(30):
        spoiled = bytearray(written or b"\0")
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.choice([*EDGES, chance.randrange(256)])
        at = chance.randrange(len(spoiled))
        if chance.random() < 0.3:
            spoiled[at:at] = chance.randbytes(chance.randint(1, 8))
        elif chance.random() < 0.3:
            del spoiled[at : at + chance.randint(1, 8)]
        found.append(bytes(spoiled))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("message", turning_points(), ids=repr)
@quick
@given(data=st.data())
def test_spoiled_and_truncated_messages(message: Message, data: st.DataObject) -> None:
    written = message.encode(data.draw(messages(message)))
    for spoiled in mutations(written, random.Random(len(written))):
        attempt(message, spoiled)
    sizes = range(len(written)) if len(written) < 200 else range(0, len(written), 37)
    for size in sizes:
        with pytest.raises(MalformedError):
            message.decode(written[:size])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(every_message()), st.binary(max_size=60))
def test_any_bytes(message: Message, data: bytes) -> None:
    attempt(message, data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(APIS)), st.integers(0, 20), st.binary(max_size=40))
def test_any_bytes_as_a_header(key: int, version: int, rest: bytes) -> None:
    start = key.to_bytes(2, "big") + version.to_bytes(2, "big")
    with contextlib.suppress(MalformedError):
        decode_request_header(memoryview(start + rest))


def peak_bytes(message: Message, data: bytes) -> int:
    attempt(message, data)  # what is compiled is not counted
    tracemalloc.start()
    try:
        attempt(message, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


PER_BYTE_MAX = 200
"""A struct of two bytes is some hundred in memory."""


@pytest.mark.parametrize("count", [1000, 2**31 - 1, 2**32 - 2])
@pytest.mark.parametrize("follows", [0, 2000])
@pytest.mark.parametrize("filler", [0, 1, 2, 0xFF])
@pytest.mark.parametrize("api", [PRODUCE, FETCH, METADATA], ids=repr)
def test_absurd_counts_take_no_memory(api: Any, count: int, follows: int, filler: int) -> None:
    """A count at every place of a message, whatever follows it."""
    message = Message(api, "Request", api.max_version)
    varint = bytearray()
    while count > 127:
        varint.append(count & 127 | 128)
        count >>= 7
    varint.append(count)
    start = message.encode(api.Request())
    for at in range(len(start)):
        data = start[:at] + bytes(varint) + bytes([filler]) * follows
        assert peak_bytes(message, data) < 20_000 + PER_BYTE_MAX * len(data)


@pytest.mark.parametrize("message", turning_points(), ids=repr)
def test_full_bytes_take_no_memory(message: Message) -> None:
    for filler in (b"\x7f", b"\xff\xff\xff\xff\x0f", b"\x02", b"\x01", b"\0\0\0\x7f"):
        data = filler * 400
        assert peak_bytes(message, data) < 20_000 + PER_BYTE_MAX * len(data)


@settings(max_examples=100, deadline=None)
@given(
    message=st.sampled_from([each for each in every_message() if each.flexible]),
    data=st.data(),
)
def test_unknown_tags_are_passed_over(message: Message, data: st.DataObject) -> None:
    """A newer peer's tagged fields at the end of the message, after those that are known."""
    value = data.draw(messages(message))
    bare = message.cls(
        **{
            each.name: getattr(value, each.name)
            for each in message.schema.fields
            if each.tag is None
        }
    )
    written = message.encode(bare)
    assert written[-1] == 0
    unknown = data.draw(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
    section = bytearray([len(unknown)])
    for tag, content in enumerate(unknown, 100):
        section.append(tag)
        size = len(content)
        section += bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        section += content
    assert message.decode(written[:-1] + bytes(section)) == bare
    with pytest.raises(MalformedError):
        message.decode(written[:-1] + bytes(section[:-1]))
