"""Writes objects of a topic only while the topic is known to exist.

The cluster log forgets a deleted topic once no process can write its objects any more
(docs/contributors/cluster.md has the rules for writers). A job is not registered in the cluster
log, so it follows the rule that needs no registration: it writes only if its view of the cluster
log is younger than half of `cluster.purge.delay.ms`, and gives a write up after the other half. An
abandoned object is under a prefix that is swept with its topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from neve import runtime
from neve.bucket.verify.findings import PartitionRef
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.state import ClusterState, PartitionState, Topic
from neve.errors import InvalidError, UnavailableError
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import segment_prefix
from neve.log.manifest.manifest import Manifest
from neve.settings import Settings
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")

_WRITES = ("create", "put")


class GuardedStore(Wrapper):
    """A store wrapper that writes objects of one topic only while the topic exists."""

    def __init__(
        self, inner: Store, cluster: ClusterLog, topic: Topic, *, purge_delay_ms: int
    ) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._topic = topic
        self._half_delay_seconds = purge_delay_ms / 2000

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation not in _WRITES:
            return await work()
        if runtime.monotonic() - self._cluster.read_at > self._half_delay_seconds:
            await self._cluster.refresh()
        check_alive(self._cluster, self._topic)
        try:
            async with runtime.deadline(self._half_delay_seconds):
                return await work()
        except TimeoutError:
            raise UnavailableError(
                call.key,
                f"writing it took longer than {self._half_delay_seconds} s (half of "
                "cluster.purge.delay.ms)",
            ) from None


def check_alive(cluster: ClusterLog, topic: Topic) -> None:
    """Raise NoTopicError if the topic is gone from the cluster log as last read."""
    if topic.topic_id not in cluster.state.topics:
        raise NoTopicError(f"topic {topic.name!r} was deleted meanwhile")


class MaintainedPartition(NamedTuple):
    """One partition of a live topic, ready to be maintained."""

    place: PartitionRef
    topic: Topic
    state: PartitionState
    cluster: ClusterLog
    store: Store
    manifest: Manifest

    @property
    def prefix(self) -> str:
        """The key prefix of the partition's segments and bundles."""
        return segment_prefix(self.topic.name, self.topic.id_bytes, self.place.partition)

    async def must_be_alive(self) -> None:
        """Raise NoTopicError if the topic was deleted. Call this before reporting damage.

        A deleted topic's objects may be swept while a job reads them.
        """
        await self.cluster.refresh()
        check_alive(self.cluster, self.topic)


def topic_with(state: ClusterState, topic: str, partition: int) -> Topic:
    """Return a topic that has this partition. Raises NoTopicError or InvalidError."""
    found = state.topic(topic)
    if found is None:
        raise NoTopicError(f"there is no topic {topic!r}")
    if not 0 <= partition < len(found.partitions):
        raise InvalidError(
            f"partition {partition} does not exist in topic {topic!r}; valid partitions: "
            f"0-{len(found.partitions) - 1}"
        )
    return found


async def open_partition(
    store: Store, topic: str, partition: int, settings: Settings | None = None
) -> MaintainedPartition:
    """Open a partition. Raises NoTopicError or InvalidError if it does not exist."""
    chosen = settings or Settings()
    cluster = ClusterLog(store, chosen.cluster)
    found = topic_with(await cluster.must_exist(), topic, partition)
    guarded = GuardedStore(store, cluster, found, purge_delay_ms=chosen.cluster.purge_delay_ms)
    manifest = Manifest(guarded, manifest_keys(found.name, found.id_bytes, partition))
    await manifest.refresh()
    place = PartitionRef(found.name, found.topic_id, partition)
    return MaintainedPartition(
        place, found, found.partitions[partition], cluster, guarded, manifest
    )
