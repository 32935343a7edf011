"""When a read that finds listed objects gone resolves again, and how it gives up."""

from __future__ import annotations

from neve.errors import DamagedError, LostRangeError, NotFoundError, UnavailableError
from neve.log.reading.gone_objects import RESOLVES_MAX, GoneObjects, NowhereError, final_error


def missing(key: str) -> NotFoundError:
    return NotFoundError(key, "gone")


def test_an_object_that_is_gone_twice_ends_the_read() -> None:
    gone = GoneObjects()
    assert not gone.is_final(missing("a"))
    gone.note(missing("a"))
    assert not gone.is_final(missing("b"))
    assert gone.is_final(missing("a"))
    gone.clear()
    assert not gone.is_final(missing("a"))


def test_a_read_that_keeps_finding_other_objects_gone_ends_as_well() -> None:
    gone = GoneObjects()
    for number in range(RESOLVES_MAX):
        assert not gone.is_final(missing(str(number)))
        gone.note(missing(str(number)))
    assert gone.is_final(missing("another"))
    assert not gone.is_repeated(missing("another"))


def test_a_read_gives_up_with_what_is_lost_damaged_or_moved() -> None:
    lost = final_error("t-0", NowhereError([(3, 5), (7, 8)]), still_listed=False)
    assert isinstance(lost, LostRangeError)
    assert "t-0: neither a segment nor a stream has offsets 3 to 4, 7 to 7" in str(lost)
    damaged = final_error("t-0", missing("a"), still_listed=True)
    assert isinstance(damaged, DamagedError)
    assert damaged.reason == "it is listed but missing"
    moved = final_error("t-0", missing("a"), still_listed=False)
    assert isinstance(moved, UnavailableError)
    assert "t-0 is moved faster than it is read" in str(moved)
