"""Two pipelines on one table, with everybody who takes part killed at moments drawn from a seed.

A producer writes orders to a real broker, some of them broken. Two `neve lake run` fill the same
table, each with a Spark of its own. A driver with its JVM, one of Spark's workers or the broker is
killed, and started again. Other writers append to the table, delete what they appended, expire
snapshots, and upkeep merges files, each of them until it was done. In the end every offset is in
the table or among the dead letters, once, as pyiceberg and duckdb read them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from neve.errors import NeveError
from neve.lake.tables import MaintenancePolicy, catalog_of, maintain, read_progress
from neve.lake.tables.columns import KAFKA_STRUCT
from soak.duck import Duck
from soak.nursery import free_port
from support.brokers import RunningBroker, start_broker
from unit.lake.tables.table_scene import foreign_append

TOPIC, PARTITIONS = "orders", 3
NAME = "lake.orders"
RECORDS_PER_SECOND = 400
BROKEN_EVERY = 17
STRANGE_ID = -1
SETTLE_SECONDS = 180
REPORT = "report.json"
STOP_SECONDS = 60
KILLED = ("driver", "worker", "broker")
ACTS = ("append_strange", "delete_strange", "expire", "keep_up")
"""What strangers do to the table; rows are appended before any is deleted."""
BUSY = (CommitFailedException, NoSuchTableError, FileNotFoundError, NeveError, ValueError)


@dataclass(frozen=True)
class Fate:
    """Who is killed, and how long after the last one."""

    who: str
    after: float


@dataclass
class LakeLoop:
    """One run. `counts` says what happened in it."""

    folder: Path
    seed: int
    kills: int = 4
    counts: Counter[str] = field(default_factory=Counter)
    truth: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.port = free_port()
        self.drivers: list[subprocess.Popen[bytes]] = []

    @property
    def store(self) -> str:
        return str(self.folder / "bucket")

    def fates(self) -> list[Fate]:
        """A driver, a worker and the broker each once, then anybody."""
        who = list(KILLED)
        self.chance.shuffle(who)
        who += self.chance.choices(KILLED, k=self.kills)
        return [Fate(each, self.chance.uniform(0.5, 6.0)) for each in who[: self.kills]]

    def acts(self) -> list[str]:
        """Each act once, then any: one for each fate, and what is left of them at the end."""
        acts = list(ACTS)
        self.chance.shuffle(acts)
        append, delete = acts.index("append_strange"), acts.index("delete_strange")
        if delete < append:
            acts[append], acts[delete] = acts[delete], acts[append]
        return acts + self.chance.choices(ACTS, k=max(0, self.kills - len(acts)))

    def run(self) -> None:
        """Play it until the table has every offset that was acknowledged, and stop everybody."""
        (self.folder / "pipeline.yaml").write_text(
            json.dumps(
                {
                    "store": self.store,
                    "interval": "1s",
                    "topics": [
                        {
                            "topic": TOPIC,
                            "value": {"format": "json", "schema": {"id": "long", "text": "string"}},
                        }
                    ],
                    "maintenance": {"every": "7s", "small_file_size": "1MiB"},
                }
            )
        )
        self.broker = self._start_broker()
        try:
            self._make_topic()
            self.producer = self._producer()
            self.drivers = [self._start_driver(number) for number in range(2)]
            self._while(lambda: not self._offsets(), SETTLE_SECONDS)
            fates, acts = self.fates(), self.acts()
            for fate in fates:
                self._load(fate.after)
                self._meddle(acts.pop(0))
                getattr(self, f"_kill_{fate.who}")()
                self.counts[f"{fate.who} killed"] += 1
            for act in acts:
                self._meddle(act)
            self._load(2.0)
            assert self.producer.flush(SETTLE_SECONDS) == 0
            self._while(lambda: not self._complete(), SETTLE_SECONDS)
            self._stop_drivers()
        finally:
            for each in self.drivers:
                _kill_group(each)
            if self.broker.process.poll() is None:
                self.broker.kill()

    # -- the load ------------------------------------------------------------------------------

    def _start_broker(self) -> RunningBroker:
        return start_broker(
            self.store,
            self.folder / "broker.log",
            port=self.port,
            store_folder_fsync=False,
            segment_bytes=30_000,
            segment_ms=3_000,
        )

    def _make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def _load(self, seconds: float) -> None:
        """Produce at an even rate for so long."""
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            while sent < passed * RECORDS_PER_SECOND:
                self._send(len(self.truth) + self.counts["waiting"])
                sent += 1
            self.producer.poll(0.02)

    def _send(self, number: int) -> None:
        broken = number % BROKEN_EVERY == 0
        value = b"{broken" if broken else b'{"id": %d, "text": "order %d"}' % (number, number)
        self.counts["waiting"] += 1

        def told(error: Any, message: Any) -> None:
            assert error is None, error
            self.counts["waiting"] -= 1
            self.truth[message.partition(), message.offset()] = value

        self.producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=told)

    # -- those who die -------------------------------------------------------------------------

    def _start_driver(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "neve.cli", "lake", "run"]
        command += ["-f", str(self.folder / "pipeline.yaml"), "--master", "local[1]"]
        environment = {**os.environ, "SPARK_LOCAL_DIRS": str(self.folder / f"spark-{number}")}
        with (self.folder / f"driver-{number}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _kill_driver(self) -> None:
        number = self.chance.randrange(len(self.drivers))
        _kill_group(self.drivers[number])
        self.drivers[number] = self._start_driver(number)

    def _kill_worker(self) -> None:
        """One of Spark's Python processes, as soon as there is any; Spark starts another."""
        until = time.monotonic() + SETTLE_SECONDS
        while not self._hit_worker():
            assert time.monotonic() < until, f"seed {self.seed}: no worker of Spark was seen"
            self._load(0.2)  # without any record there is no work

    def _hit_worker(self) -> bool:
        workers = [pid for each in self.drivers for pid in _workers_of(each.pid)]
        if not workers:
            return False
        try:
            os.kill(self.chance.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.broker = self._start_broker()

    def _stop_drivers(self) -> None:
        for each in self.drivers:
            each.terminate()
        for number, each in enumerate(self.drivers):
            code = each.wait(STOP_SECONDS)
            said = (self.folder / f"driver-{number}.log").read_text()
            # One that was still starting Spark ends by the signal.
            assert code in (0, -signal.SIGTERM), said
            assert "Traceback" not in said, said

    # -- strangers -----------------------------------------------------------------------------

    def _meddle(self, act: str) -> None:
        """Try an act until it has changed the table: others commit, and may do it before us."""
        until = time.monotonic() + SETTLE_SECONDS
        while not self._done(act):
            assert time.monotonic() < until, f"seed {self.seed}: {act} never came to anything"
            self._load(0.3)

    def _done(self, act: str) -> bool:
        """Whether one attempt changed anything; how it went is counted."""
        self.counts[f"{act} tried"] += 1
        try:
            with self._table() as table:
                changed: int = getattr(self, f"_{act}")(table)
        except BUSY as error:
            self.counts[f"{act} refused: {type(error).__name__}"] += 1
            return False
        self.counts[f"{act} done"] += changed > 0
        return changed > 0

    @contextlib.contextmanager
    def _table(self) -> Iterator[Table]:
        catalog = catalog_of({}, self.store)
        try:
            yield catalog.load_table(NAME)
        finally:
            catalog.close()

    def _append_strange(self, table: Table) -> int:
        columns = [pa.array([STRANGE_ID]), pa.array(["strange"]), pa.array([None], KAFKA_STRUCT)]
        foreign_append(table, pa.RecordBatch.from_arrays(columns, ["id", "text", "_kafka"]))
        return 1

    def _delete_strange(self, table: Table) -> int:
        strange = f"id == {STRANGE_ID}"
        if not table.scan(strange).count():
            self._append_strange(table)  # a second deletion: the first has left none
        table.delete(strange)
        return int(not table.refresh().scan(strange).count())

    def _expire(self, table: Table) -> int:
        current = table.current_snapshot()
        ids = [each.snapshot_id for each in table.snapshots() if each != current]
        if ids:
            table.maintenance.expire_snapshots().by_ids(ids).commit()
        return len(ids)

    def _keep_up(self, table: Table) -> int:
        """Merging may find nothing to do, since the pipelines' own upkeep does the same."""
        self.counts["files merged"] += maintain(
            table, MaintenancePolicy(merge_files_least=2)
        ).files_merged
        return 1

    # -- what came of it -----------------------------------------------------------------------

    def _offsets(self) -> dict[int, int]:
        with contextlib.suppress(NoSuchTableError), self._table() as table:
            for progress in read_progress(table).values():
                return dict(progress.offsets)
        return {}

    def _complete(self) -> bool:
        ends = Counter(partition for partition, _ in self.truth)
        return self._offsets() == dict(ends)

    def _while(self, waiting: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while waiting():
            if time.monotonic() > until:
                logs = [(self.folder / f"driver-{n}.log").read_text()[-2000:] for n in range(2)]
                raise AssertionError(
                    f"seed {self.seed}: it takes too long: {self._offsets()} {logs}"
                )
            if self._offsets():
                time.sleep(0.2)
            else:
                self._load(0.2)  # without any record there is no table

    def check(self, duck: Duck) -> None:
        """Each offset is in the table, or among the dead letters, once, with its own content."""
        broken = {place for place, value in self.truth.items() if value == b"{broken"}
        with self._table() as table:
            rows = [row for row in table.scan().to_arrow().to_pylist() if row["_kafka"] is not None]
            letters = table.catalog.load_table(f"{NAME}_dead_letters")
            dead = letters.scan().to_arrow().to_pylist()
            read_by_duckdb = duck.ask(table.metadata_location)
        held = Counter((row["_kafka"]["partition"], row["_kafka"]["offset"]) for row in rows)
        assert held == Counter(self.truth.keys() - broken), self._difference(held, broken)
        for row in rows:
            place = row["_kafka"]["partition"], row["_kafka"]["offset"]
            assert json.loads(self.truth[place]) == {"id": row["id"], "text": row["text"]}
        assert Counter((row["partition"], row["offset"]) for row in dead) == Counter(broken)
        ids = sum(row["id"] for row in rows)
        assert read_by_duckdb == {"rows": len(rows), "places": len(held), "ids": ids}
        self.counts["rows"] = len(rows)
        self.counts["letters"] = len(dead)
        (self.folder / REPORT).write_text(json.dumps(self.counts, indent=1, sort_keys=True))

    def _difference(self, held: Counter[tuple[int, int]], broken: set[tuple[int, int]]) -> str:
        wanted = Counter(self.truth.keys() - broken)
        return f"seed {self.seed}: missing {wanted - held}, too many {held - wanted}"


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The driver and its JVM; Python workers end with the JVM."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _workers_of(pid: int) -> list[int]:
    """Spark's Python processes of a driver: the other ones of its session.

    They are not all below its JVM: a worker whose daemon was killed goes on, and is nobody's child.
    """
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            state, _parent, _group, session = rest.split()[:4]
            alive = state != "Z" and "(python" in name
            if alive and int(session) == pid != int(folder.name):
                found.append(int(folder.name))
    return found
