"""Rebalancing: a broker asks the leaders of the partitions that it should lead to release them.

Every broker computes the same target from the cluster log (`neve.cluster.balance`), so no broker
has to decide for the others. A broker asks few owners at a time, and waits after brokers have come
or gone: they may come back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from itertools import islice

from neve import runtime
from neve.cluster.balance import target_leaders
from neve.cluster.node import Node
from neve.cluster.peer_link import PeerError, PeerLink
from neve.cluster.placement import SHARING_LEVEL
from neve.cluster.state import NO_LEADER, ClusterState, PartitionKey, is_live
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
        self.rounds = 0  # how often this broker has asked others for partitions
        self.pulled = 0  # partitions so far
        self._rebalances = node.cluster.state.rebalances  # how many were carried out

    async def run_if_due(self, *, now: bool = False) -> int:
        """Ask for the partitions that this broker should lead. Returns how many were released.

        Does nothing for `cluster.rebalance.delay.ms` after a broker has come or gone. Three things
        do not wait: what nodes lead that are draining, partitions with this node as their preferred
        leader, and with `now`, or once a rebalance was asked for, everything.
        """
        state = self._node.cluster.state
        if state.feature_level < SHARING_LEVEL or self._is_balanced(state):
            return 0
        quiet = self._is_quiet(state) or now or state.rebalances != self._rebalances
        wanted = self._wanted(state, quiet=quiet)
        if not wanted:
            if quiet:
                self._balanced, self._rebalances = state, state.rebalances
            return 0
        self.rounds += 1
        asked = islice(sorted(wanted.items()), OWNERS_AT_ONCE)
        moved = await runtime.gather(*(self._ask(owner, rows) for owner, rows in asked))
        return sum(moved)

    def _is_balanced(self, state: ClusterState) -> bool:
        """Whether nothing that placement depends on has changed since no move was needed."""
        known = self._balanced
        if known is None or known is state:
            return known is state
        # The fold keeps what it does not change, so there is no need to compare partitions.
        if known.topics is not state.topics or known.brokers is not state.brokers:
            return False
        return (known.draining, known.rebalances) == (state.draining, state.rebalances)

    async def pull(self, wanted: Collection[PartitionKey]) -> int:
        """Take over at once those of these partitions that this broker should lead.

        Returns how many its owners have released, or had no leader.
        """
        node = self._node
        target = node.cluster.state.once(target_leaders)
        unled: list[PartitionKey] = []
        owned: dict[int, list[PartitionKey]] = {}
        for row in sorted(wanted):
            if target.get(row) != node.incarnation:
                continue
            owner = _leader(node.cluster.state, row)
            if owner == NO_LEADER:
                unled.append(row)
            elif owner != node.incarnation:
                owned.setdefault(owner, []).append(row)
        pulled = 0
        if unled:
            pulled += len(unled) - len(await node.takeover.lead_unled(unled))
        owners = sorted(owned.items())
        for at in range(0, len(owners), OWNERS_AT_ONCE):
            asked = owners[at : at + OWNERS_AT_ONCE]
            pulled += sum(await runtime.gather(*(self._ask(owner, rows) for owner, rows in asked)))
        return pulled

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
        for row, leader in state.once(target_leaders).items():
            if leader != own:
                continue
            owner = _leader(state, row)
            if owner == own or not is_live(state.brokers, owner):
                continue
            if quiet or state.brokers[owner].node_id in state.draining or self._prefers_us(row):
                wanted.setdefault(owner, []).append(row)
        return wanted

    def _prefers_us(self, row: PartitionKey) -> bool:
        """Whether this node is one of the preferred nodes of a partition."""
        topic = self._node.cluster.state.topics.get(row[0])
        return topic is not None and self._node.node_id in topic.preferred.get(row[1], ())

    async def _ask(self, owner: int, rows: list[PartitionKey]) -> int:
        target = self._node.cluster.state.brokers[owner]
        asked = rows[:PARTITIONS_PER_REQUEST]
        try:
            released = await self._link.release(target, asked, REQUEST_SECONDS_MAX)
        except PeerError as error:
            about = {"from_node": target.node_id, "asked": len(asked), "error": str(error)}
            event(_log, logging.WARNING, "partitions not pulled", **about)
            return 0
        self.pulled += released
        await self._node.cluster.refresh()
        about = {"from_node": target.node_id, "partitions": released, "asked": len(asked)}
        event(_log, logging.INFO, "partitions pulled", **about)
        return released


def _leader(state: ClusterState, row: PartitionKey) -> int:
    return state.topics[row[0]].partitions[row[1]].leader
