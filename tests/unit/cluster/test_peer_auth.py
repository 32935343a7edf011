"""Sessions between brokers: a frame is valid once, in its place, between two live processes."""

from __future__ import annotations

import struct
from unittest import mock

import pytest

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.peer_auth import (
    MAC_BYTES,
    NONCE_BYTES,
    REFRESH_BURST,
    REFRESH_PAUSE_SECONDS,
    KeyPair,
    PeerAuthentication,
    PeerAuthenticationError,
    Session,
)
from support.scripted_store import ScriptedStore, in_simulation, slow

ONE, TWO, THREE = 1, 2, 3
NONCE, OTHER_NONCE = b"1" * NONCE_BYTES, b"2" * NONCE_BYTES


class Process:
    """A registered process, as other processes see it in the cluster log."""

    def __init__(self, store: ScriptedStore) -> None:
        self.cluster = ClusterLog(store)
        self.key_pair = KeyPair.generate()
        self.incarnation = -1

    async def register(self, node_id: int, public_key: bytes | None = None) -> PeerAuthentication:
        key = self.key_pair.public_key if public_key is None else public_key
        await self.cluster.init()
        self.incarnation = await self.cluster.register(node_id, inflight=4, public_key=key)
        return PeerAuthentication(self.cluster, self.incarnation, self.key_pair)


async def processes(store: ScriptedStore, count: int = 2) -> list[PeerAuthentication]:
    """Processes with the incarnations 1, 2, …, each of which has read of all others."""
    found = [Process(store) for _ in range(count)]
    made = [await each.register(at) for at, each in enumerate(found, 1)]
    for each in found:
        await each.cluster.refresh()
    assert [each.incarnation for each in found] == list(range(1, count + 1))
    return made


