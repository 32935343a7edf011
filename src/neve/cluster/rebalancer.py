"""Rebalancing: a broker asks the leaders of the partitions that it should lead to release them.

Every broker computes the same target from the cluster log (`neve.cluster.balance`), so no broker
has to decide for the others. A broker asks few owners at a time, and waits after brokers have come
or gone: they may come back.
"""

from __future__ import annotations

import logging
from itertools import islice

from neve import runtime
from neve.cluster.balance import target_leaders
from neve.cluster.node import Node
from neve.cluster.peer_link import PeerError, PeerLink
from neve.cluster.placement import SHARING_LEVEL
from neve.cluster.state import ClusterState, PartitionKey, is_live
from neve.serving.logs import event
from neve.settings import ClusterSettings

_log = logging.getLogger(__name__)

OWNERS_AT_ONCE = 2
PARTITIONS_PER_REQUEST = 500
"""More than this are asked for in several requests, so that each is stopped for a short time."""
REQUEST_SECONDS_MAX = 30.0


class Rebalancer:
    """Pulls partitions to one broker. Call `run_if_due` regularly."""

    def __init__(self, node: Node, link: PeerLink, settings: ClusterSettings) -> None:
        self._node = node
        self._link = link
        self._delay_seconds = settings.rebalance_delay_ms / 1000
        self._members: tuple[int, ...] = ()
        self._quiet_since = runtime.monotonic()
        self._balanced: ClusterState | None = None  # the last state that needed no move

    async def run_if_due(self, *, now: bool = False) -> int:
        """Ask for the partitions that this broker should lead. Returns how many were released.

        Does nothing for `cluster.rebalance.delay.ms` after a broker has come or gone, except with
        `now`, and for nodes that are draining.
        """
        state = self._node.cluster.state
        if state is self._balanced or state.feature_level < SHARING_LEVEL:
            return 0
        quiet = self._is_quiet(state) or now
        wanted = self._wanted(state, quiet=quiet)
        if not wanted:
            if quiet:
                self._balanced = state
            return 0
        asked = islice(sorted(wanted.items()), OWNERS_AT_ONCE)
        moved = await runtime.gather(*(self._ask(owner, rows) for owner, rows in asked))
        return sum(moved)

    def _is_quiet(self, state: ClusterState) -> bool:
        """Whether the live brokers have been the same for the delay."""
        members = tuple(sorted(key for key, row in state.brokers.items() if row.live))
        if members != self._members:
            self._members, self._quiet_since = members, runtime.monotonic()
        return runtime.monotonic() - self._quiet_since >= self._delay_seconds

    def _wanted(self, state: ClusterState, *, quiet: bool) -> dict[int, list[PartitionKey]]:
        """Return, by owner, the partitions that this broker should lead and another one leads."""
        own = self._node.incarnation
        wanted: dict[int, list[PartitionKey]] = {}
        for row, leader in target_leaders(state).items():
            if leader != own:
                continue
            owner = state.topics[row[0]].partitions[row[1]].leader
            if owner == own or not is_live(state.brokers, owner):
                continue
            if quiet or state.brokers[owner].node_id in state.draining:
                wanted.setdefault(owner, []).append(row)
        return wanted

    async def _ask(self, owner: int, rows: list[PartitionKey]) -> int:
        target = self._node.cluster.state.brokers[owner]
        asked = rows[:PARTITIONS_PER_REQUEST]
        try:
            released = await self._link.release(target, asked, REQUEST_SECONDS_MAX)
        except PeerError as error:
            _log.warning("%s: asked for %d partitions: %s", self._name, len(asked), error)
            return 0
        await self._node.cluster.refresh()
        about = {"from_node": target.node_id, "partitions": released, "asked": len(asked)}
        event(_log, logging.INFO, "partitions pulled", **about)
        return released

    @property
    def _name(self) -> str:
        return f"rebalancing to node {self._node.node_id}"
