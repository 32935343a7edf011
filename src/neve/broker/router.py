"""Which handler answers which request. What is not here is not advertised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from neve.broker.fetch.handler import fetch
from neve.broker.handlers import (
    alter_configs,
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
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from neve.protocol.frames import RequestHeader, response_frame
from neve.protocol.messages import APIS
from neve.store.port import Buffer

PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 2, 11, 14, 18
_UNSUPPORTED_VERSION = 35


class Context(NamedTuple):
    """What a handler may want to know of a request beside its content."""

    api_version: int
    client_id: str | None
    peer: str
    is_reader: bool = False
    """Whether the client has taken a large answer before, and took it."""


Handle = Callable[[Any, Any, Context], Any]


class Route(NamedTuple):
    """One API and what answers it. A handler returns a response, or a coroutine that does.

    What `waits_for_others` may take as long as they like: a broker that stops does not wait for it.
    What `only_reads` is given up when its client is gone.
    """

    api: Any
    handle: Handle
    is_produce: bool = False
    may_be_overtaken: bool = False
    waits_for_others: bool = False
    only_reads: bool = False

    def frame(self, header: RequestHeader, response: Any) -> list[Buffer]:
        """The answer to a request as it is sent."""
        parts = self.api.Response.encode(response, header.api_version)
        return response_frame(self.api, header.api_version, header.correlation_id, parts)

    async def finish(self, header: RequestHeader, work: Awaitable[Any]) -> tuple[Any, list[Buffer]]:
        """Wait for a response. Returns it with the answer as it is sent."""
        response = await work
        return response, self.frame(header, response)


def _answered_elsewhere(*_: object) -> Any:
    raise AssertionError("produce requests are answered by their connection")


_HANDLERS: dict[int, Handle] = {
    FETCH: fetch,
    LIST_OFFSETS: list_offsets.handle,
    3: metadata.handle,
    8: offset_commit.handle,
    9: offset_fetch.handle,
    10: find_coordinator.handle,
    JOIN_GROUP: join_group.handle,
    12: heartbeat.handle,
    13: leave_group.handle,
    SYNC_GROUP: sync_group.handle,
    15: describe_groups.handle,
    16: list_groups.handle,
    API_VERSIONS: api_versions.handle,
    19: create_topics.handle,
    20: delete_topics.handle,
    21: delete_records.handle,
    22: init_producer_id.handle,
    23: offset_for_leader_epoch.handle,
    32: describe_configs.handle,
    33: alter_configs.handle,
    35: describe_log_dirs.handle,
    37: create_partitions.handle,
    42: delete_groups.handle,
    44: incremental_alter_configs.handle,
    47: offset_delete.handle,
    60: describe_cluster.handle,
    61: describe_producers.handle,
    75: describe_topic_partitions.handle,
}


class Router:
    """Every supported API by its key."""

    def __init__(self) -> None:
        routes = {key: Route(APIS[key], handle) for key, handle in _HANDLERS.items()}
        routes[FETCH] = routes[FETCH]._replace(may_be_overtaken=True, waits_for_others=True)
        for key in (FETCH, LIST_OFFSETS):
            routes[key] = routes[key]._replace(only_reads=True)
        for key in (JOIN_GROUP, SYNC_GROUP):
            routes[key] = routes[key]._replace(waits_for_others=True)
        routes[PRODUCE] = Route(
            APIS[PRODUCE], _answered_elsewhere, is_produce=True, may_be_overtaken=True
        )
        missing = sorted(set(APIS) - set(routes))
        assert not missing, f"no handler for APIs {missing}"
        self._routes = routes

    def find(self, header: RequestHeader) -> Route | None:
        route = self._routes.get(header.api_key)
        if route is None:
            return None
        supported = route.api.min_version <= header.api_version <= route.api.max_version
        return route if supported else None

    def versions_for_unknown(self, header: RequestHeader) -> list[Buffer] | None:
        """What a client gets that asks for versions in a version we do not know; else None."""
        if header.api_key != API_VERSIONS:
            return None
        api = APIS[API_VERSIONS]
        response = api_versions.response(0, _UNSUPPORTED_VERSION)
        return response_frame(api, 0, header.correlation_id, api.Response.encode(response, 0))