def frame(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def received(data: bytes) -> memoryview:
    (size,) = struct.unpack_from(">i", data)
    assert size == len(data) - 4
    return memoryview(data)[4:]


async def session_between(
    sender: PeerAuthentication,
    target: PeerAuthentication,
    numbers: tuple[int, int] = (ONE, TWO),
    nonces: tuple[bytes, bytes] = (NONCE, OTHER_NONCE),
) -> tuple[Session, Session]:
    row = sender._cluster.state.brokers[numbers[1]]
    return (
        sender.session_to(row, *nonces),
        await target.session_of(numbers[0], *nonces),
    )


def refused(session: Session, data: bytes, *, response: bool = False) -> bool:
    """Whether a frame is not taken as the next request, or as the response to the last one."""
    try:
        (session.open_response if response else session.open_request)(received(data))
    except PeerAuthenticationError as error:
        return error.cause == "wrong MAC"
    return False


# --- what is meant to work


@in_simulation
async def test_two_live_processes_talk_in_both_directions() -> None:
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    for number in range(3):
        request = here.seal_request(frame(f"request {number}"))
        assert bytes(there.open_request(received(request))) == f"request {number}".encode()
        response = there.seal_response(frame(f"response {number}"))
        assert bytes(here.open_response(received(response))) == f"response {number}".encode()


def test_a_seed_replays_the_keys_and_another_has_others() -> None:
    async def public_key() -> bytes:
        return KeyPair.generate().public_key

    first, again, other = (runtime.simulate(public_key(), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@in_simulation
async def test_the_secret_is_computed_once_per_live_process() -> None:
    """X25519 is the expensive part, and any client can begin a handshake."""
    store = ScriptedStore()
    _, two, three = await processes(store, 3)
    with mock.patch.object(KeyPair, "shared_secret", autospec=True, return_value=bytes(32)) as work:
        for _ in range(50):
            await two.session_of(ONE, NONCE, OTHER_NONCE)
            with pytest.raises(PeerAuthenticationError):
                await two.session_of(99, NONCE, OTHER_NONCE)
        assert work.call_count == 1
        await three._cluster.expire(ONE)
        await two._cluster.refresh()
        await two.session_of(THREE, NONCE, OTHER_NONCE)
    assert sorted(two._secrets) == [THREE], "those of processes that are over are dropped"


# --- attacks


@in_simulation
async def test_a_request_is_valid_once() -> None:
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    request = here.seal_request(frame("move"))
    there.open_request(received(request))
    assert refused(there, request)


@in_simulation
async def test_requests_cannot_change_places() -> None:
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    here.seal_request(frame("first"))
    assert refused(there, here.seal_request(frame("second")))


@in_simulation
async def test_a_response_answers_only_its_request() -> None:
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    there.open_request(received(here.seal_request(frame("first"))))
    response = there.seal_response(frame("done"))
    here.open_response(received(response))
    here.seal_request(frame("second"))
    assert refused(here, response, response=True)


@in_simulation
async def test_a_recorded_request_is_refused_on_any_other_connection() -> None:
    """Whoever repeats the handshake as well gets another nonce from the receiver."""
    one, two = await processes(ScriptedStore())
    here, _ = await session_between(one, two)
    request = here.seal_request(frame("move"))
    assert refused(await two.session_of(ONE, NONCE, b"3" * NONCE_BYTES), request)
    assert refused(await two.session_of(ONE, b"3" * NONCE_BYTES, OTHER_NONCE), request)


@in_simulation
async def test_a_recorded_response_is_refused_on_any_other_connection() -> None:
    """Whoever answers with the receiver's nonce of an earlier connection meets another nonce."""
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    there.open_request(received(here.seal_request(frame("ping"))))
    response = there.seal_response(frame("alive"))
    target = one._cluster.state.brokers[TWO]
    later = one.session_to(target, b"3" * NONCE_BYTES, OTHER_NONCE)
    later.seal_request(frame("ping"))
    assert refused(later, response, response=True)


@in_simulation
async def test_a_message_that_is_reflected_to_its_sender_is_refused() -> None:
    one, two = await processes(ScriptedStore())
    here, there = await session_between(one, two)
    request = here.seal_request(frame("move"))
    assert refused(here, request, response=True), "as the answer to itself"
    # The client passes the nonces on, so that both connections have the same.
    assert refused(await one.session_of(TWO, NONCE, OTHER_NONCE), request), "as a request"
    there.open_request(received(request))
    assert refused(there, there.seal_response(frame("done"))), "a response as the next request"


@in_simulation
async def test_a_message_for_another_process_is_refused() -> None:
    one, two, three = await processes(ScriptedStore(), 3)
    here, _ = await session_between(one, two)
    request = here.seal_request(frame("move"))
    assert refused(await three.session_of(ONE, NONCE, OTHER_NONCE), request)
    assert refused(await two.session_of(THREE, NONCE, OTHER_NONCE), request)


@in_simulation
async def test_a_later_process_of_a_node_refuses_what_was_meant_for_the_earlier_one() -> None:
    """Even if it had the same key pair: the session names incarnations."""
    store = ScriptedStore()
    one, two = await processes(store)
    here, _ = await session_between(one, two)
    again = Process(store)
    again.key_pair = two._key_pair
    later = await again.register(2)
    assert refused(
        await later.session_of(ONE, NONCE, OTHER_NONCE), here.seal_request(frame("move"))
    )
    assert not later.is_meant(again.cluster.state.cluster_id, TWO)
    assert later.is_meant(again.cluster.state.cluster_id, again.incarnation)
    assert not later.is_meant("another cluster", again.incarnation)


@in_simulation
async def test_the_same_incarnations_of_another_cluster_have_another_key() -> None:
    one, two = await processes(ScriptedStore())
    here, _ = await session_between(one, two)
    away = [Process(ScriptedStore()) for _ in range(2)]
    away[1].key_pair, keys = two._key_pair, (one._key_pair, two._key_pair)
    store = ScriptedStore()
    copies = [Process(store) for _ in keys]
    for process, key_pair in zip(copies, keys, strict=True):
        process.key_pair = key_pair
    _, other = [await each.register(at) for at, each in enumerate(copies, 1)]
    assert refused(
        await other.session_of(ONE, NONCE, OTHER_NONCE), here.seal_request(frame("move"))
    )


@in_simulation
async def test_every_byte_of_a_frame_is_covered() -> None:
    one, two = await processes(ScriptedStore())
    here, _ = await session_between(one, two)
    request = here.seal_request(frame("release it"))
    for at in range(4, len(request)):
        changed = bytearray(request)
        changed[at] ^= 1
        assert refused(await two.session_of(ONE, NONCE, OTHER_NONCE), bytes(changed)), at
    for cut in range(1, len(request) - 4):
        short = struct.pack(">i", len(request) - 4 - cut) + request[4:-cut]
        assert refused(await two.session_of(ONE, NONCE, OTHER_NONCE), short), cut


@in_simulation
async def test_whoever_has_another_key_than_the_registered_one_is_refused() -> None:
    one, two = await processes(ScriptedStore())
    stranger = PeerAuthentication(one._cluster, ONE, KeyPair.generate())
    here, there = await session_between(stranger, two)
    assert refused(there, here.seal_request(frame("move")))
    assert refused(there, struct.pack(">i", MAC_BYTES) + runtime.token(MAC_BYTES))


@pytest.mark.parametrize("public_key", [b"", b"short", bytes(32)], ids=["none", "short", "zero"])
def test_a_process_without_a_valid_key_is_refused(public_key: bytes) -> None:
    """A zero key would make the secret zero for everybody."""

    async def main() -> None:
        store = ScriptedStore()
        (one,) = await processes(store, 1)
        other = await Process(store).register(2, public_key)
        await one._cluster.refresh()
        with pytest.raises(PeerAuthenticationError, match="public key"):
            await one.session_of(TWO, NONCE, OTHER_NONCE)
        with pytest.raises(PeerAuthenticationError, match="public key"):
            one.session_to(other._cluster.state.brokers[TWO], NONCE, OTHER_NONCE)

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("size", [0, NONCE_BYTES - 1, NONCE_BYTES + 1])
def test_a_nonce_of_another_size_is_refused(size: int) -> None:
    async def main() -> None:
        one, two = await processes(ScriptedStore())
        with pytest.raises(PeerAuthenticationError, match="nonce"):
            await two.session_of(ONE, bytes(size), OTHER_NONCE)
        with pytest.raises(PeerAuthenticationError, match="nonce"):
            one.session_to(one._cluster.state.brokers[TWO], NONCE, bytes(size))

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_process_that_is_over_begins_no_session() -> None:
    one, two = await processes(ScriptedStore())
    topic = await one._cluster.create_topic("t", 1)
    await one._cluster.lead(ONE, [(topic.topic_id, 0)])
    await two._cluster.expire(ONE)
    assert ONE in two._cluster.state.brokers, "its stream is still needed"
    with pytest.raises(PeerAuthenticationError, match="not live"):
        await session_between(one, two)


# --- registrations that were not read yet


@in_simulation
async def test_a_registration_that_was_not_read_yet_is_read_first() -> None:
    store = ScriptedStore()
    (one,) = await processes(store, 1)
    two = await Process(store).register(2)
    assert not one.is_live(TWO)
    here, there = await session_between(two, one, (TWO, ONE))
    there.open_request(received(here.seal_request(frame("ping"))))


@in_simulation
async def test_unknown_senders_cause_few_reads_and_old_ones_none() -> None:
    store = ScriptedStore()
    one, two = await processes(store)

    async def knock(sender: int, times: int = 1) -> int:
        before = store.asked("list")
        for _ in range(times):
            await runtime.sleep(0.001)
            outcomes = await runtime.gather(*(_outcome(two, sender + at) for at in range(20)))
            assert set(outcomes) == {"unknown sender"}
        return store.asked("list") - before

    at_once = await knock(100)
    assert at_once <= 2, "one for the first, one for all that came since it began"
    assert at_once + await knock(100, times=100) == REFRESH_BURST
    await runtime.sleep(REFRESH_PAUSE_SECONDS)
    assert await knock(10**15, times=100) == 1
    await runtime.sleep(REFRESH_PAUSE_SECONDS)
    assert await knock(-20) == 0, "no registration has such a number"
    await one._cluster.expire(TWO)
    await one._cluster.refresh()
    before = store.asked("list")
    assert await _outcome(one, TWO) == "unknown sender"
    assert store.asked("list") == before, "the number was read: it is over"


async def _outcome(target: PeerAuthentication, sender: int) -> str:
    try:
        await target.session_of(sender, NONCE, OTHER_NONCE)
    except PeerAuthenticationError as error:
        return error.cause
    return "session"


@in_simulation
async def test_a_store_that_hangs_delays_a_handshake_for_a_short_time() -> None:
    store = ScriptedStore()
    one, _ = await processes(store)
    store.when("get", lambda _: True, slow(60), times=None)
    began = runtime.monotonic()
    assert await _outcome(one, 100) == "unknown sender"
    assert runtime.monotonic() - began < 5
