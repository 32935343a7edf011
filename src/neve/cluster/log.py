"""The cluster log in a bucket: reading it, and proposing changes to it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

from neve import runtime
from neve.cluster.records import (
    FEATURE_LEVEL,
    Change,
    CreateTopic,
    DeleteTopic,
    Init,
    Lead,
    Move,
    Record,
    Register,
    Tiered,
    TieredPart,
)
from neve.cluster.state import ClusterRules, ClusterState, Topic
from neve.errors import (
    ConflictError,
    InvalidError,
    NeveError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.keys import cluster_log
from neve.log.series import Series, View, greatest_checkpoint
from neve.store.port import Store

CHECKPOINT_NUMBERS = 256
TOPIC_NAME_MAX = 249
PARTITIONS_MAX = 100_000
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class NoClusterError(NeveError):
    """There is no Neve cluster in this bucket."""


class TopicExistsError(InvalidError):
    """A topic of this name is there already."""


class NoTopicError(InvalidError):
    """There is no topic of this name."""


class ClusterLog:
    """One process's view of the cluster log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._series: Series[ClusterState, Record] = Series(store, cluster_log(), ClusterRules())
        self._checkpointed = 0
        self.view: View[ClusterState] = View(0, ClusterState())

    @property
    def state(self) -> ClusterState:
        return self.view.state

    async def refresh(self) -> ClusterState:
        """Read what is new."""
        self._reached((await self._series.advance(self.view)).view)
        return self.view.state

    async def must_exist(self) -> ClusterState:
        """Read what is new; NoClusterError if the bucket never was a cluster's."""
        state = await self.refresh()
        if not state.cluster_id:
            raise NoClusterError(
                "this bucket holds no Neve cluster (nothing under meta/log/): check the URL, or "
                "pass --layout kafscale for a KafScale bucket"
            )
        return state

    def _reached(self, view: View[ClusterState]) -> None:
        if view.position >= self.view.position:
            self.view = view
        _check_feature_level(self.view.state)

    async def propose(self, derive: Callable[[ClusterState], Change | None]) -> int | None:
        """Bring a change about; the number it won, or None where it was not needed."""

        def record(view: View[ClusterState]) -> Record | None:
            # Before anything is written: what a newer level means is not ours to build on.
            _check_feature_level(view.state)
            change = derive(view.state)
            return None if change is None else Record(change)

        outcome = await self._series.propose(self.view, record)
        self._reached(outcome.view)
        # The change is won whatever becomes of the checkpoint; the next proposal tries again.
        with contextlib.suppress(UnavailableError, ConflictError):
            await self._checkpoint_if_due()
        return outcome.number

    async def _checkpoint_if_due(self) -> None:
        if self.view.position - self._checkpointed < CHECKPOINT_NUMBERS:
            return
        greatest = await greatest_checkpoint(self._store, self._series.keys)
        self._checkpointed = max(self._checkpointed, greatest or 0)
        if self.view.position - self._checkpointed >= CHECKPOINT_NUMBERS:
            await self._series.checkpoint(self.view)
            self._checkpointed = self.view.position
            await self._series.trim()

    async def init(self) -> ClusterState:
        """Make the bucket a cluster's, unless it is one already."""

        def derive(state: ClusterState) -> Change | None:
            if state.cluster_id:
                return None
            return Init(runtime.token(16).hex(), FEATURE_LEVEL, runtime.now_ms())

        await self.propose(derive)
        return self.state

    async def register(
        self, node_id: int, *, inflight: int, host: str = "", port: int = 0, rack: str = ""
    ) -> int:
        """Register a broker process; its incarnation. An earlier one of the same node ends."""
        session = runtime.token(16).hex()

        def derive(state: ClusterState) -> Change | None:
            if _incarnation(state, session) is not None:
                return None
            return Register(
                node_id=node_id,
                session=session,
                inflight=inflight,
                at_ms=runtime.now_ms(),
                host=host,
                port=port,
                rack=rack,
            )

        number = await self.propose(derive)
        number = _incarnation(self.state, session) if number is None else number
        assert number is not None  # derive returns None only where the session is there
        return number

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic; TopicExistsError if there is one of that name."""
        check_topic_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidError(
                f"topic {name!r} cannot have {partitions} partitions: 1 to {PARTITIONS_MAX}"
            )
        sent: list[str] = []  # an id whose fate a checkpoint hid is never sent a second time

        def derive(state: ClusterState) -> Change | None:
            if any(topic_id in state.topics or topic_id in state.deleted for topic_id in sent):
                return None
            if state.topic(name) is not None:
                raise TopicExistsError(f"there is already a topic {name!r}")
            sent.append(runtime.token(16).hex())
            return CreateTopic(
                name=name,
                topic_id=sent[-1],
                partitions=partitions,
                at_ms=runtime.now_ms(),
                configs=dict(configs or {}),
            )

        await self.propose(derive)
        topics = self.state.topics
        created = next((topics[topic_id] for topic_id in sent if topic_id in topics), None)
        if created is None:
            raise NoTopicError(f"topic {name!r} was created, and deleted at once by another")
        return created

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; NoTopicError if there is none of that name."""
        topic = (await self.refresh()).topic(name)  # an older one of that name may be gone
        if topic is None:
            raise NoTopicError(f"there is no topic {name!r}")
        topic_id = topic.topic_id
        await self.propose(
            lambda state: DeleteTopic(topic_id) if topic_id in state.topics else None
        )

    async def lead(self, incarnation: int, wanted: list[tuple[str, int]]) -> None:
        """Take leadership of partitions. Their earlier streams are to be sealed and read next."""

        def derive(state: ClusterState) -> Change | None:
            moves = []
            for topic_id, number in wanted:
                topic = state.topics.get(topic_id)
                if topic is None or number >= len(topic.partitions):
                    continue
                if topic.partitions[number].leader == incarnation:
                    continue
                moves.append(
                    Move(
                        topic_id=topic_id,
                        partition=number,
                        epoch=topic.partitions[number].epoch + 1,
                        incarnation=incarnation,
                    )
                )
            return Lead(tuple(moves)) if moves else None

        await self.propose(derive)

    async def tiered(self, parts: list[tuple[str, int, int]]) -> None:
        """Note that partitions need no stream of an epoch up to the given one any more."""

        def derive(state: ClusterState) -> Change | None:
            rows = [TieredPart(*row) for row in parts if _needed(state, *row)]
            return Tiered(tuple(rows)) if rows else None

        await self.propose(derive)


def _check_feature_level(state: ClusterState) -> None:
    if state.feature_level > FEATURE_LEVEL:
        raise UnsupportedError(
            f"the cluster has feature level {state.feature_level} and this version knows "
            f"{FEATURE_LEVEL}: upgrade"
        )


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


def check_topic_name(name: str) -> None:
    """Kafka's rules for names."""
    if not _TOPIC_NAME.fullmatch(name) or len(name) > TOPIC_NAME_MAX or name in {".", ".."}:
        raise InvalidError(
            f"{name!r} cannot be a topic's name: 1 to {TOPIC_NAME_MAX} of letters, digits, '.', "
            "'_' and '-', and not '.' or '..'"
        )
