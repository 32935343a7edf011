"""Connections to other brokers: pings, probes, notifications, requests to release partitions.

A connection to a broker is opened when it is first needed, and kept for pings. Another one is kept
for the notifications of followers. Requests that may take long have a connection of their own, so
that they delay no ping. Each connection begins with a handshake, and each message after it carries
a MAC.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias, TypeVar

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.peer_auth import NONCE_BYTES, PeerAuthentication, Session
from neve.cluster.peer_link import PeerError, PeerRefusedError, PingAnswer
from neve.cluster.state import BrokerRegistration, PartitionKey
from neve.errors import NeveError
from neve.protocol.compiler import Api, Message
from neve.protocol.frames import decode_response_header, request_frame
from neve.protocol.peers.handshake import HANDSHAKE, HandshakeRequest
from neve.protocol.peers.notify import NOTIFY, NotifyRequest
from neve.protocol.peers.ping import PING, PingRequest
from neve.protocol.peers.probe import PROBE, ProbeRequest
from neve.protocol.peers.pull import PULL, PullRequest
from neve.protocol.peers.release import RELEASE, ReleaseRequest

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

RESPONSE_BYTES_MAX = 64 * 1024
ANNOUNCE_SECONDS = 1.0
VERSION = 0

_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class PeerTraffic:
    """Bytes on connections that this broker opened. Each connection is counted at one end only."""

    sent_bytes: int = 0
    received_bytes: int = 0


class PeerConnections:
    """The connections of one broker to the others. `close` it at the end."""

    def __init__(
        self, cluster: ClusterLog, incarnation: int, authentication: PeerAuthentication
    ) -> None:
        self._cluster = cluster
        self._incarnation = incarnation
        self._authentication = authentication
        self._kept: dict[int, _Connection] = {}  # for pings
        self._notified: dict[int, _Connection] = {}
        self._tasks = runtime.Tasks(on_failure=lambda _: None)
        self._announcing: set[int] = set()
        self.traffic = PeerTraffic()

    async def ping(
        self,
        target: BrokerRegistration,
        seconds: float,
        *,
        watches: bool = False,
        hears: bool = False,
    ) -> PingAnswer:
        request = PingRequest(
            position=self._cluster.view.position,
            watches=watches,
            hears=hears,
        )
        response = await self._call(self._kept_in(self._kept, target), PING, request, seconds)
        if response.error_code:
            self._cluster.seen(response.position)  # it may say that this process is over
        _check(response.error_code, target)
        return PingAnswer(response.position, response.dropped)

    async def probe(
        self, target: BrokerRegistration, suspect: BrokerRegistration, seconds: float
    ) -> bool:
        request = ProbeRequest(suspect=suspect.incarnation)
        response = await self._call_once(target, PROBE, request, seconds)
        _check(response.error_code, target)
        return response.refused

    async def release(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        topics = [
            ReleaseRequest.Topic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic(wanted)
        ]
        request = ReleaseRequest(topics=topics)
        response = await self._call_once(target, RELEASE, request, seconds)
        _check(response.error_code, target)
        return response.released

    async def pull(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        topics = [
            PullRequest.Topic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in _by_topic(wanted)
        ]
        request = PullRequest(position=self._cluster.view.position, topics=topics)
        response = await self._call_once(target, PULL, request, seconds)
        _check(response.error_code, target)
        return response.pulled

    async def notify(self, target: BrokerRegistration, end: int, seconds: float) -> int:
        connection = self._kept_in(self._notified, target)
        response = await self._call(connection, NOTIFY, NotifyRequest(end=end), seconds)
        _check(response.error_code, target)
        return response.position

    def announce(self, targets: Collection[BrokerRegistration]) -> None:
        for target in targets:
            # A ping on its way has an older position: the next regular one brings the new one.
            if target.incarnation not in self._announcing:
                self._announcing.add(target.incarnation)
                self._tasks.start(self._announce(target))

    async def _announce(self, target: BrokerRegistration) -> None:
        try:
            with contextlib.suppress(PeerError):
                await self.ping(target, ANNOUNCE_SECONDS)
        finally:
            self._announcing.discard(target.incarnation)

    def forget(self, live: Collection[int]) -> None:
        """Close the connections to all other processes than these."""
        for kept in (self._kept, self._notified):
            for incarnation in [each for each in kept if each not in live]:
                kept.pop(incarnation).close()

    async def close(self) -> None:
        await self._tasks.close()
        open_connections = [*self._kept.values(), *self._notified.values()]
        self._kept, self._notified = {}, {}
        for connection in open_connections:
            await connection.closed()

    def _kept_in(self, kept: dict[int, _Connection], target: BrokerRegistration) -> _Connection:
        found = kept.get(target.incarnation)
        if found is None:
            found = kept[target.incarnation] = self._connection(target)
        return found

    def _connection(self, target: BrokerRegistration) -> _Connection:
        request = HandshakeRequest(
            cluster_id=self._cluster.state.cluster_id,
            sender=self._incarnation,
            target=target.incarnation,
        )
        return _Connection(target, request, self._authentication, self.traffic)

    async def _call_once(
        self,
        target: BrokerRegistration,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        seconds: float,
    ) -> ResponseT:
        connection = self._connection(target)
        try:
            return await self._call(connection, api, request, seconds)
        finally:
            await connection.closed()

    async def _call(
        self,
        connection: _Connection,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        seconds: float,
    ) -> ResponseT:
        try:
            async with runtime.deadline(seconds):
                return await connection.call(api, request)
        except TimeoutError:
            raise PeerError(f"{connection.name} has not answered for {seconds} s") from None


class _Connection:
    """One connection to a broker, with one request at a time. A failure closes it."""

    def __init__(
        self,
        target: BrokerRegistration,
        handshake: HandshakeRequest,
        authentication: PeerAuthentication,
        traffic: PeerTraffic,
    ) -> None:
        self._target = target
        self._traffic = traffic
        self._handshake = handshake
        self._authentication = authentication
        self._session: Session | None = None
        self._streams: _Streams | None = None
        self._turn = asyncio.Lock()
        self._is_idle = True  # no response is outstanding
        self._numbers = itertools.count(1)
        self.name = f"broker {target.node_id} (incarnation {target.incarnation})"

    async def call(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Send a request and return its response. Raises PeerError if there is none."""
        async with self._turn:
            try:
                return await self._exchange(api, request)
            except ConnectionRefusedError as error:
                raise PeerRefusedError(f"{self.name} refuses connections") from error
            except (OSError, EOFError, NeveError) as error:
                raise PeerError(f"{self.name} does not answer: {error}") from error
            finally:
                if self._streams is not None and not self._is_idle:
                    self.close()

    async def _exchange(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        if self._streams is None or self._streams[1].is_closing():
            self._session = None
            target = self._target
            self._streams = await asyncio.open_connection(target.host, target.port)
        self._is_idle = False
        if self._session is None:
            self._session = await self._shake_hands(self._streams)
        response = await self._ask(self._streams, api, request, self._session)
        self._is_idle = True
        return response

    async def _shake_hands(self, streams: _Streams) -> Session:
        nonce = runtime.token(NONCE_BYTES)
        self._handshake.nonce = nonce
        response = await self._ask(streams, HANDSHAKE, self._handshake, None)
        _check(response.error_code, self._target)
        return self._authentication.session_to(self._target, nonce, response.nonce)

    async def _ask(
        self,
        streams: _Streams,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        session: Session | None,
    ) -> ResponseT:
        reader, writer = streams
        number = next(self._numbers)
        frame = b"".join(request_frame(api, VERSION, number, None, request.encode(VERSION)))
        if session is not None:
            frame = session.seal_request(frame)
        self._traffic.sent_bytes += len(frame)
        writer.write(frame)
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(4), "big")
        self._traffic.received_bytes += 4 + size
        if size > RESPONSE_BYTES_MAX:
            raise PeerError(f"a response of {size} bytes")
        data = memoryview(await reader.readexactly(size))
        if session is not None:
            data = session.open_response(data)
        answered, at = decode_response_header(api, VERSION, data)
        if answered != number:
            raise PeerError(f"a response to request {answered}, not {number}")
        return api.Response.decode(data, VERSION, at)

    def close(self) -> None:
        streams, self._streams = self._streams, None
        self._session = None
        if streams is not None:
            streams[1].transport.abort()

    async def closed(self) -> None:
        """Close the connection, and wait until that is done."""
        streams = self._streams
        self.close()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()


def _by_topic(wanted: Collection[PartitionKey]) -> Iterator[tuple[bytes, list[int]]]:
    """Yield each topic's id with its partitions."""
    for topic_id, rows in groupby(sorted(wanted), key=itemgetter(0)):
        yield bytes.fromhex(topic_id), [number for _, number in rows]


def _check(error_code: int, target: BrokerRegistration) -> None:
    if error_code:
        raise PeerError(
            f"broker {target.node_id} does not answer as incarnation {target.incarnation}: "
            f"error {error_code}"
        )
