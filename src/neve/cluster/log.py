"""The changes of the cluster, each proposed to the cluster log until it is decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from neve import runtime
from neve.cluster.log_view import NoClusterError, ReplacedError
from neve.cluster.placement import (
    SHARING_LEVEL,
    leaders_of_new,
    moves_from,
    moves_to,
    moves_to_one,
)
from neve.cluster.placement_changes import NodeIsLiveError, NoNodeError, PlacementChanges
from neve.cluster.preferred import check_preferred
from neve.cluster.records import (
    FEATURE_LEVEL,
    AbandonWal,
    AddPartitions,
    Change,
    CreateTopic,
    DeleteTopic,
    Deregister,
    Dropped,
    Expire,
    Feature,
    Init,
    Lead,
    Move,
    ProducerIds,
    PurgeTopic,
    Register,
    SetBrokerConfigs,
    SetConfigs,
    SetLagging,
    Tiered,
    TieredPart,
)
from neve.cluster.state import (
    ClusterState,
    IdBlock,
    PartitionKey,
    Topic,
    is_live,
    level_of_all,
)
from neve.cluster.topic_config import check_configs, known_config
from neve.cluster.topic_rules import (
    PARTITIONS_MAX,
    AssignmentError,
    NoTopicError,
    PartitionCountError,
    TopicExistsError,
    check_new_name,
    check_partition_count,
    check_topic_name,
)
from neve.cluster.wal_stores import check_wal_store
from neve.log.series import View
from neve.log.wal.store_identity import WalStoreRef

__all__ = [
    "PARTITIONS_MAX",
    "ClusterLog",
    "NoClusterError",
    "NoNodeError",
    "NoTopicError",
    "NodeIsLiveError",
    "ReplacedError",
    "TopicExistsError",
    "check_topic_name",
]


class ClusterLog(PlacementChanges):
    """The changes that a process makes to the cluster."""

    async def check_no_other_process(self, node_id: int) -> None:
        """Raise ReplacedError if a process of this node is live."""
        state = await self.refresh()
        live = [key for key, row in state.brokers.items() if row.live and row.node_id == node_id]
        if live:
            raise ReplacedError(f"node {node_id} was started again as incarnation {live[0]}")

    async def init(self) -> ClusterState:
        """Create a cluster in the bucket, unless there is one."""

        def derive(state: ClusterState) -> Change | None:
            if state.cluster_id:
                return None
            return Init(runtime.token(16).hex(), FEATURE_LEVEL, runtime.now_ms())

        await self.propose(derive)
        return self.state

    async def register(
        self,
        node_id: int,
        *,
        inflight: int,
        host: str = "",
        port: int = 0,
        rack: str = "",
        public_key: bytes = b"",
        wal_store: WalStoreRef | None = None,
    ) -> int:
        """Register a broker process, and return its incarnation.

        This ends an earlier process of the same node. The new process leads its partitions.
        """
        session = runtime.token(16).hex()

        def derive(view: View[ClusterState]) -> Change | None:
            state = view.state
            if _incarnation(state, session) is not None:
                return None
            check_wal_store(state, wal_store)
            earlier = {key for key, row in state.brokers.items() if row.node_id == node_id}
            return Register(
                node_id=node_id,
                session=session,
                inflight=inflight,
                at_ms=runtime.now_ms(),
                host=host,
                port=port,
                rack=rack,
                level=FEATURE_LEVEL,
                public_key=public_key,
                moves=moves_to_one(state, earlier, view.position),
                wal_store=wal_store,
            )

        number = await self._propose(derive)
        number = _incarnation(self.state, session) if number is None else number
        assert number is not None  # derive returns None only where the session is there
        self.incarnation = number
        return number

    async def raise_level(self, *, joining: bool = False) -> None:
        """Raise the feature level to the greatest that every live process knows.

        A process that is `joining` and finds no live one raises it to what it knows itself.
        """

        def derive(state: ClusterState) -> Change | None:
            level = level_of_all(state) or (FEATURE_LEVEL if joining else 0)
            return Feature(level) if level > state.feature_level else None

        await self.propose(derive)

    async def expire(
        self, incarnation: int, stands: Callable[[ClusterState], bool] = lambda _: True
    ) -> bool:
        """Declare a process dead, and move its partitions to live ones.

        Gives up if the verdict no longer `stands` in the state that the record would meet. Returns
        True if this call has ended the process.
        """

        def derive(state: ClusterState) -> Change | None:
            if not is_live(state.brokers, incarnation) or not stands(state):
                return None
            return Expire(incarnation=incarnation, moves=self._moves_from(state, incarnation))

        return await self.propose(derive) is not None

    async def deregister(self, incarnation: int) -> None:
        """Record that a process leaves, and move the partitions that it still leads."""

        def derive(state: ClusterState) -> Change | None:
            if not is_live(state.brokers, incarnation):
                return None
            return Deregister(incarnation=incarnation, moves=self._moves_from(state, incarnation))

        await self.propose(derive)

    def _moves_from(self, state: ClusterState, incarnation: int) -> tuple[Move, ...]:
        return moves_from(state, {incarnation}, followers=self._limits.followers)

    async def set_lagging(self, incarnation: int, followers: Collection[int]) -> None:
        """Record which followers of a process's stream lag, if that differs from the state."""
        found = tuple(sorted(followers))

        def derive(state: ClusterState) -> Change | None:
            if not is_live(state.brokers, incarnation):
                return None
            if state.lagging.get(incarnation, ()) == found:
                return None
            return SetLagging(incarnation=incarnation, followers=found)

        await self.propose(derive)

    async def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        preferred: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic. Raises TopicExistsError if one has that name.

        `preferred` has the nodes that should lead a partition, by its number.
        """
        check_topic_name(name)
        check_configs(configs or {})
        sent: list[str] = []  # ids whose outcome is unknown are never sent again

        def derive(state: ClusterState) -> Change | None:
            if any(topic_id in state.topics or topic_id in state.deleted for topic_id in sent):
                return None
            check_new_name(state, name)
            check_partition_count(state, self._limits, name, partitions)
            nodes = _checked_nodes(state, name, preferred)
            sent.append(runtime.token(16).hex())
            return CreateTopic(
                name=name,
                topic_id=sent[-1],
                partitions=partitions,
                at_ms=runtime.now_ms(),
                configs=dict(configs or {}),
                leaders=leaders_of_new(state, sent[-1], range(partitions), nodes),
                preferred=nodes,
            )

        await self.propose(derive)
        topics = self.state.topics
        created = next((topics[topic_id] for topic_id in sent if topic_id in topics), None)
        if created is None:
            raise NoTopicError(f"topic {name!r} was created, and deleted at once by another")
        return created

    async def add_partitions(
        self, name: str, total: int, preferred: Mapping[int, Sequence[int]] | None = None
    ) -> tuple[Topic, range]:
        """Grow a topic to `total` partitions.

        `preferred` has the nodes that should lead a new partition, by its number. Returns the
        topic, and the numbers of the partitions that this change created: none if another process
        may have created them.
        """
        topic_id = (await self._found(name)).topic_id
        proposed: list[int] = []

        def derive(state: ClusterState) -> Change | None:
            topic = _same(state, topic_id, name)
            before = len(topic.partitions)
            if proposed and total == before:
                return None  # done by us, or by another process with the same total
            if before == 0:  # an import is still writing, and a leader would serve its records
                raise PartitionCountError(
                    f"topic {name!r} is being imported, which gives it its partitions: run `neve "
                    "import kafscale` again to end it, or delete the topic"
                )
            if total <= before:
                raise PartitionCountError(
                    f"topic {name!r} has {before} partitions; {total} is not more"
                )
            check_partition_count(state, self._limits, name, total, before)
            nodes = _checked_nodes(state, name, preferred)
            if any(number < before for number in nodes):
                raise AssignmentError(
                    f"topic {name!r} has {before} partitions by now: assignments are for new ones"
                )
            proposed.append(before)
            leaders = leaders_of_new(state, topic_id, range(before, total), nodes)
            return AddPartitions(topic_id, total, leaders, nodes)

        won = await self.propose(derive) is not None
        created = range(proposed[-1], total) if won else range(0)
        return _same(self.state, topic_id, name), created

    async def set_configs(
        self, name: str, values: Mapping[str, str], removed: Collection[str] = ()
    ) -> Topic:
        """Set configs of a topic, and reset others to their defaults."""
        check_configs(values)
        for config in removed:
            known_config(config)
        topic_id = (await self._found(name)).topic_id
        gone = tuple(sorted(removed))

        def derive(state: ClusterState) -> Change | None:
            configs = _same(state, topic_id, name).configs
            there = all(configs.get(key) == value for key, value in values.items())
            if there and not any(key in configs for key in gone):
                return None
            return SetConfigs(topic_id, dict(values), gone)

        await self.propose(derive)
        return _same(self.state, topic_id, name)

    async def set_broker_configs(
        self, node_id: int, values: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        """Set configs of one node, or of all (`ALL_NODES`), and remove others.

        The caller has validated them: valid values depend on the broker's settings.
        """
        gone = tuple(sorted(removed))

        def derive(state: ClusterState) -> Change | None:
            configs = state.broker_configs.get(node_id, {})
            there = all(configs.get(key) == value for key, value in values.items())
            if there and not any(key in configs for key in gone):
                return None
            return SetBrokerConfigs(node_id, dict(values), gone)

        await self.propose(derive)

    async def delete_topic(self, name: str, topic_id: str | None = None) -> Topic:
        """Delete a topic and return its last state.

        Raises NoTopicError if none has that name, or if that topic has another id than `topic_id`.
        """
        topic = await self._found(name)
        if topic_id not in (None, topic.topic_id):
            raise NoTopicError(f"topic {name!r} was deleted, and another one has its name now")
        topic_id = topic.topic_id
        await self.propose(
            lambda state: DeleteTopic(topic_id) if topic_id in state.topics else None
        )
        return topic

    async def _found(self, name: str) -> Topic:
        topic = (await self.refresh()).topic(name)  # our view may have a deleted topic of that name
        if topic is None:
            raise NoTopicError(f"there is no topic {name!r}")
        return topic

    async def dropped(self, incarnation: int, topic_ids: Sequence[str]) -> None:
        """Record that a process writes no more objects of these deleted topics."""

        def derive(state: ClusterState) -> Change | None:
            rows = [
                topic_id
                for topic_id in topic_ids
                if topic_id in state.deleted and incarnation in state.deleted[topic_id].writers
            ]
            return Dropped(incarnation, tuple(rows)) if rows else None

        await self.propose(derive)

    async def purged(self, topic_id: str) -> None:
        """Record that no object of a deleted topic is left."""
        await self.propose(
            lambda state: PurgeTopic(topic_id) if topic_id in state.deleted else None
        )

    async def producer_ids(self, incarnation: int, count: int) -> IdBlock:
        """Win a block of producer ids. A process must ask for one block at a time."""
        before = self.state.id_blocks.get(incarnation)

        def derive(state: ClusterState) -> Change | None:
            won = state.id_blocks.get(incarnation) != before
            return None if won else ProducerIds(incarnation, count)

        await self.propose(derive)
        return self.state.id_blocks[incarnation]

    async def lead(self, incarnation: int, wanted: Sequence[PartitionKey]) -> None:
        """Take the leadership of each of these partitions that has no leader."""

        def derive(state: ClusterState) -> Change | None:
            moves = moves_to(state, wanted, incarnation)
            return Lead(moves) if moves else None

        await self.propose(derive)

    async def tiered(self, parts: list[tuple[str, int, int]]) -> None:
        """Record that partitions need no stream of an epoch up to the given one."""

        def derive(state: ClusterState) -> Change | None:
            rows = [TieredPart(*row) for row in parts if _needed(state, *row)]
            return Tiered(tuple(rows)) if rows else None

        await self.propose(derive)

    async def abandon_wal(self, store_id: str) -> None:
        """Give up all streams in a WAL store. Processes that write there are ended."""

        def derive(state: ClusterState) -> Change | None:
            gone = {key for key, ref in state.wal_stores().items() if ref.store_id == store_id}
            if not gone:
                return None
            return AbandonWal(store_id=store_id, moves=moves_from(state, gone))

        await self.propose(derive)


def _incarnation(state: ClusterState, session: str) -> int | None:
    for broker in state.brokers.values():
        if broker.session == session:
            return broker.incarnation
    return None


def _needed(state: ClusterState, topic_id: str, number: int, epoch: int) -> bool:
    topic = state.topics.get(topic_id)
    if topic is None or number >= len(topic.partitions):
        return False
    partition = topic.partitions[number]
    return any(part.epoch <= epoch and part.epoch != partition.epoch for part in partition.streams)


def _checked_nodes(
    state: ClusterState, name: str, preferred: Mapping[int, Sequence[int]] | None
) -> dict[int, tuple[int, ...]]:
    """Return the preferred nodes of new partitions; none before SHARING_LEVEL.

    Raises AssignmentError.
    """
    given = {number: tuple(nodes) for number, nodes in sorted((preferred or {}).items())}
    for nodes in given.values():
        check_preferred(state, name, nodes)
    return given if state.feature_level >= SHARING_LEVEL else {}


def _same(state: ClusterState, topic_id: str, name: str) -> Topic:
    topic = state.topics.get(topic_id)
    if topic is None:
        raise NoTopicError(f"topic {name!r} was deleted meanwhile")
    return topic
