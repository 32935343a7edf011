"""The partitions that this process leads.

The registry applies the cluster log: changed configs reach the leaders of the topic's partitions,
and a partition is lost when its topic is deleted or the log names another leader for it. Work on a
lost partition may still run; `may_write` says until when.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from neve import runtime
from neve.cluster.broker_config import BrokerConfigs
from neve.cluster.maintenance_queues import MaintenanceQueues
from neve.cluster.partition_leader import PartitionLeader
from neve.cluster.state import ClusterState, Topic
from neve.cluster.topic_config import TopicConfig
from neve.cluster.topic_rules import NoTopicError
from neve.errors import FencedError, InvalidError, NeveError
from neve.log.partition import PartitionLog
from neve.log.wal.reader import PartitionId
from neve.serving.logs import event
from neve.settings import PARTITION_BYTES, SegmentSettings, Settings

_log = logging.getLogger(__name__)


class LedPartitions:
    """Partition leaders by topic id and partition number.

    `serving` has those that serve clients, `partitions` also those that were stopped in order to
    be released: their last batches may still have to be committed.

    `on_led` is called with each leader that begins to serve, `on_lost` with each that no longer
    does while this process goes on. When the process itself ends, `clear` closes all leaders and
    calls neither.
    """

    def __init__(
        self,
        incarnation: int,
        settings: Settings,
        broker_configs: BrokerConfigs,
        queues: MaintenanceQueues,
        memory: runtime.MemoryBudget,
    ) -> None:
        self._incarnation = incarnation
        self._segment = settings.segment
        self.memory = memory.state("partitions", PARTITION_BYTES * settings.cluster.partitions_max)
        self._broker_configs = broker_configs
        self._queues = queues
        self._topics: dict[str, Topic] = {}
        self._leaders: dict[str, list[PartitionLeader]] = {}
        self.partitions: dict[PartitionId, PartitionLeader] = {}
        self.serving: dict[PartitionId, PartitionLeader] = {}
        self.codecs: dict[bytes, int] = {}  # by topic id, if its batches are recompressed
        self.on_led: list[Callable[[PartitionLeader], None]] = []
        self.on_lost: list[Callable[[PartitionLeader], None]] = []

    def _configs(self, topic: Topic) -> tuple[TopicConfig | InvalidError, SegmentSettings]:
        """Return a topic's config, and its segments' settings: the broker's if it is not valid."""
        segment = self._segment
        try:
            config = TopicConfig.of(topic.configs, segment, self._broker_configs.topic_defaults)
        except InvalidError as error:
            configs = str(topic.configs)
            _log.warning(
                "topic %s: %s: its segments are made as if it had no configs", topic.name, configs
            )
            return error, segment
        return config, dataclasses.replace(
            segment, bytes=config.segment_bytes, ms=config.segment_ms
        )

    def add(self, topic: Topic, logs: Sequence[PartitionLog]) -> None:
        """Lead these partitions of a topic from now on, with its current configs."""
        config, segment = self._configs(topic)
        self._set_codec(topic, config)
        self._topics[topic.topic_id] = topic
        leaders = self._leaders.setdefault(topic.topic_id, [])
        self.memory.count(PARTITION_BYTES * len(logs))
        for log in logs:
            log.configure(segment)
            leader = PartitionLeader(
                log,
                config,
                self._queues,
                has_earlier_streams=len(topic.partitions[log.partition].streams) > 1,
            )
            leaders.append(leader)
            self.partitions[log.topic_id, log.partition] = leader
            self._serve(leader)
        self._queues.notify()

    def _serve(self, leader: PartitionLeader) -> None:
        self.serving[leader.log.topic_id, leader.log.partition] = leader
        for notify in self.on_led:
            notify(leader)

    def stop(self, leader: PartitionLeader) -> None:
        """Serve a partition no longer, because it is about to be released.

        Its batches that were appended can still commit. `resume` or the cluster log end this.
        """
        if self.serving.pop((leader.log.topic_id, leader.log.partition), None) is leader:
            leader.stop(FencedError(f"{leader.name} is being moved to another broker"))
            for notify in self.on_lost:
                notify(leader)

    def resume(self, leader: PartitionLeader) -> None:
        """Serve a stopped partition again, unless it was lost meanwhile."""
        at = (leader.log.topic_id, leader.log.partition)
        if self.partitions.get(at) is leader and at not in self.serving:
            leader.resume()
            self._serve(leader)
            self._queues.notify()

    def clear(self, error: NeveError) -> None:
        """Lead nothing from now on, because of `error`."""
        leaders = list(self.partitions.values())
        self.partitions.clear()
        self.serving.clear()
        self._topics.clear()
        self._leaders.clear()
        self.codecs.clear()
        for leader in leaders:
            leader.close(error)

    def apply(self, state: ClusterState) -> None:
        """Apply a new state of the cluster log."""
        defaults_changed = self._broker_configs.apply(state)
        for topic_id, before in list(self._topics.items()):
            topic = state.topics.get(topic_id)
            if topic is None:
                self._lose_topic(before)
                continue
            if topic is not before:
                self._topics[topic_id] = topic
                self._lose_moved(topic)
            if defaults_changed or topic.configs != before.configs:
                self._configure(topic)

    def _set_codec(self, topic: Topic, config: TopicConfig | InvalidError) -> None:
        if isinstance(config, TopicConfig) and config.codec is not None:
            self.codecs[topic.id_bytes] = config.codec
        else:
            self.codecs.pop(topic.id_bytes, None)

    def _configure(self, topic: Topic) -> None:
        config, segment = self._configs(topic)
        self._set_codec(topic, config)
        for leader in self._leaders[topic.topic_id]:
            leader.configure(config, segment)

    def _lose_topic(self, topic: Topic) -> None:
        del self._topics[topic.topic_id]
        self.codecs.pop(topic.id_bytes, None)
        for leader in self._leaders.pop(topic.topic_id):
            self._lose(leader, NoTopicError(f"topic {topic.name!r} was deleted"))

    def _lose_moved(self, topic: Topic) -> None:
        """Lose the partitions that the cluster log no longer gives to this process."""
        kept: list[PartitionLeader] = []
        for leader in self._leaders[topic.topic_id]:
            current = topic.partitions[leader.log.partition]
            if current.leader == self._incarnation and current.epoch == leader.log.epoch:
                kept.append(leader)
                continue
            about = {"partition": leader.name, "epoch": current.epoch, "leader": current.leader}
            event(_log, logging.INFO, "partition lost", **about)
            self._lose(leader, FencedError(f"another process leads {leader.name} now"))
        self._leaders[topic.topic_id] = kept

    def _lose(self, leader: PartitionLeader, error: NeveError) -> None:
        at = (leader.log.topic_id, leader.log.partition)
        self.partitions.pop(at, None)
        was_serving = self.serving.pop(at, None) is not None
        leader.close(error)
        self.memory.give_back(PARTITION_BYTES)
        if was_serving:  # otherwise `stop` has notified them
            for notify in self.on_lost:
                notify(leader)

    def may_write(self, topic_id: str) -> bool:
        """Whether this process may still write objects of a topic."""
        return topic_id in self._topics or self._queues.is_writing(bytes.fromhex(topic_id))
