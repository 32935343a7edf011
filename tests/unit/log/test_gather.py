"""Many buffers in one."""

from __future__ import annotations

import random

import pytest

from neve.log.gather import RUN_BYTES, SMALL_BYTES, gather


@pytest.mark.parametrize("seed", range(8))
def test_parts_lie_one_behind_the_other(seed: int) -> None:
    chance = random.Random(seed)
    sizes = (0, 1, 61, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, RUN_BYTES)
    parts = [chance.randbytes(chance.choice(sizes)) for _ in range(chance.randrange(60))]
    views = [memoryview(bytearray(part)) if chance.random() < 0.5 else part for part in parts]
    assert gather(views) == b"".join(parts)


def test_what_was_gathered_cannot_be_changed() -> None:
    assert gather([b"abc", b"def"]).readonly
