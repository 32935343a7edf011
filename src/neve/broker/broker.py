"""One broker process: a node of the cluster, and everything that serves Kafka's clients from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Protocol

from neve import runtime
from neve.broker.admin.cluster import ClusterAdmin
from neve.broker.admin.configs import ConfigAdmin
from neve.broker.admin.elections import ElectionAdmin
from neve.broker.admin.offsets import OffsetAdmin
from neve.broker.admin.partitions import PartitionAdmin
from neve.broker.admin.reassignments import ReassignmentAdmin
from neve.broker.admin.topics import TopicAdmin
from neve.broker.fetch.sessions import FetchSessions
from neve.broker.metrics import Metrics
from neve.broker.offsets_topic import OffsetsTopic
from neve.broker.peers import PeerConnections
from neve.broker.server import Server
from neve.broker.unsent_responses import UnsentResponses
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.membership import Membership
from neve.cluster.node import Node
from neve.cluster.peer_auth import PeerAuthentication, PeerAuthenticationError
from neve.errors import NeveError, UnavailableError
from neve.log.index_cache import IndexCache
from neve.log.reading.leader.reader import LogReader
from neve.log.remote import BucketRemoteStorage
from neve.serving.addresses import Address
from neve.serving.logs import Repeated, event
from neve.settings import FetchSettings, Settings
from neve.settings.masking import masked
from neve.store.url import Stack

log = logging.getLogger("neve.broker")

# How long to wait for the store to confirm leadership. Responses leave in the order of requests, so
# a store that hangs would hold up a connection. Longer than the time-out of an offset commit, which
# has an error of its own.
LEADERSHIP_CHECK_SECONDS_MAX = 10.0

# How long an admin request waits for what is new in the cluster log. If the store fails or hangs,
# the request is handled by what this broker knows; a change is checked again when it is decided.
CLUSTER_LOG_SECONDS_MAX = 2.0

# How long a start waits for partitions whose streams lie in WAL stores. Those left are led later.
LEAD_SECONDS_MAX = 30.0

# How many requests search offsets by time at once. Others wait, and hold only their request.
SEARCHING_REQUESTS_MAX = 4


class WaitingFetch(Protocol):
    """A fetch that waits for new records."""

    def end_wait(self) -> None: ...


class Broker:
    """Create it with `start`, and end it with `stop`. `ended` is done when it has failed."""

    def __init__(
        self,
        stack: Stack,
        settings: Settings,
        node: Node,
        indexes: IndexCache,
        *,
        store_url: str,
        advertised: Address,
    ) -> None:
        self.stack = stack
        self.settings = settings
        self.node = node
        self.node_id = settings.broker.node_id
        self.advertised = advertised
        self.store_url = masked(store_url)  # for messages: without secrets
        self.topics = TopicAdmin(node, settings)
        self.partitions = PartitionAdmin(node, self.topics, self.still_leading)
        self.cluster = ClusterAdmin(node, advertised)
        self.reassignments = ReassignmentAdmin(node, self.topics)
        self.configs = ConfigAdmin(
            node, self.topics, settings, advertised=advertised, store_url=self.store_url
        )
        self.metrics = Metrics()
        self.sessions = _fetch_sessions(node, settings.fetch)
        self.indexes = indexes
        self.reader = LogReader(
            stack.store,
            indexes,
            settings.fetch,
            ahead=stack.prefetch,
            hot_work=lambda: self.metrics.produce_batches,
        )
        self.offsets = OffsetAdmin(self.reader)
        self.unsent = UnsentResponses(settings.fetch.unsent_bytes)
        self.waiting = runtime.MemoryShare("waiting-fetches", settings.fetch.waiting_bytes)
        node.memory.add(
            node.queues.memory,
            self.reader.cold.budget,
            self.reader.times.share,
            self.unsent.share,
            self.waiting,
        )
        self.searching = asyncio.Semaphore(SEARCHING_REQUESTS_MAX)
        self.waiting_fetches: dict[WaitingFetch, None] = {}
        self.limited_log = Repeated(log, settings.logs)
        self.server = Server(self)
        self.changing = runtime.Tasks(_change_failed)  # cluster changes for clients
        self.offsets_topic = OffsetsTopic(
            node, node.broker_configs.settings.groups, self.limited_log.warning
        )
        self.groups = self.offsets_topic.groups
        self.background = BackgroundLoops(node, settings)
        self.peer_authentication = PeerAuthentication(node.cluster, node.incarnation, node.key_pair)
        self.peers = PeerConnections(node.cluster, node.incarnation, self.peer_authentication)
        self.membership = Membership(node, self.peers, settings.cluster)
        self.elections = ElectionAdmin(node, self.topics, self.membership)
        self.ended: asyncio.Future[NeveError] = asyncio.get_running_loop().create_future()
        self.is_ready = False

    @classmethod
    async def start(
        cls,
        stack: Stack,
        settings: Settings,
        where: socket.socket,
        *,
        store_url: str,
        advertised: Address,
        puts_cost: bool,
    ) -> Broker:
        """Register the broker, listen, take over partitions, and load the groups."""
        began = runtime.monotonic()
        node = await Node.start(
            stack.store,
            settings,
            node_id=settings.broker.node_id,
            puts_cost=puts_cost,
            host=advertised.host,
            port=advertised.port,
            rack=settings.broker.rack,
        )
        indexes = await IndexCache.open(BucketRemoteStorage(stack.store), settings.cache)
        broker = cls(stack, settings, node, indexes, store_url=store_url, advertised=advertised)
        node.on_end(broker._node_ended)
        try:
            # Other brokers ping this one from now on, however long the recovery takes.
            await broker.server.listen(where)
            broker.membership.start()
            node.replication.start(broker.peers)
            await broker._lead_all()
            await broker.offsets_topic.load()
            broker.background.start()
        except BaseException:
            await broker.abort()
            raise
        broker.is_ready = True
        event(
            log,
            logging.INFO,
            "broker ready",
            incarnation=node.incarnation,
            topics=len(node.cluster.state.topics),
            partitions=len(node.led.partitions),
            groups=len(broker.groups),
            seconds=round(runtime.monotonic() - began, 3),
        )
        return broker

    async def _lead_all(self) -> None:
        """Take over all partitions. A damaged partition does not stop the others.

        Streams in other stores may be unreachable for long: then the rest is not waited for.
        """
        if not self.node.cluster.state.wal_stores():
            await self._lead()
            return
        leading = self.changing.start(self._lead(), name="lead")
        done, _ = await asyncio.wait([leading], timeout=LEAD_SECONDS_MAX)
        if done:
            leading.result()
        else:
            log.error("some partitions are not recovered yet: the broker starts without them")

    async def _lead(self) -> None:
        try:
            await self.node.takeover.lead()
        except NeveError as error:
            if self.node.writer.ended is not None:
                raise
            log.error("some partitions cannot be served: %s", error)

    @property
    def is_full(self) -> bool:
        """Whether the WAL buffer is full."""
        return self.node.writer.full

    async def still_leading(self) -> bool:
        """Return whether no other process had taken over when this was called.

        If one had, this broker has ended when this returns. Raises UnavailableError if the store
        does not answer in time.
        """
        try:
            async with runtime.deadline(LEADERSHIP_CHECK_SECONDS_MAX):
                return await self.node.writer.still_leading()
        except TimeoutError:
            raise UnavailableError(
                self.node.writer.keys.prefix,
                "the store did not confirm leadership in time",
            ) from None

    def log_not_authentic(self, client: str, error: PeerAuthenticationError) -> None:
        """Log a message that no other broker is proven to have sent: once per cause and window."""
        self.limited_log.warning(client, f"broker message: {error.cause}", f"refused: {error}")

    async def read_cluster_log(self) -> None:
        """Read what is new in the cluster log, if the store answers in time."""
        with contextlib.suppress(NeveError, TimeoutError):
            async with runtime.deadline(CLUSTER_LOG_SECONDS_MAX):
                await self.node.cluster.refresh()

    def _node_ended(self, error: NeveError) -> None:
        """Stop responding, so that clients look for the broker that has taken over."""
        self.is_ready = False
        # After the callbacks of commits, so that decided requests get their responses.
        asyncio.get_running_loop().call_soon(self.server.close_all, "fenced")
        if not self.ended.done():
            self.ended.set_result(error)

    # -- stopping ----------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Commit and respond to the accepted requests, then end, within `broker.stop.grace.ms`.

        Returns False if that was too short: a request has no response, or is not committed.
        """
        self.is_ready = False
        ends_at = runtime.monotonic() + self.settings.broker.stop_grace_ms / 1000
        await self._leave(ends_at)
        await self.server.stop_accepting()
        for waiting in list(self.waiting_fetches):
            waiting.end_wait()
        done = await self.server.drain(ends_at - runtime.monotonic())
        await self.changing.close()
        await self.membership.close()
        await self.node.replication.close()
        await self.background.close()
        await self.offsets_topic.close()
        try:
            async with runtime.deadline(max(0.1, ends_at - runtime.monotonic())):
                await self.node.close()
        except (TimeoutError, NeveError) as error:
            log.warning("stopped before all records were committed: %s", error)
            await self.node.abort()
            done = False
        await self._close_rest(ends_at - runtime.monotonic())
        return done

    async def _leave(self, ends_at: float) -> None:
        """Release all partitions, so that other brokers serve them while this one stops."""
        try:
            async with runtime.deadline(max(0.0, ends_at - runtime.monotonic()) / 2):
                await self.node.release_all()
        except (TimeoutError, NeveError) as error:
            log.warning("stopping without having released all partitions: %s", error)

    async def abort(self) -> None:
        """Stop at once, as a crash would."""
        self.is_ready = False
        await self.changing.close()
        await self.membership.close()
        await self.node.replication.close()
        await self.background.close()
        await self.offsets_topic.close()
        await self.node.abort()
        await self._close_rest(linger_seconds=0.0)

    async def _close_rest(self, linger_seconds: float) -> None:
        await self.peers.close()
        await self.server.close(linger_seconds)
        await self.reader.aclose()
        await self.indexes.aclose()
        await self.stack.close()


def _fetch_sessions(node: Node, settings: FetchSettings) -> FetchSessions:
    return FetchSessions(
        settings.sessions_max,
        settings.session_evict_ms / 1000,
        settings.session_partitions_max,
        node.memory.state("fetch-sessions", settings.sessions_bytes),
    )


def _change_failed(failure: BaseException) -> None:
    log.error("a change of the cluster failed", exc_info=failure)
