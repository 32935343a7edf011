"""Planted bugs: each breaks one rule in the real code, to show that the checker would find it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import simulation.jobs
import simulation.scenario
from neve.cluster.state import Topic
from neve.errors import ExistsError, UnavailableError
from neve.log import series
from neve.log.keys import segment_prefix
from neve.log.manifest import manifest as manifest_module
from neve.log.partition import Appended, PartitionLog
from neve.log.tail_replay import TailReplay
from neve.log.wal.pending import Flight
from neve.log.wal.writer import Commit, WalWriter
from neve.store.port import Buffer, Store


@contextlib.contextmanager
def ack_before_commit() -> Iterator[None]:
    """A producer is told yes as soon as its batch is in the buffer."""
    append = WalWriter.append

    def hasty(self: WalWriter, meta: object, batch: Buffer, **options: bool) -> Commit:
        commit = append(self, meta, batch, **options)  # type: ignore[arg-type]
        told = Commit()
        told.number = commit.number
        told.succeed()
        return told

    with mock.patch.object(WalWriter, "append", hasty):
        yield


@contextlib.contextmanager
def drop_on_failed_flush() -> Iterator[None]:
    """An upload that fails drops what it drained, and its producers are told yes."""
    create = WalWriter._create

    async def careless(self: WalWriter, key: str, flight: Flight) -> None:
        try:
            await self._store.create(key, flight.data)
        except UnavailableError:
            return  # as if it were there
        except ExistsError:
            await create(self, key, flight)

    with mock.patch.object(WalWriter, "_create", careless):
        yield


@contextlib.contextmanager
def commit_past_a_hole() -> Iterator[None]:
    """A number commits when it is there, whatever is before it."""

    def eager(self: WalWriter, flight: Flight) -> None:
        flight.durable = True
        if flight in self._flights:
            self._flights.remove(flight)
            self._commit(flight)
        self._changed.set()

    with mock.patch.object(WalWriter, "_durable", eager):
        yield


@contextlib.contextmanager
def delete_before_doom() -> Iterator[None]:
    """Repair deletes what nobody lists, without a number that dooms it."""

    async def rash(store: Store, topic: Topic, partition: int) -> None:
        manifest = simulation.jobs.manifest_of(store, topic, partition)
        await manifest.refresh()
        prefix = segment_prefix(topic.name, topic.id_bytes, partition)
        found = [row.key for row in await store.list(prefix)]
        segments = await manifest.segments()
        listed = {key for row in segments for key in (row.key, row.index_key)}
        for key in found:
            if key not in listed:
                await store.delete(key)

    with mock.patch.object(simulation.scenario, "repair", rash):
        yield


@contextlib.contextmanager
def no_look_at_the_checkpoint() -> Iterator[None]:
    """A number is believed without a look at the greatest checkpoint afterwards."""
    look = series.greatest_checkpoint

    async def blind(store: Store, keys: object, above: int = -1) -> int | None:
        if above > 0:
            return None
        return await look(store, keys, above)  # type: ignore[arg-type]

    with (
        mock.patch.object(series, "greatest_checkpoint", blind),
        mock.patch.object(manifest_module, "greatest_checkpoint", blind),
    ):
        yield


@contextlib.contextmanager
def ack_a_duplicate_at_once() -> Iterator[None]:
    """A producer that asks again is told yes, though the first is still on its way."""
    append = PartitionLog.append

    def hasty(self: PartitionLog, *about: object, **options: bool) -> Appended:
        appended = append(self, *about, **options)  # type: ignore[arg-type]
        if not appended.duplicate:
            return appended
        told = Commit()
        told.succeed()
        return appended._replace(commit=told)

    with mock.patch.object(PartitionLog, "append", hasty):
        yield


@contextlib.contextmanager
def forget_the_tail_s_producers() -> Iterator[None]:
    """Who takes over knows producers from the last bundle only."""

    def blind(self: TailReplay, *about: object) -> None:
        del self, about

    with mock.patch.object(TailReplay, "take", blind):
        yield


BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "ack before commit": ack_before_commit,
    "ack a duplicate at once": ack_a_duplicate_at_once,
    "forget the tail's producers": forget_the_tail_s_producers,
    "drop on a failed flush": drop_on_failed_flush,
    "commit past a hole": commit_past_a_hole,
    "delete before doom": delete_before_doom,
    "no look at the checkpoint": no_look_at_the_checkpoint,
}
