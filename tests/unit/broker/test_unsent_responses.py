"""Answers that clients have yet to take: who waits, who is closed, who is left alone."""

from __future__ import annotations

from neve import runtime
from neve.broker.unsent_responses import SMALL_BYTES, STALLED_SECONDS, UnsentResponses
from support.scripted_store import in_simulation

MIB = 1 << 20


class Client:
    """A connection's answers, without the connection."""

    def __init__(self, unsent: UnsentResponses) -> None:
        self._unsent = unsent
        self.counted_bytes = 0
        self.moves = False
        self.dropped = False

    def hold(self, size: int) -> None:
        changed_by, self.counted_bytes = size - self.counted_bytes, size
        self._unsent.changed(self, changed_by)

    def has_read_more(self) -> bool:
        return self.moves

    def drop(self) -> None:
        self.dropped = True
        self.hold(0)


@in_simulation
async def test_past_the_bound_those_who_took_nothing_for_longest_are_closed() -> None:
    unsent = UnsentResponses(4 * MIB)
    clients = [Client(unsent) for _ in range(5)]
    for client in clients[:4]:
        client.hold(MIB)
        await runtime.sleep(1)
    clients[1].moves = True
    clients[4].hold(MIB)
    assert [each.dropped for each in clients] == [True, False, True, False, False]
    assert unsent.share.used == 3 * MIB


@in_simulation
async def test_one_answer_that_is_larger_than_all_is_sent() -> None:
    unsent = UnsentResponses(MIB)
    client = Client(unsent)
    client.hold(10 * MIB)
    assert not client.dropped


@in_simulation
async def test_those_who_wait_get_room_once_others_take_nothing_for_a_while() -> None:
    unsent = UnsentResponses(4 * MIB)
    deaf = Client(unsent)
    deaf.hold(4 * MIB)
    waits = runtime.spawn(unsent.reserve(MIB, client_keeps_up=False))
    await runtime.sleep(STALLED_SECONDS / 2)
    unsent.free_for_waiting()
    assert not deaf.dropped
    await runtime.sleep(STALLED_SECONDS)
    unsent.free_for_waiting()
    assert deaf.dropped
    await waits
    unsent.release(MIB)
    assert unsent.share.used == unsent.bytes_making == 0


@in_simulation
async def test_small_answers_never_wait_and_a_part_is_kept_for_those_who_read() -> None:
    unsent = UnsentResponses(4 * MIB)
    Client(unsent).hold(3 * MIB)
    assert not unsent.try_reserve(MIB, client_keeps_up=False)
    assert unsent.room_bytes(client_keeps_up=False) == 0
    assert unsent.try_reserve(MIB, client_keeps_up=True)
    assert not unsent.try_reserve(MIB, client_keeps_up=True)
    assert unsent.try_reserve(SMALL_BYTES, client_keeps_up=False)
