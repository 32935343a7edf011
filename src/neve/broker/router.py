"""The handler of each API, and the access that it needs.

Those of Kafka are advertised, those between brokers are not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from neve.broker.access import Operation, RequiredAccess, Resource
from neve.broker.context import Context
from neve.broker.error_codes import code_of
from neve.broker.fetch.handler import fetch
from neve.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    peers,
    sync_group,
    unregister_broker,
)
from neve.errors import UnsupportedError
from neve.protocol.compiler import AnyApi, Api, Message
from neve.protocol.frames import RequestHeader, response_frame
from neve.protocol.messages import APIS
from neve.protocol.messages.alter_configs import ALTER_CONFIGS
from neve.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_groups import DELETE_GROUPS
from neve.protocol.messages.delete_records import DELETE_RECORDS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from neve.protocol.messages.describe_cluster import DESCRIBE_CLUSTER
from neve.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from neve.protocol.messages.describe_groups import DESCRIBE_GROUPS
from neve.protocol.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from neve.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from neve.protocol.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from neve.protocol.messages.elect_leaders import ELECT_LEADERS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.leave_group import LEAVE_GROUP
from neve.protocol.messages.list_groups import LIST_GROUPS
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.offset_delete import OFFSET_DELETE
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.protocol.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from neve.protocol.messages.produce import PRODUCE
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.protocol.messages.unregister_broker import UNREGISTER_BROKER
from neve.protocol.peers import PEER_APIS
from neve.protocol.peers.handshake import HANDSHAKE
from neve.protocol.peers.notify import NOTIFY
from neve.protocol.peers.ping import PING
from neve.protocol.peers.probe import PROBE
from neve.protocol.peers.pull import PULL
from neve.protocol.peers.release import RELEASE
from neve.store.port import Buffer

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.peer_channel import PeerChannel

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


Handle: TypeAlias = Callable[
    ["Broker", RequestT, Context], ResponseT | Coroutine[object, None, ResponseT]
]
"""Returns a response, or a coroutine that returns one."""


Handler: TypeAlias = Callable[["Broker", Any, Context], Message | Coroutine[object, None, Message]]
"""A handler of any API."""


class Route(NamedTuple):
    """One API, its handler, and the access that a client needs to call it, or None.

    Produce has no handler: its connection appends the batches. Requests behind a `pipelined` one
    do not wait for its response. A `long_poll` may wait for new records or for other members of a
    group, so a stopping broker does not wait for it. A request that `only_reads` is cancelled when
    its client is gone. One that is `sealed` is handled only if another broker has sent it.
    """

    api: AnyApi
    handle: Handler | None
    required_access: RequiredAccess | None
    pipelined: bool = False
    long_poll: bool = False
    only_reads: bool = False
    sealed: bool = False

    def frame(self, header: RequestHeader, response: Message) -> list[Buffer]:
        """Encode a response with its length and header."""
        version = header.api_version
        return response_frame(self.api, version, header.correlation_id, response.encode(version))

    def reply(self, header: RequestHeader, response: Message, peer: PeerChannel) -> list[Buffer]:
        """Encode the response of a handler, with its MAC if the request had one."""
        frame = self.frame(header, response)
        return peer.seal(frame) if self.sealed else frame

    async def finish(
        self, header: RequestHeader, work: Awaitable[Message], peer: PeerChannel
    ) -> tuple[Message, list[Buffer]]:
        """Wait for a response. Returns it, and its frame."""
        response = await work
        return response, self.reply(header, response, peer)


def _route(
    api: Api[RequestT, ResponseT],
    handle: Handle[RequestT, ResponseT],
    required_access: RequiredAccess | None,
    *,
    pipelined: bool = False,
    long_poll: bool = False,
    only_reads: bool = False,
    sealed: bool = False,
) -> Route:
    """A route whose handler is checked to take and return the messages of its API."""
    return Route(api, handle, required_access, pipelined, long_poll, only_reads, sealed)


def newest(
    handle: Handle[RequestT, ResponseT],
) -> Callable[[Broker, RequestT, Context], Coroutine[object, None, ResponseT]]:
    """Return a handler that reads what is new in the cluster log first.

    Admin clients send a change to one broker and ask the next one for its outcome.
    """

    async def handle_newest(broker: Broker, request: RequestT, context: Context) -> ResponseT:
        await broker.read_cluster_log()
        response = handle(broker, request, context)
        return response if isinstance(response, Message) else await response

    return handle_newest


_READ_TOPIC = RequiredAccess(Operation.READ, Resource.TOPIC)
_WRITE_TOPIC = RequiredAccess(Operation.WRITE, Resource.TOPIC)
_DELETE_TOPIC = RequiredAccess(Operation.DELETE, Resource.TOPIC)
_DESCRIBE_TOPIC = RequiredAccess(Operation.DESCRIBE, Resource.TOPIC)
_ALTER_CONFIGS = RequiredAccess(Operation.ALTER_CONFIGS, Resource.TOPIC)
_READ_GROUP = RequiredAccess(Operation.READ, Resource.GROUP)
_DELETE_GROUP = RequiredAccess(Operation.DELETE, Resource.GROUP)
_DESCRIBE_GROUP = RequiredAccess(Operation.DESCRIBE, Resource.GROUP)
_DESCRIBE_CLUSTER = RequiredAccess(Operation.DESCRIBE, Resource.CLUSTER)
_ALTER_CLUSTER = RequiredAccess(Operation.ALTER, Resource.CLUSTER)

_ROUTES = (
    Route(PRODUCE, None, _WRITE_TOPIC, pipelined=True),
    _route(FETCH, fetch, _READ_TOPIC, pipelined=True, long_poll=True, only_reads=True),
    _route(LIST_OFFSETS, list_offsets.handle, _DESCRIBE_TOPIC, only_reads=True),
    _route(METADATA, metadata.handle, _DESCRIBE_TOPIC),
    _route(OFFSET_COMMIT, offset_commit.handle, _READ_GROUP),
    _route(OFFSET_FETCH, offset_fetch.handle, _DESCRIBE_GROUP),
    _route(FIND_COORDINATOR, find_coordinator.handle, _DESCRIBE_GROUP),
    _route(JOIN_GROUP, join_group.handle, _READ_GROUP, long_poll=True),
    _route(HEARTBEAT, heartbeat.handle, _READ_GROUP),
    _route(LEAVE_GROUP, leave_group.handle, _READ_GROUP),
    _route(SYNC_GROUP, sync_group.handle, _READ_GROUP, long_poll=True),
    _route(DESCRIBE_GROUPS, describe_groups.handle, _DESCRIBE_GROUP),
    _route(LIST_GROUPS, list_groups.handle, _DESCRIBE_GROUP),
    _route(API_VERSIONS, api_versions.handle, None),
    _route(
        CREATE_TOPICS,
        newest(create_topics.handle),
        RequiredAccess(Operation.CREATE, Resource.TOPIC),
    ),
    _route(DELETE_TOPICS, newest(delete_topics.handle), _DELETE_TOPIC),
    _route(DELETE_RECORDS, delete_records.handle, _DELETE_TOPIC),
    _route(
        INIT_PRODUCER_ID,
        init_producer_id.handle,
        RequiredAccess(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),
    ),
    _route(OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle, _DESCRIBE_TOPIC),
    _route(
        DESCRIBE_CONFIGS,
        newest(describe_configs.handle),
        RequiredAccess(Operation.DESCRIBE_CONFIGS, Resource.TOPIC),
    ),
    _route(ALTER_CONFIGS, newest(alter_configs.handle), _ALTER_CONFIGS),
    _route(DESCRIBE_LOG_DIRS, describe_log_dirs.handle, _DESCRIBE_CLUSTER),
    _route(
        CREATE_PARTITIONS,
        newest(create_partitions.handle),
        RequiredAccess(Operation.ALTER, Resource.TOPIC),
    ),
    _route(DELETE_GROUPS, delete_groups.handle, _DELETE_GROUP),
    _route(INCREMENTAL_ALTER_CONFIGS, newest(incremental_alter_configs.handle), _ALTER_CONFIGS),
    _route(OFFSET_DELETE, offset_delete.handle, _DELETE_GROUP),
    _route(DESCRIBE_CLUSTER, newest(describe_cluster.handle), _DESCRIBE_CLUSTER),
    _route(DESCRIBE_PRODUCERS, describe_producers.handle, _READ_TOPIC),
    _route(DESCRIBE_TOPIC_PARTITIONS, newest(describe_topic_partitions.handle), _DESCRIBE_TOPIC),
    _route(ELECT_LEADERS, newest(elect_leaders.handle), _ALTER_CLUSTER),
    _route(
        ALTER_PARTITION_REASSIGNMENTS,
        newest(alter_partition_reassignments.handle),
        _ALTER_CLUSTER,
    ),
    _route(
        LIST_PARTITION_REASSIGNMENTS,
        newest(list_partition_reassignments.handle),
        _DESCRIBE_CLUSTER,
    ),
    _route(UNREGISTER_BROKER, newest(unregister_broker.handle), _ALTER_CLUSTER),
    _route(HANDSHAKE, peers.handshake, None),
    _route(PING, peers.ping, None, sealed=True),
    _route(PROBE, peers.probe, None, sealed=True),
    _route(RELEASE, peers.release, None, sealed=True),
    _route(PULL, peers.pull, None, sealed=True),
    _route(NOTIFY, peers.notify, None, sealed=True),
)


class Router:
    """Every supported API by its key."""

    def __init__(self) -> None:
        self._routes = {route.api.key: route for route in _ROUTES}
        wanted = {*APIS, *(api.key for api in PEER_APIS)}
        missing = sorted(wanted - set(self._routes))
        assert not missing, f"no handler for APIs {missing}"

    def find(self, header: RequestHeader) -> Route | None:
        """The route of a request; None if the API or its version is not supported."""
        route = self._routes.get(header.api_key)
        if route is None:
            return None
        supported = route.api.min_version <= header.api_version <= route.api.max_version
        return route if supported else None

    def versions_for_unknown(self, header: RequestHeader) -> list[Buffer] | None:
        """The response to ApiVersions in an unknown version; None for any other API."""
        if header.api_key != API_VERSIONS.key:
            return None
        response = api_versions.response(code_of(UnsupportedError))
        return response_frame(API_VERSIONS, 0, header.correlation_id, response.encode(0))
