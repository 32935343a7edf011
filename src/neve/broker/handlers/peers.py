"""The messages of other brokers: Ping, Probe, Release and Notify.

A message that is meant for another process, such as the one that had this address before, is
answered with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import NO_ERROR, admin_error, code_of
from neve.broker.errors import OtherBrokerError
from neve.cluster.state import PartitionKey
from neve.errors import NeveError
from neve.protocol.peers.notify import NotifyRequest, NotifyResponse
from neve.protocol.peers.ping import PingRequest, PingResponse
from neve.protocol.peers.probe import ProbeRequest, ProbeResponse
from neve.protocol.peers.release import ReleaseRequest, ReleaseResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_OTHER = code_of(OtherBrokerError)


def _is_meant(
    broker: Broker, request: PingRequest | ProbeRequest | ReleaseRequest | NotifyRequest
) -> bool:
    return broker.membership.is_meant(request.cluster_id, request.target)


def ping(broker: Broker, request: PingRequest, context: Context) -> PingResponse:
    del context
    if not _is_meant(broker, request):
        return PingResponse(error_code=_OTHER)
    broker.membership.pinged(
        request.sender, request.position, watches=request.watches, hears=request.hears
    )
    return PingResponse(position=broker.membership.position)


async def probe(broker: Broker, request: ProbeRequest, context: Context) -> ProbeResponse:
    del context
    if not _is_meant(broker, request):
        return ProbeResponse(error_code=_OTHER)
    return ProbeResponse(refused=await broker.membership.refuses(request.suspect))


async def release(broker: Broker, request: ReleaseRequest, context: Context) -> ReleaseResponse:
    del context
    if not _is_meant(broker, request):
        return ReleaseResponse(error_code=_OTHER)
    wanted: dict[PartitionKey, int] = {
        (topic.topic_id.hex(), number): request.sender
        for topic in request.topics
        for number in topic.partitions
    }
    try:
        released = await broker.membership.release(wanted)
    except NeveError as error:
        return ReleaseResponse(error_code=admin_error(error)[0])
    position = broker.membership.position
    return ReleaseResponse(error_code=NO_ERROR, released=released, position=position)


def notify(broker: Broker, request: NotifyRequest, context: Context) -> NotifyResponse:
    del context
    if not _is_meant(broker, request):
        return NotifyResponse(error_code=_OTHER)
    return NotifyResponse(position=broker.membership.notified(request.sender, request.end))
