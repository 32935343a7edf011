"""Frames made bad: what can happen to bytes by accident, and what somebody might try on purpose.

Everything is drawn from one generator, so a run replays from its seed. `Fuzz` says of each frame
what it expects the broker to do with it, so that frames behind one that closes its connection are
not sent in vain.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from neve.errors import NeveError
from neve.protocol.frames import decode_request_header
from neve.protocol.messages import APIS
from neve.records.batch import HEADER_BYTES
from neve.records.crc import crc32c
from soak.odd_requests import odd
from soak.recorded_traffic import Corpus

PRODUCE, FETCH, JOIN, SYNC = 0, 1, 11, 14
_WAITS = frozenset((JOIN, SYNC))
_ABSURD_INT32 = (-(2**31), -2, -1, 0, 1, 2**16, 2**24, 2**31 - 1)
_ABSURD_INT16 = (-(2**15), -2, -1, 0, 127, 2**15 - 1)
_HUGE_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\x7f",
)
_FRAME_BYTES_MAX = 200_000
# The header alone: from here on there is nothing left to spoil.
_SMALLEST_BYTES = 15


class Fate(Enum):
    """What the broker is expected to do."""

    ANSWERS = "answers"
    WAITS = "waits"
    """It may hold up what comes behind."""
    CLOSES = "closes"
    SILENT = "silent"
    """There is nothing to answer: half a frame."""


class Fuzzed(NamedTuple):
    data: bytes
    api_key: int
    fate: Fate


# -- what can be done to a frame ---------------------------------------------------------------


def flip_bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(4, len(data))] ^= 1 << chance.randrange(8)


def cut_off(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(5, len(data)) :]


def drop_a_stretch(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(4, len(data))
    del data[at : at + chance.randrange(1, 16)]


def double_a_stretch(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(4, len(data))
    stretch = data[at : at + chance.randrange(1, 64)]
    data[at:at] = stretch * chance.choice((1, 1, 2, 50))


def make_a_length_absurd(data: bytearray, chance: random.Random) -> None:
    if len(data) < 20:
        flip_bits(data, chance)
        return
    at = chance.randrange(12, len(data) - 4)
    if chance.random() < 0.5:
        struct.pack_into(">i", data, at, chance.choice(_ABSURD_INT32))
    else:
        struct.pack_into(">h", data, at, chance.choice(_ABSURD_INT16))


def make_a_varint_huge(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(min(14, len(data) - 1), len(data))
    data[at : at + 1] = chance.choice(_HUGE_VARINTS)


def change_the_version(data: bytearray, chance: random.Random) -> None:
    near = chance.randrange(-1, 18)
    struct.pack_into(">h", data, 6, near if chance.random() < 0.9 else chance.randrange(-9, 99))


def change_the_api(data: bytearray, chance: random.Random) -> None:
    known = chance.random() < 0.9
    key = chance.choice(list(APIS)) if known else chance.randrange(-(2**15), 2**15)
    struct.pack_into(">h", data, 4, key)


def change_the_correlation(data: bytearray, chance: random.Random) -> None:
    struct.pack_into(">i", data, 8, chance.randrange(-(2**31), 2**31))


def fill_at_random(data: bytearray, chance: random.Random) -> None:
    data[12:] = chance.randbytes(len(data) - 12)


def spoil_records(data: bytearray, chance: random.Random) -> None:
    """Flip bits of a batch; half of the time its checksum is made right again."""
    at = _batch_in(data)
    if at is None:
        flip_bits(data, chance)
        return
    size = struct.unpack_from(">i", data, at + 8)[0] + 12
    end = min(at + size, len(data))
    for _ in range(chance.choice((1, 2, 5))):
        data[chance.randrange(at, end)] ^= 1 << chance.randrange(8)
    if chance.random() < 0.5:
        struct.pack_into(">I", data, at + 17, crc32c(memoryview(data)[at + 21 : end]))


def _batch_in(data: bytearray) -> int | None:
    """Where a record batch begins: where its magic, and a length that fits, are found."""
    if struct.unpack_from(">h", data, 4)[0] != PRODUCE:
        return None
    for at in range(14, len(data) - HEADER_BYTES):
        if data[at + 16] == 2 and struct.unpack_from(">i", data, at + 8)[0] == len(data) - at - 12:
            return at
    for at in range(14, len(data) - HEADER_BYTES):
        length = struct.unpack_from(">i", data, at + 8)[0]
        if data[at + 16] == 2 and 49 <= length <= len(data) - at - 12:
            return at
    return None


def leave_it(data: bytearray, chance: random.Random) -> None:
    del data, chance


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bits,
    flip_bits,
    cut_off,
    drop_a_stretch,
    double_a_stretch,
    make_a_length_absurd,
    make_a_varint_huge,
    change_the_version,
    change_the_api,
    change_the_correlation,
    fill_at_random,
    spoil_records,
    spoil_records,
    leave_it,
)


class Fuzz:
    """An endless stream of bad frames, all APIs in turn."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._corpus = corpus
        self._keys = sorted(corpus)
        self._chance = random.Random(seed)
        self._turn = 0

    def next(self) -> Fuzzed:
        """A frame mutated from one of the API whose turn it is."""
        chance = self._chance
        # Produce has the most to get wrong: records.
        self._turn += 1
        key = PRODUCE if self._turn % 8 == 0 else self._keys[self._turn % len(self._keys)]
        frame = chance.choice(self._corpus[key])
        drawn = chance.random()
        if drawn < 0.6:
            made = odd(frame, chance)
            if made is not None:
                return Fuzzed(made, key, self._fate(made))
        data = bytearray(frame)
        if drawn > 0.98:
            return Fuzzed(self._spliced(data), key, Fate.CLOSES)
        return self._mutated(data, key)

    def _mutated(self, data: bytearray, key: int) -> Fuzzed:
        chance = self._chance
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            if len(data) > _SMALLEST_BYTES:
                chance.choice(MUTATIONS)(data, chance)
        del data[_FRAME_BYTES_MAX:]
        drawn = chance.random()
        if drawn < 0.01:
            return self._wrong_length(data, key)
        struct.pack_into(">i", data, 0, len(data) - 4)
        if drawn < 0.02:
            return Fuzzed(bytes(data[: chance.randrange(1, len(data))]), key, Fate.SILENT)
        return Fuzzed(bytes(data), key, self._fate(data))

    def _wrong_length(self, data: bytearray, key: int) -> Fuzzed:
        """The frame's own length is not its length: most are refused, some wait for more."""
        length = self._chance.choice((*_ABSURD_INT32, len(data) - 5, len(data) + 5))
        struct.pack_into(">i", data, 0, length)
        waits = length > len(data) - 4 and length < 2**20
        return Fuzzed(bytes(data), key, Fate.SILENT if waits else Fate.CLOSES)

    def _spliced(self, data: bytearray) -> bytes:
        """The head of one frame on the tail of another, and what is left of a third."""
        others = [self._chance.choice(self._corpus[self._chance.choice(self._keys)])]
        cut = self._chance.randrange(4, len(data))
        return bytes(data[:cut]) + others[0][self._chance.randrange(len(others[0])) :] + others[0]

    def _fate(self, data: bytes | bytearray) -> Fate:
        try:
            header = decode_request_header(memoryview(data), 4)
            api = APIS.get(header.api_key)
            if api is None or not api.min_version <= header.api_version <= api.max_version:
                return Fate.ANSWERS if header.api_key == 18 else Fate.CLOSES
            request = api.Request.decode(memoryview(data), header.api_version, header.end)
        except NeveError:
            return Fate.CLOSES
        if header.api_key == PRODUCE and request.acks == 0:
            return Fate.CLOSES
        return Fate.WAITS if header.api_key in _WAITS else Fate.ANSWERS
