"""The cluster loop: brokers of one bucket die, are paused and are cut off, under load.

`run` returns what happened; it raises ViolationError, with the seed and the history's file, when a
promise was broken. The history has what each client was told, line by line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from soak.cluster_clients import Follower, Prober, leaders
from soak.cluster_plan import NODES, TOPICS, ClusterPlan, Event
from soak.kill_loop import Log, Outcome, create_topics, read_through_broker
from soak.ledger import Ledger, Place, ViolationError
from soak.load import Client, Stage, wait_until
from soak.nursery import BrokerEndedError, Nursery
from soak.producers import LibrdkafkaProducer
from soak.proxies import Proxies, Route, host_of
from soak.readers import GroupConsumer
from support.servers import free_ports

READY_SECONDS = 60.0
RECOVERY_SECONDS = 120.0
STORE_ANSWER_SECONDS = 15.0
"""More than a broker waits for the store before it answers a client that it cannot."""
SETTLE_SECONDS = 120.0
READ_ATTEMPTS = 5
OUTAGE_BEGINS_SECONDS = 0.5
"""Until then a call that was on its way when the outage began may still declare a broker dead."""
_EXPIRED = "broker declared dead"
_FORBIDDEN = re.compile(r"Traceback|is damaged|KAFKA_STORAGE_ERROR")


@dataclass
class ClusterOutcome(Outcome):
    """What a run amounted to, for tests that ask whether anything happened at all."""

    events: Counter[str] = field(default_factory=Counter)
    expired: int = 0
    leaders: int = 0
    recovery_seconds: dict[str, float] = field(default_factory=dict)
    probes: int = 0
    peer_connections: int = 0


class ClusterLoop:
    """One run of one plan in one folder, on a store of its own."""

    def __init__(
        self,
        plan: ClusterPlan,
        folder: Path,
        *,
        store: str,
        store_pid: int = 0,
        **store_settings: object,
    ) -> None:
        self.plan = plan
        self._store_pid = store_pid
        self.ledger = Ledger(folder / "history.jsonl")
        self.outcome = ClusterOutcome()
        ports = free_ports(2 * len(NODES))
        routes = [Route(node, ports[2 * at], ports[2 * at + 1]) for at, node in enumerate(NODES)]
        self.nurseries = {
            route.node: self._nursery(route, folder, store, store_settings) for route in routes
        }
        self.proxies = Proxies(routes)
        places = [
            Place(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)
        ]
        first, *others = [route.port for route in routes]
        self.stage = Stage(first, self.ledger, places, plan.value_bytes_max, tuple(others))
        self.followers = [
            Follower(self.stage, plan.seed, node, f"rack-{node}") for node in NODES[:2]
        ]
        self.prober = Prober(self.stage, plan.seed, 1)
        self.consumers = [
            GroupConsumer(self.stage, plan.seed, number, "readers", list(TOPICS))
            for number in range(plan.consumers)
        ]
        self.producers = [
            LibrdkafkaProducer(
                self.stage, plan.seed, number, idempotent=True, per_second=plan.per_second
            )
            for number in range(plan.producers)
        ]

    def _nursery(
        self, route: Route, folder: Path, store: str, store_settings: dict[str, object]
    ) -> Nursery:
        own = folder / f"broker-{route.node}"
        own.mkdir()
        settings = {
            **self.plan.settings,
            **store_settings,
            "broker.node.id": route.node,
            "broker.rack": f"rack-{route.node}",
            "broker.advertise": f"127.0.0.1:{route.port}",
        }
        return Nursery(
            own, settings, self.plan.bug, store=store, port=route.listens, host=host_of(route.node)
        )

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.followers, self.prober, *self.consumers]

    # -- the run -----------------------------------------------------------------------------

    def run(self) -> ClusterOutcome:
        self.ledger.note("plan", dataclasses.asdict(self.plan))
        try:
            with ExitStack() as stack:
                for nursery in self.nurseries.values():
                    stack.enter_context(nursery)
                stack.enter_context(self.proxies)
                self._run()
        except ViolationError as violation:
            raise ViolationError(self._explained(violation)) from violation
        except BrokerEndedError as ended:
            raise ViolationError(self._explained(ended)) from ended
        finally:
            self._join_clients()
            self.ledger.close()
        return self.outcome

    def _run(self) -> None:
        for node in NODES:
            self._launch(node)
        self._wait_ready(*NODES)
        create_topics(self.stage.bootstrap, TOPICS)
        self.stage.running.set()
        self.stage.producing.set()
        for client in self.clients:
            client.start()
        self._wait_for_writes("the start")
        for event in self.plan.events:
            self.ledger.note("event", dataclasses.asdict(event))
            self.outcome.events[event.kind] += 1
            self._happen(event)
            self._wait_for_writes(event.kind)
            self._check()
        self._finish()

    def _join_clients(self) -> None:
        self.stage.running.clear()
        for client in self.clients:
            if client.ident is not None:
                client.join(20)

    def _check(self) -> None:
        if self.ledger.violation is not None:
            raise self.ledger.violation
        for nursery in self.nurseries.values():
            if nursery.pid_or_none is not None:
                nursery.check_alive()

    def _explained(self, violation: BaseException) -> str:
        logs = ", ".join(str(nursery.log) for nursery in self.nurseries.values())
        return (
            f"seed {self.plan.seed}, after {self.outcome.events.total()} events: {violation}\n"
            f"history: {self.ledger.file}, brokers' logs: {logs}"
        )

    # -- events --------------------------------------------------------------------------------

    def _launch(self, node: int) -> None:
        self.nurseries[node].launch()
        self.proxies.up(node)

    def _wait_ready(self, *nodes: int) -> None:
        for node in nodes:
            self.nurseries[node].wait_ready(READY_SECONDS)

    def _kill(self, *nodes: int) -> None:
        for node in nodes:
            self.proxies.down(node)
            self.nurseries[node].kill()
            self.outcome.kills += 1

    def _happen(self, event: Event) -> None:
        node = event.node
        if event.kind == "kill":
            self._kill(node)
            self._last(event.seconds)
            self._launch(node)
            self._wait_ready(node)
        elif event.kind == "restart-all":
            self._kill(*NODES)
            for each in NODES:
                self._launch(each)
            self._wait_ready(*NODES)
        elif event.kind == "pause":
            os.kill(self.nurseries[node].pid, signal.SIGSTOP)
            self._last(event.seconds)
            os.kill(self.nurseries[node].pid, signal.SIGCONT)
        elif event.kind in ("store", "store-of-all"):
            self._cut_off_from_the_store(list(NODES) if not node else [node], event)
        else:
            others = [event.other] if event.other else [each for each in NODES if each != node]
            self.proxies.cut(node, *others)
            self._last(event.seconds)
            self.proxies.heal()

    def _cut_off_from_the_store(self, nodes: list[int], event: Event) -> None:
        """Calls hang until it is over, as over a network that drops packets. Nobody is expired."""
        self.prober.store_fails_until = math.inf
        if self._store_pid and not event.node:
            os.kill(self._store_pid, signal.SIGSTOP)
            self._last(OUTAGE_BEGINS_SECONDS)
            expired = self._expired()
            self._last(event.seconds)
            os.kill(self._store_pid, signal.SIGCONT)
        else:
            for each in nodes:
                self.nurseries[each].steer(frozen=True)
            self._last(OUTAGE_BEGINS_SECONDS)
            expired = self._expired()
            self._last(event.seconds)
            for each in nodes:
                self.nurseries[each].steer()
        self.prober.store_fails_until = time.monotonic() + STORE_ANSWER_SECONDS
        if (more := self._expired() - expired) and event.kind == "store-of-all":
            self.ledger.violated(f"{more} brokers were declared dead while the store was gone")

    def _last(self, seconds: float) -> None:
        """Let what happened last, unless a promise is broken meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.ledger.violation is None:
            time.sleep(0.02)

    def _wait_for_writes(self, what: str) -> None:
        """Wait until every partition has taken a record since now."""
        began = time.monotonic()
        before = dict(self.ledger.acked_ends)
        wait_until(
            f"an acknowledgement from every partition after {what}",
            lambda: all(
                self.ledger.acked_ends.get(place, 0) > before.get(place, 0)
                for place in self.stage.places
            ),
            RECOVERY_SECONDS,
            self.ledger,
        )
        longest = self.outcome.recovery_seconds
        longest[what] = round(max(longest.get(what, 0.0), time.monotonic() - began), 3)

    # -- the end -----------------------------------------------------------------------------

    def _finish(self) -> None:
        """Let everything settle, read all of it from every broker, and judge."""
        self.stage.producing.clear()
        for producer in self.producers:
            wait_until(
                f"the end of {producer.name}",
                lambda producer=producer: not producer.is_alive(),
                SETTLE_SECONDS,
                self.ledger,
            )
        self._check()
        ends = dict(self.ledger.acked_ends)
        for follower in self.followers:
            wait_until(
                f"{follower.name} reads all",
                lambda follower=follower: follower.is_at(ends),
                SETTLE_SECONDS,
                self.ledger,
            )
        wait_until(
            "the group reads all", lambda: self._group_is_at(ends), SETTLE_SECONDS, self.ledger
        )
        self._check()
        self._join_clients()  # while brokers are there for members to take their leave
        self._read_from_every_broker()
        self.outcome.leaders = len(set(leaders(self.stage.port, "the end").values()))
        for nursery in self.nurseries.values():
            if (code := nursery.stop()) != 0:
                self.ledger.violated(f"asked to stop, a broker ended with {code}: {nursery.log}")
        self._read_logs()
        self._check()
        self._sum_up()
        self.ledger.note("done")

    def _group_is_at(self, ends: dict[Place, int]) -> bool:
        return all(
            len(set().union(*(each.read.get(place, ()) for each in self.consumers))) >= end
            for place, end in ends.items()
        )

    def _read_from_every_broker(self) -> None:
        for node in NODES:
            self.ledger.note("reading from", node)
            logs = self._read_from(node)
            for place, (start, end, log) in logs.items():
                self.outcome.starts[place], self.outcome.ends[place] = start, end
                self.ledger.judge(place, start, end, log)

    def _read_from(self, node: int) -> dict[Place, Log]:
        """A broker may still die while it is read: of silence, where the machine is busy."""
        for _ in range(READ_ATTEMPTS):
            try:
                return read_through_broker(self.stage, rack=f"rack-{node}")
            except KafkaException as error:
                self.ledger.note("reading failed", node, str(error))
                time.sleep(1.0)
        raise ViolationError(f"reading from broker {node} failed {READ_ATTEMPTS} times")

    def _log_lines(self) -> Iterator[str]:
        for nursery in self.nurseries.values():
            with contextlib.suppress(FileNotFoundError):
                yield from nursery.log.read_text(encoding="utf-8").splitlines()

    def _expired(self) -> int:
        return sum(_EXPIRED in line for line in self._log_lines())

    def _read_logs(self) -> None:
        for line in self._log_lines():
            if _FORBIDDEN.search(line):
                self.ledger.violated(f"a broker's log says: {line}")

    def _sum_up(self) -> None:
        outcome = self.outcome
        outcome.acks = len(self.ledger.acked)
        outcome.commits = self.ledger.commits.acks
        outcome.probes = self.prober.answers
        outcome.expired = self._expired()
        outcome.peer_connections = sum(
            count for (source, _), count in self.proxies.connections.items() if source is not None
        )
        for nursery in self.nurseries.values():
            outcome.writes += nursery.writes()
