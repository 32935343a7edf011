"""Create, grow, configure and delete topics, on behalf of one node.

Each operation proposes a change to the cluster log and logs it. Of the partitions that it has
created, a node leads those that placement gives it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from neve.cluster.log import ClusterLog
from neve.cluster.state import Topic
from neve.cluster.takeover import Takeover
from neve.serving.logs import event

_log = logging.getLogger(__name__)


class TopicOperations:
    """The operations on topics of one node's cluster."""

    def __init__(self, cluster: ClusterLog, takeover: Takeover) -> None:
        self._cluster = cluster
        self._takeover = takeover

    async def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        preferred: Mapping[int, Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic, and lead those of its partitions that this node should lead.

        `preferred` has the nodes that should lead a partition, by its number.
        """
        topic = await self._cluster.create_topic(name, partitions, configs, preferred)
        event(
            _log,
            logging.INFO,
            "topic created",
            topic=name,
            topic_id=topic.topic_id,
            partitions=partitions,
            configs=dict(configs or {}),
        )
        await self._takeover.lead_created(topic, range(partitions))
        return topic

    async def add_partitions(
        self, name: str, total: int, preferred: Mapping[int, Sequence[int]] | None = None
    ) -> Topic:
        """Grow a topic to `total` partitions, and lead the new ones that this node should lead."""
        topic, created = await self._cluster.add_partitions(name, total, preferred)
        event(_log, logging.INFO, "partitions added", topic=name, partitions=total)
        await self._takeover.lead_created(topic, created)
        return topic

    async def set_configs(
        self, name: str, values: Mapping[str, str], removed: Collection[str] = ()
    ) -> Topic:
        """Set configs of a topic and remove others. They apply to led partitions at once."""
        topic = await self._cluster.set_configs(name, values, removed)
        given = {"topic": name, "configs": dict(values), "removed": list(removed)}
        event(_log, logging.INFO, "topic configs changed", **given)
        return topic

    async def delete(self, name: str, topic_id: str | None = None) -> Topic:
        """Delete a topic and return its last state. With `topic_id`, only if it has this id.

        Its logs here are closed; a purge deletes its objects later.
        """
        topic = await self._cluster.delete_topic(name, topic_id)
        event(_log, logging.INFO, "topic deleted", topic=name, topic_id=topic.topic_id)
        return topic
