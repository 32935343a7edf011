"""The messages between brokers, and clients that pretend to be one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest

from neve import runtime
from neve.broker.broker import Broker
from neve.broker.peer_channel import PEER_REQUEST_BYTES_MAX
from neve.broker.router import Router
from neve.cluster.node import Node
from neve.cluster.peer_auth import NONCE_BYTES, KeyPair, PeerAuthentication, Session
from neve.cluster.peer_link import PeerError
from neve.protocol.codes import ErrorCode
from neve.protocol.frames import RequestHeader, decode_response_header, request_frame
from neve.protocol.messages import APIS
from neve.protocol.peers import PEER_APIS
from neve.protocol.peers.handshake import HANDSHAKE
from neve.protocol.peers.notify import NOTIFY
from neve.protocol.peers.ping import PING
from neve.protocol.peers.probe import PROBE
from neve.protocol.peers.pull import PULL
from neve.protocol.peers.release import RELEASE
from neve.settings import Settings
from support.two_brokers import two_running_brokers
from support.wire import Wire

REFUSED, OTHER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.STALE_BROKER_EPOCH
SEALED = [api for api in PEER_APIS if api is not HANDSHAKE]


@contextlib.asynccontextmanager
async def quiet_brokers() -> AsyncIterator[tuple[Broker, Broker]]:
    """Two brokers that send each other nothing by themselves."""
    async with two_running_brokers() as (one, two):
        for broker in (one, two):
            await broker.membership.close()
        yield one, two


class Side(NamedTuple):
    """What one end knows of the other."""

    authentication: PeerAuthentication
    node: Node


def side(broker: Broker) -> Side:
    return Side(broker.peer_authentication, broker.node)


def requests(broker: Broker) -> dict[Any, Any]:
    """A request of each kind that changes or reveals something."""
    topic = broker.node.cluster.state.topic("t")
    assert topic is not None
    wanted = RELEASE.Request.Topic(topic_id=topic.id_bytes, partitions=[0, 1])
    return {
        PING: PING.Request(position=1_000_000, watches=True, hears=True),
        PROBE: PROBE.Request(suspect=broker.node.incarnation),
        RELEASE: RELEASE.Request(topics=[wanted]),
        PULL: PULL.Request(topics=[PULL.Request.Topic(topic_id=topic.id_bytes, partitions=[0])]),
        NOTIFY: NOTIFY.Request(end=1_000_000),
    }


def frame(api: Any, request: Any, number: int = 7) -> bytes:
    return b"".join(request_frame(api, 0, number, None, request.encode(0)))


async def exchange(wire: Wire, data: bytes) -> memoryview:
    """Send bytes; the frame that comes back, without its length."""
    wire.writer.write(data)
    async with asyncio.timeout(10):
        size = int.from_bytes(await wire.reader.readexactly(4), "big")
        return memoryview(await wire.reader.readexactly(size))


async def answer(wire: Wire, api: Any, data: bytes, session: Session | None = None) -> Any:
    """The response to a frame. With a session, it has to be authentic."""
    content = await exchange(wire, data)
    if session is not None:
        content = session.open_response(content)
    _, at = decode_response_header(api, 0, content)
    return api.Response.decode(content, 0, at)


def handshake(sender: Side, target: Side, nonce: bytes) -> Any:
    return HANDSHAKE.Request(
        cluster_id=target.node.cluster.state.cluster_id,
        sender=sender.node.incarnation,
        target=target.node.incarnation,
        nonce=nonce,
    )


async def begin(wire: Wire, sender: Side, target: Side) -> Session:
    """What a broker does first on a connection."""
    nonce = runtime.token(NONCE_BYTES)
    response = await wire.ask(HANDSHAKE, 0, handshake(sender, target, nonce))
    assert response.error_code == 0
    row = sender.node.cluster.state.brokers[target.node.incarnation]
    return sender.authentication.session_to(row, nonce, response.nonce)


@contextlib.asynccontextmanager
async def unchanged(broker: Broker) -> AsyncIterator[None]:
    """Nothing that a message asks for happens meanwhile."""
    membership = broker.membership
    with (
        mock.patch.object(membership, "pinged") as pinged,
        mock.patch.object(membership, "refuses") as refuses,
        mock.patch.object(membership, "release") as release,
        mock.patch.object(membership, "pull") as pull,
        mock.patch.object(membership, "notified") as notified,
    ):
        yield
    for method in (pinged, refuses, release, pull, notified):
        assert not method.called


def test_every_message_of_brokers_but_the_handshake_is_sealed() -> None:
    router = Router()
    for api in (*PEER_APIS, *APIS.values()):
        header = RequestHeader(api.key, api.min_version, 1, None, 0)
        route = router.find(header)
        assert route is not None
        assert route.sealed == (api in SEALED), api


# --- what is meant to work


async def test_brokers_ping_probe_and_release() -> None:
    async with two_running_brokers() as (one, two):
        target = two.node.cluster.state.brokers[one.node.incarnation]
        for _ in range(3):
            answered = await two.peers.ping(target, 5)
            assert answered.position == one.node.cluster.view.position
        assert not await two.peers.probe(target, target, 5)
        topic = two.node.cluster.state.topic("t")
        assert topic is not None
        assert await two.peers.release(target, [(topic.topic_id, 1)], 5) == 1
        await two.node.cluster.refresh()
        leaders = [row.leader for row in two.node.cluster.state.topics[topic.topic_id].partitions]
        assert leaders == [one.node.incarnation, two.node.incarnation]


async def test_a_broker_is_known_before_its_registration_was_read() -> None:
    async with quiet_brokers() as (one, _):
        node = await Node.start(one.stack.store, Settings(), node_id=3, host="h", port=1)
        three = Side(PeerAuthentication(node.cluster, node.incarnation, node.key_pair), node)
        one.node.cluster.seen = mock.Mock()  # type: ignore[method-assign]
        assert node.incarnation not in one.node.cluster.state.brokers
        async with Wire.to(one) as wire:
            session = await begin(wire, three, side(one))
            data = session.seal_request(frame(PING, PING.Request(position=9)))
            assert (await answer(wire, PING, data, session)).error_code == 0
        assert node.incarnation in one.node.cluster.state.brokers
        await node.abort()


async def test_a_broker_that_is_over_finds_out_from_an_authentic_answer() -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire:
        session = await begin(wire, side(two), side(one))
        await one.node.cluster.expire(two.node.incarnation)
        async with unchanged(one):
            for api, request in requests(one).items():
                data = session.seal_request(frame(api, request))
                response = await answer(wire, api, data, session)
                assert response.error_code == OTHER
                if api is PING:
                    assert response.position == one.node.cluster.view.position


# --- clients that pretend to be a broker


@pytest.mark.parametrize("api", SEALED, ids=lambda api: api.name)
async def test_a_client_without_a_session_is_refused(api: Any) -> None:
    async with quiet_brokers() as (one, _), Wire.to(one) as wire, unchanged(one):
        for data in (
            frame(api, requests(one)[api]),
            frame(api, requests(one)[api]) + b"",
            len(bytes(10)).to_bytes(4, "big") + api.key.to_bytes(2, "big") + bytes(6) + b"\xff\xff",
        ):
            assert (await answer(wire, api, data)).error_code == REFUSED


@pytest.mark.parametrize("api", SEALED, ids=lambda api: api.name)
async def test_a_client_that_guesses_has_one_attempt_per_handshake(api: Any) -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire:
        session = await begin(wire, side(two), side(one))
        guessing = Session(runtime.token(32))
        data = frame(api, requests(one)[api])
        async with unchanged(one):
            assert (await answer(wire, api, guessing.seal_request(data))).error_code == REFUSED
            session.seal_request(data)  # the number of the guess
            valid = session.seal_request(data)
            assert (await answer(wire, api, valid)).error_code == REFUSED, "the session is over"
        again = await begin(wire, side(two), side(one))
        ping = again.seal_request(frame(PING, PING.Request()))
        assert (await answer(wire, PING, ping, again)).error_code == 0


async def test_a_message_counts_once_on_its_connection() -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire:
        session = await begin(wire, side(two), side(one))
        data = session.seal_request(frame(PING, PING.Request()))
        assert (await answer(wire, PING, data, session)).error_code == 0
        async with unchanged(one):
            assert (await answer(wire, PING, data)).error_code == REFUSED


@pytest.mark.parametrize("api", SEALED, ids=lambda api: api.name)
async def test_a_recorded_connection_cannot_be_repeated(api: Any) -> None:
    async with quiet_brokers() as (one, two):
        nonce = runtime.token(NONCE_BYTES)
        hello = handshake(side(two), side(one), nonce)
        async with Wire.to(one) as wire:
            response = await wire.ask(HANDSHAKE, 0, hello)
            row = two.node.cluster.state.brokers[one.node.incarnation]
            session = two.peer_authentication.session_to(row, nonce, response.nonce)
            # It was sent but did not arrive, so that its number was not used either.
            data = session.seal_request(frame(api, requests(one)[api]))
        async with Wire.to(one) as wire, unchanged(one):
            assert (await wire.ask(HANDSHAKE, 0, hello)).error_code == 0
            assert (await answer(wire, api, data)).error_code == REFUSED


@pytest.mark.parametrize("api", SEALED, ids=lambda api: api.name)
async def test_a_message_cannot_be_reflected_or_sent_to_another_broker(api: Any) -> None:
    """The client is between two brokers, and passes the nonces of both on."""
    async with quiet_brokers() as (one, two), Wire.to(one) as first, Wire.to(two) as second:
        nonce = runtime.token(NONCE_BYTES)
        response = await first.ask(HANDSHAKE, 0, handshake(side(two), side(one), nonce))
        row = two.node.cluster.state.brokers[one.node.incarnation]
        session = two.peer_authentication.session_to(row, nonce, response.nonce)
        data = session.seal_request(frame(api, requests(one)[api]))
        # To its sender, as if the broker for which it is meant had sent it.
        with mock.patch("neve.broker.handlers.peers.runtime.token", return_value=response.nonce):
            reply = await second.ask(HANDSHAKE, 0, handshake(side(one), side(two), nonce))
        assert reply.nonce == response.nonce, "the worst case"
        async with unchanged(two):
            assert (await answer(second, api, data)).error_code == REFUSED
        # A broker takes no handshake that is meant for another one.
        reply = await second.ask(HANDSHAKE, 0, handshake(side(two), side(one), nonce))
        assert (reply.error_code, reply.nonce) == (OTHER, b"")
        elsewhere = handshake(side(one), side(two), nonce)
        elsewhere.cluster_id = "another cluster"
        reply = await second.ask(HANDSHAKE, 0, elsewhere)
        assert (reply.error_code, reply.nonce) == (OTHER, b"")


async def test_a_handshake_of_an_unknown_process_is_refused() -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire, unchanged(one):
        for sender in (-1, 0, 1_000_000, 2**63 - 1):
            hello = handshake(side(two), side(one), bytes(NONCE_BYTES))
            hello.sender = sender
            response = await wire.ask(HANDSHAKE, 0, hello)
            assert (response.error_code, response.nonce) == (REFUSED, b"")
            ping = frame(PING, PING.Request())
            assert (await answer(wire, PING, ping)).error_code == REFUSED
        hello = handshake(side(two), side(one), b"short")
        assert (await wire.ask(HANDSHAKE, 0, hello)).error_code == REFUSED


async def test_a_message_that_is_too_large_is_refused_unread() -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire:
        session = await begin(wire, side(two), side(one))
        request = requests(one)[RELEASE]
        request.topics[0].partitions = [0] * (PEER_REQUEST_BYTES_MAX // 4)
        data = session.seal_request(frame(RELEASE, request))
        async with unchanged(one):
            with mock.patch.object(Session, "open_request") as opened:
                assert (await answer(wire, RELEASE, data)).error_code == REFUSED
        assert not opened.called


async def test_attempts_are_logged_once_per_cause(caplog: pytest.LogCaptureFixture) -> None:
    async with quiet_brokers() as (one, two), Wire.to(one) as wire:
        for _ in range(5):
            await answer(wire, PING, frame(PING, PING.Request()))
            hello = handshake(side(two), side(one), bytes(NONCE_BYTES))
            hello.sender = 99_999
            await wire.ask(HANDSHAKE, 0, hello)
            session = await begin(wire, side(two), side(one))
            await answer(wire, PING, frame(PING, PING.Request()) + b"")
            del session
        found = [row for row in caplog.records if "a message" in row.getMessage()]
        assert all(row.levelno == logging.WARNING for row in found)
        assert len(found) == 3, [row.getMessage() for row in found]


async def test_many_handshakes_cost_one_key_agreement() -> None:
    async with quiet_brokers() as (one, two):
        await begin_on(one, two)
        with mock.patch.object(KeyPair, "shared_secret") as work:
            for _ in range(20):
                await begin_on(one, two)
        assert not work.called


async def begin_on(target: Broker, sender: Broker) -> None:
    async with Wire.to(target) as wire:
        response = await wire.ask(HANDSHAKE, 0, handshake(side(sender), side(target), bytes(16)))
        assert response.error_code == 0


# --- processes that pretend to be a broker's target


async def _closes(frame: bytes, number: int) -> bytes:
    return b""


async def _reflects(frame: bytes, number: int) -> bytes:
    return frame


async def _answers_without_a_mac(frame: bytes, number: int) -> bytes:
    response = (
        HANDSHAKE.Response(nonce=bytes(NONCE_BYTES)) if number == 0 else PING.Response(position=5)
    )
    content = frame[8:12] + b"".join(response.encode(0))
    return len(content).to_bytes(4, "big") + content


async def _answers_with_a_wrong_mac(frame: bytes, number: int) -> bytes:
    answered = await _answers_without_a_mac(frame, number)
    return answered if number == 0 else Session(bytes(32)).seal_response(answered)


@pytest.mark.parametrize(
    "reply",
    [_closes, _reflects, _answers_without_a_mac, _answers_with_a_wrong_mac],
    ids=lambda reply: reply.__name__,
)
async def test_what_another_process_answers_is_no_answer(
    reply: Callable[[bytes, int], Awaitable[bytes]],
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for number in range(2):
                head = await reader.readexactly(4)
                content = await reader.readexactly(int.from_bytes(head, "big"))
                if not (data := await reply(head + content, number)):
                    break
                writer.write(data)
        writer.close()

    async with quiet_brokers() as (one, two):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        row = one.node.cluster.state.brokers[two.node.incarnation]
        target = type(row)(
            node_id=row.node_id,
            incarnation=row.incarnation,
            session=row.session,
            inflight=row.inflight,
            at_ms=row.at_ms,
            host=host,
            port=port,
            public_key=row.public_key,
        )
        connection = one.peers._connection(target)
        with pytest.raises(PeerError):
            async with asyncio.timeout(5):
                await connection.call(PING, PING.Request())
        await connection.closed()
        server.close()
        await server.wait_closed()
