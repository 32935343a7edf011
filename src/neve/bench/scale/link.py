"""Messages between simulated brokers, in memory: each takes a millisecond there and one back.

A killed broker refuses connections, as its host does once the process is gone. A silent one accepts
them and answers nothing, as after SIGSTOP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from neve import runtime
from neve.cluster.membership import Membership
from neve.cluster.node import Node
from neve.cluster.peer_link import PeerError, PeerRefusedError, PingAnswer
from neve.cluster.state import BrokerRegistration, PartitionKey
from neve.errors import NeveError

T = TypeVar("T")

MESSAGE_SECONDS = 0.001
ANNOUNCE_SECONDS = 1.0


class PeerNetwork:
    """The memberships that answer messages, by incarnation."""

    def __init__(self) -> None:
        self.members: dict[int, Membership] = {}
        self.silent: set[int] = set()  # only for look-ups
        self.messages = 0

    async def ask(
        self, target: int, seconds: float, work: Callable[[Membership], Awaitable[T]]
    ) -> T:
        """Let a process handle a message. Raises PeerError if it does not answer in time."""
        self.messages += 1
        try:
            async with runtime.deadline(seconds):
                await runtime.sleep(MESSAGE_SECONDS)
                if target in self.silent:
                    await runtime.sleep(seconds)
                member = self.members.get(target)
                if member is None:
                    raise PeerRefusedError(f"no process listens for incarnation {target}")
                answer = await work(member)
                await runtime.sleep(MESSAGE_SECONDS)
        except TimeoutError:
            raise PeerError(f"incarnation {target} does not answer") from None
        except PeerError:
            raise
        except NeveError as error:
            raise PeerError(f"incarnation {target}: {error}") from error
        return answer


class SimulatedLink:
    """The PeerLink of one broker."""

    def __init__(self, network: PeerNetwork, node: Node) -> None:
        self._network = network
        self._node = node
        self._announcing = runtime.Tasks(on_failure=lambda _: None)

    async def close(self) -> None:
        await self._announcing.close()

    async def ping(
        self,
        target: BrokerRegistration,
        seconds: float,
        *,
        watches: bool = False,
        hears: bool = False,
    ) -> PingAnswer:
        own, position = self._node.incarnation, self._node.cluster.view.position

        async def pinged(member: Membership) -> PingAnswer:
            member.pinged(own, position, watches=watches, hears=hears)
            return PingAnswer(member.position, member.dropped)

        return await self._network.ask(target.incarnation, seconds, pinged)

    async def probe(
        self, target: BrokerRegistration, suspect: BrokerRegistration, seconds: float
    ) -> bool:
        return await self._network.ask(
            target.incarnation, seconds, lambda member: member.refuses(suspect.incarnation)
        )

    async def release(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        rows = dict.fromkeys(wanted, self._node.incarnation)

        async def released(member: Membership) -> tuple[int, int]:
            return await member.release(rows), member.position

        count, position = await self._network.ask(target.incarnation, seconds, released)
        self._node.cluster.seen(position)
        return count

    async def pull(
        self, target: BrokerRegistration, wanted: Collection[PartitionKey], seconds: float
    ) -> int:
        position = self._node.cluster.view.position
        return await self._network.ask(
            target.incarnation, seconds, lambda member: member.pull(wanted, position)
        )

    async def notify(self, target: BrokerRegistration, end: int, seconds: float) -> int:
        own = self._node.incarnation

        async def notified(member: Membership) -> int:
            return member.notified(own, end)

        return await self._network.ask(target.incarnation, seconds, notified)

    def announce(self, targets: Collection[BrokerRegistration]) -> None:
        for target in targets:
            self._announcing.start(self._announce(target))

    async def _announce(self, target: BrokerRegistration) -> None:
        await self.ping(target, ANNOUNCE_SECONDS)

    def forget(self, live: Collection[int]) -> None:
        """Do nothing: there are no connections."""
