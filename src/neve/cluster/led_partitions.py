"""The partitions that a process leads, with what the configs of their topics amount to.

Looking one up is one look into a dictionary. What the cluster log says about topics is applied
here: changed configs reach the logs, and the logs of deleted topics are dropped. A dropped log may
still be worked on by who had it; `is_busy` tells until when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence

from neve.cluster.broker_config import BrokerConfigs
from neve.cluster.state import ClusterState, Topic
from neve.cluster.topic_config import TopicConfig
from neve.cluster.topic_rules import NoTopicError
from neve.errors import FencedError, InvalidError, NeveError
from neve.log.partition import PartitionLog
from neve.log.wal.reader import PartitionId
from neve.settings import SegmentSettings

_log = logging.getLogger(__name__)


class LedPartitions:
    """Partitions by topic id and number."""

    def __init__(
        self, incarnation: int, segment: SegmentSettings, broker_configs: BrokerConfigs
    ) -> None:
        self._incarnation = incarnation
        self._segment = segment
        self._broker_configs = broker_configs
        self._configs: dict[PartitionLog, TopicConfig | InvalidError] = {}
        self._topics: dict[str, Topic] = {}
        self._logs: dict[str, list[PartitionLog]] = {}
        self._working: dict[str, int] = {}  # by topic id: pieces of work that may write objects
        self.partitions: dict[PartitionId, PartitionLog] = {}
        self.codecs: dict[bytes, int] = {}  # by topic id, where batches do not stay as they came
        self.on_drop: list[Callable[[PartitionLog], None]] = []
        self.on_configured: list[Callable[[PartitionLog], None]] = []
        self.lost = False  # whether somebody else was seen to lead one of them

    def segment_settings(self, topic: Topic) -> SegmentSettings:
        """The settings of a topic's segments; the broker's where its configs make no sense."""
        config = self._config(topic)
        if isinstance(config, InvalidError):
            _log.warning("topic %s: %s: its segments are made as if it had no configs", *_of(topic))
            return self._segment
        return dataclasses.replace(self._segment, bytes=config.segment_bytes, ms=config.segment_ms)

    def _config(self, topic: Topic) -> TopicConfig | InvalidError:
        try:
            return TopicConfig.of(topic.configs, self._segment, self._broker_configs.topic_defaults)
        except InvalidError as error:
            return error

    def add(self, topic: Topic, logs: Sequence[PartitionLog]) -> None:
        """Lead these partitions of a topic from now on."""
        config = self._config(topic)
        self._see_codec(topic, config)
        self._topics[topic.topic_id] = topic
        self._logs.setdefault(topic.topic_id, []).extend(logs)
        for log in logs:
            self.partitions[log.topic_id, log.partition] = log
            self._configs[log] = config

    def config_of(self, log: PartitionLog) -> TopicConfig:
        """What the topic's configs amount to; InvalidError where they cannot be read."""
        config = self._configs.get(log)
        if isinstance(config, TopicConfig):
            return config
        raise FencedError(f"this node does not lead {log.name}") if config is None else config

    def clear(self, error: NeveError) -> None:
        """Lead nothing any more; who waits for the logs is told why."""
        logs = list(self.partitions.values())
        self.partitions.clear()
        self._configs.clear()
        self._topics.clear()
        self._logs.clear()
        self.codecs.clear()
        for log in logs:
            log.close(error)

    def apply(self, state: ClusterState) -> None:
        """Take in what the cluster log says now."""
        defaults_changed = self._broker_configs.apply(state)
        for topic_id, before in list(self._topics.items()):
            topic = state.topics.get(topic_id)
            if topic is None:
                self._drop(topic_id)
                continue
            if topic is not before:
                self._topics[topic_id] = topic
                self._see_leaders(topic)
            if defaults_changed or topic.configs != before.configs:
                self._configure(topic)

    def _see_leaders(self, topic: Topic) -> None:
        for log in self._logs[topic.topic_id]:
            self.lost |= topic.partitions[log.partition].leader != self._incarnation

    def _see_codec(self, topic: Topic, config: TopicConfig | InvalidError) -> None:
        if isinstance(config, TopicConfig) and config.codec is not None:
            self.codecs[topic.id_bytes] = config.codec
        else:
            self.codecs.pop(topic.id_bytes, None)

    def _configure(self, topic: Topic) -> None:
        config, segment = self._config(topic), self.segment_settings(topic)
        self._see_codec(topic, config)
        for log in self._logs[topic.topic_id]:
            self._configs[log] = config
            log.configure(segment)
            for told in self.on_configured:
                told(log)

    def _drop(self, topic_id: str) -> None:
        name = self._topics.pop(topic_id).name
        self.codecs.pop(bytes.fromhex(topic_id), None)
        for log in self._logs.pop(topic_id):
            self.partitions.pop((log.topic_id, log.partition), None)
            self._configs.pop(log, None)
            log.close(NoTopicError(f"topic {name!r} was deleted"))
            for told in self.on_drop:
                told(log)

    @contextlib.contextmanager
    def working(self, topic_id: bytes) -> Iterator[None]:
        """While this is entered, objects of the topic may be written by us."""
        key = topic_id.hex()
        self._working[key] = self._working.get(key, 0) + 1
        try:
            yield
        finally:
            self._working[key] -= 1
            if not self._working[key]:
                del self._working[key]

    def is_busy(self, topic_id: str) -> bool:
        """Whether somebody may still write objects of this topic."""
        return topic_id in self._working or topic_id in self._topics


def _of(topic: Topic) -> tuple[str, str]:
    return topic.name, str(topic.configs)
