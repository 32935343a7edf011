"""The checker's rules, each broken once: it must say so, and must be silent where all is well."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from soak.ledger import Ledger, Place
from soak.payload import BrokenValueError, Mark, make_value, read_value

HERE = Place("topic", 0)
CAREFUL, PLAIN = 1, 2


class Scene:
    """A ledger, and values that are the same whenever they are made again."""

    def __init__(self, file: Path) -> None:
        self.ledger = Ledger(file)
        self.ledger.idempotent.add(CAREFUL)

    def sends(self, producer: int, count: int) -> list[bytes]:
        marks = [self.ledger.sends(producer, HERE) for _ in range(count)]
        return [value_of(mark) for mark in marks]

    def acks(self, producer: int, offsets: dict[int, int]) -> None:
        for sequence, offset in offsets.items():
            self.ledger.acks(HERE, Mark(producer, sequence), offset, 10)

    def judge(self, log: list[bytes], start: int = 0) -> str:
        end = start + len(log)
        self.ledger.judge(HERE, start, end, dict(enumerate(log, start)))
        return self.found

    @property
    def found(self) -> str:
        return "" if self.ledger.violation is None else str(self.ledger.violation)


def value_of(mark: Mark) -> bytes:
    return make_value(mark, random.Random(mark.sequence), 50)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "history.jsonl")
    yield made
    made.ledger.close()


def test_what_is_told_and_there_is_well(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 3)
    scene.acks(CAREFUL, {0: 0, 1: 1})
    assert scene.judge(log) == ""
    assert scene.ledger.repeated[HERE] == 0


def test_an_acknowledged_record_is_missing(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 3)
    scene.acks(CAREFUL, {0: 0, 1: 1, 2: 2})
    assert "was acknowledged there, the log holds nothing" in scene.judge(log[:2])


def test_an_acknowledged_record_is_replaced(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 1) + scene.sends(PLAIN, 1)
    scene.acks(CAREFUL, {0: 1})
    assert "was acknowledged there" in scene.judge(log)


def test_one_told_without_an_offset_is_nowhere(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 2)
    scene.acks(CAREFUL, {0: -1, 1: -1})
    assert "nowhere" in scene.judge(log[:1])


def test_below_the_start_nothing_is_missed(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 4)
    scene.acks(CAREFUL, {0: 0, 1: 1, 2: 2, 3: 3})
    assert scene.judge(log[2:], start=2) == ""


def test_a_hole(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 3)
    scene.ledger.judge(HERE, 0, 3, {0: log[0], 2: log[2]})
    assert "missing [1]" in scene.found


def test_an_idempotent_record_twice(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 2)
    assert "stands at [0, 2]" in scene.judge([*log, log[0]])


def test_a_plain_record_twice_is_counted(scene: Scene) -> None:
    log = scene.sends(PLAIN, 2)
    assert scene.judge([*log, *log]) == ""
    assert scene.ledger.repeated[HERE] == 2


@pytest.mark.parametrize("producer", [CAREFUL, PLAIN])
def test_records_out_of_order(scene: Scene, producer: int) -> None:
    log = scene.sends(producer, 2)
    assert "stands behind" in scene.judge(log[::-1])


def test_a_record_that_nobody_sent(scene: Scene) -> None:
    assert "never sent" in scene.judge([value_of(Mark(CAREFUL, 7))])


def test_a_record_that_changed(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 2)
    scene.ledger.shows(HERE, 0, log[0])
    scene.ledger.shows(HERE, 0, log[1])
    assert "a reader saw" in scene.found


def test_a_record_that_was_shown_and_is_gone(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 2)
    scene.ledger.shows(HERE, 1, log[1])
    assert "a reader saw" in scene.judge(log[:1])


def test_damage(scene: Scene) -> None:
    (value,) = scene.sends(CAREFUL, 1)
    scene.ledger.shows(HERE, 0, value[:20] + b"!" + value[21:])
    assert "checksum" in scene.found


def test_a_high_watermark_that_goes_back(scene: Scene) -> None:
    scene.ledger.tells_bounds(HERE, 0, 10)
    scene.ledger.tells_bounds(HERE, 0, 9)
    assert "high watermark went back from 10 to 9" in scene.found


def test_a_start_that_goes_back(scene: Scene) -> None:
    scene.ledger.tells_bounds(HERE, 5, 10)
    scene.ledger.tells_bounds(HERE, 4, 10)
    assert "log start went back" in scene.found


def test_a_log_that_ends_before_its_high_watermark(scene: Scene) -> None:
    log = scene.sends(CAREFUL, 1)
    scene.ledger.tells_bounds(HERE, 0, 2)
    assert "ends at 1, was 2" in scene.judge(log)


def test_a_duplicate_told_another_offset(scene: Scene) -> None:
    scene.sends(CAREFUL, 1)
    scene.acks(CAREFUL, {0: 3})
    scene.acks(CAREFUL, {0: 4})
    assert "acknowledged at 3, then at 4" in scene.found


def test_committed_offsets(scene: Scene) -> None:
    commits = scene.ledger.commits
    for offset in (5, 9, 12):
        commits.sends("g", HERE, offset)
    commits.acked("g", HERE, 9)
    least = commits.at_least("g", HERE)
    assert commits.wrong("g", HERE, least, 9) is None
    assert commits.wrong("g", HERE, least, 12) is None, "its answer was lost"
    assert "9 was committed, 5 is told" in str(commits.wrong("g", HERE, least, 5))
    assert "which nobody committed" in str(commits.wrong("g", HERE, least, 10))
    assert commits.wrong("g", HERE, least, -1) is not None


def test_values_tell_damage() -> None:
    value = value_of(Mark(3, 4))
    assert read_value(value)[0] == Mark(3, 4)
    for broken in (None, b"", value[:-1], value[1:], bytes(len(value))):
        with pytest.raises(BrokenValueError):
            read_value(broken)
