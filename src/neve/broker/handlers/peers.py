"""The messages of other brokers: Handshake, Ping, Probe, Release, Pull and Notify.

The first is answered to any client that knows a live broker's incarnation, and proves nothing. The
others reach these handlers only if their sender has proven its identity: see
`neve.broker.peer_channel`.
A message that is meant for another process, such as the one that had this address before, or whose
sender has been declared dead, is answered with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.error_codes import NO_ERROR, admin_error, code_of
from neve.broker.errors import OtherBrokerError
from neve.cluster.peer_auth import NONCE_BYTES, PeerAuthenticationError
from neve.cluster.state import PartitionKey
from neve.errors import NeveError
from neve.protocol.peers.handshake import HandshakeRequest, HandshakeResponse
from neve.protocol.peers.notify import NotifyRequest, NotifyResponse
from neve.protocol.peers.ping import PingRequest, PingResponse
from neve.protocol.peers.probe import ProbeRequest, ProbeResponse
from neve.protocol.peers.pull import PullRequest, PullResponse
from neve.protocol.peers.release import ReleaseRequest, ReleaseResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_OTHER = code_of(OtherBrokerError)


async def handshake(
    broker: Broker, request: HandshakeRequest, context: Context
) -> HandshakeResponse:
    assert context.peer is not None
    authentication = broker.peer_authentication
    if not authentication.is_meant(request.cluster_id, request.target):
        return HandshakeResponse(error_code=_OTHER)
    nonce = runtime.token(NONCE_BYTES)
    try:
        await context.peer.begin(authentication, request, nonce)
    except PeerAuthenticationError as error:
        broker.log_not_authentic(context.client.host, error)
        return HandshakeResponse(error_code=code_of(PeerAuthenticationError))
    return HandshakeResponse(nonce=nonce)


def _live_sender(broker: Broker, context: Context) -> int | None:
    """Return the incarnation that sent a message; None if it has been declared dead."""
    assert context.peer is not None
    sender = context.peer.sender
    return sender if broker.peer_authentication.is_live(sender) else None


def ping(broker: Broker, request: PingRequest, context: Context) -> PingResponse:
    position = broker.membership.position
    sender = _live_sender(broker, context)
    if sender is None:  # the position lets it find out
        return PingResponse(error_code=_OTHER, position=position)
    broker.membership.pinged(sender, request.position, watches=request.watches, hears=request.hears)
    return PingResponse(position=position, dropped=broker.membership.dropped)


async def probe(broker: Broker, request: ProbeRequest, context: Context) -> ProbeResponse:
    if _live_sender(broker, context) is None:
        return ProbeResponse(error_code=_OTHER)
    return ProbeResponse(refused=await broker.membership.refuses(request.suspect))


async def release(broker: Broker, request: ReleaseRequest, context: Context) -> ReleaseResponse:
    sender = _live_sender(broker, context)
    if sender is None:
        return ReleaseResponse(error_code=_OTHER)
    wanted: dict[PartitionKey, int] = {
        (topic.topic_id.hex(), number): sender
        for topic in request.topics
        for number in topic.partitions
    }
    try:
        released = await broker.membership.release(wanted)
    except NeveError as error:
        return ReleaseResponse(error_code=admin_error(error)[0])
    position = broker.membership.position
    return ReleaseResponse(error_code=NO_ERROR, released=released, position=position)


async def pull(broker: Broker, request: PullRequest, context: Context) -> PullResponse:
    if _live_sender(broker, context) is None:
        return PullResponse(error_code=_OTHER)
    wanted = [
        (topic.topic_id.hex(), number) for topic in request.topics for number in topic.partitions
    ]
    try:
        pulled = await broker.membership.pull(wanted, request.position)
    except NeveError as error:
        return PullResponse(error_code=admin_error(error)[0])
    return PullResponse(error_code=NO_ERROR, pulled=pulled)


def notify(broker: Broker, request: NotifyRequest, context: Context) -> NotifyResponse:
    sender = _live_sender(broker, context)
    if sender is None:
        return NotifyResponse(error_code=_OTHER)
    return NotifyResponse(position=broker.membership.notified(sender, request.end))
