"""Writers, upkeep and strangers on one table, a step at a time, in an order drawn from a seed.

Each actor is a thread, and only one of them runs at any moment: at every call to the catalog it
hands over, and may be killed there, before the call or behind it, or lose the answer. A writer that
was killed starts again as a new process would. Two writers disagree about which records are bad,
and two that replay dead letters disagree about which can be read by now.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from neve.errors import NeveError
from neve.lake.tables import (
    MaintenancePolicy,
    MaintenanceReport,
    Progress,
    TopicProgress,
    commit_range,
    read_progress,
)
from neve.lake.tables.dead_letter_files import record_ids
from neve.lake.tables.dead_letter_replay import (
    Findings,
    LetterRuns,
    begin_replay,
    commit_replay,
    replayable,
)
from neve.lake.tables.history import (
    SNAPSHOT_PROGRESS,
    TABLE_PROGRESS,
    NoProgressError,
    summary_of,
)
from neve.lake.tables.maintenance.small_files import merge_small_files
from neve.lake.tables.progress import from_text, offset_of
from unit.lake.tables.table_scene import (
    TOPIC,
    TOPIC_ID,
    catalog_in,
    foreign_append,
    held,
    letter_rows,
    letters_held,
    letters_in,
    rows,
    table_in,
    written,
)

PARTITIONS = 2
STRANGE_OFFSET = 10_000
STEPS_MAX = 3_000
TURN_SECONDS_MAX = 120


class Killed(BaseException):
    """The end of a process: nothing in the product catches it."""


class Stage:
    """Lets one actor at a time go on to its next step."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills_left = 5
        self.losses_left = 2
        self._turns: dict[str, threading.Semaphore] = {}
        self._handed_back = threading.Semaphore(0)
        self._failures: list[BaseException] = []

    def run(self, actors: dict[str, Callable[[], None]]) -> None:
        threads = {}
        for name, act in actors.items():
            self._turns[name] = threading.Semaphore(0)
            threads[name] = threading.Thread(target=self._act, args=(name, act), daemon=True)
            threads[name].start()
        for _ in range(STEPS_MAX):
            waiting = sorted(name for name in self._turns if threads[name].is_alive())
            if not waiting:
                break
            self._turns[self.chance.choice(waiting)].release()
            assert self._handed_back.acquire(timeout=TURN_SECONDS_MAX), "an actor hangs"
        for thread in threads.values():
            thread.join(timeout=TURN_SECONDS_MAX)
            assert not thread.is_alive(), "too many steps"
        self._turns.clear()
        if self._failures:
            raise self._failures[0]

    def _act(self, name: str, act: Callable[[], None]) -> None:
        self._turns[name].acquire()
        try:
            act()
        except BaseException as error:
            self._failures.append(error)
        finally:
            # Gone from the stage before the scheduler looks who is left.
            self._turns.pop(name, None)
            self._handed_back.release()

    def pause(self, name: str, *, may_die: bool) -> None:
        if name not in self._turns:
            return
        self._handed_back.release()
        self._turns[name].acquire()
        if may_die and self.kills_left and self.chance.random() < 0.06:
            self.kills_left -= 1
            raise Killed

    def idle(self, name: str, turns_max: int) -> None:
        for _ in range(self.chance.randint(0, turns_max)):
            self.pause(name, may_die=False)

    def loses_answer(self, name: str) -> bool:
        lost = bool(name in self._turns and self.losses_left and self.chance.random() < 0.05)
        self.losses_left -= lost
        return lost


@contextlib.contextmanager
def process(stage: Stage, folder: Path, name: str) -> Iterator[Catalog]:
    """A catalog of this actor's own, whose every call is a step."""
    with catalog_in(folder) as catalog:
        load: Any = catalog.load_table
        commit: Any = catalog.commit_table
        busy = False

        def load_table(*arguments: Any) -> Any:
            if not busy:
                stage.pause(name, may_die=True)
            return load(*arguments)

        def commit_table(*arguments: Any) -> Any:
            nonlocal busy
            stage.pause(name, may_die=True)
            busy = True
            try:
                answer = commit(*arguments)
            finally:
                busy = False
            stage.pause(name, may_die=True)
            if stage.loses_answer(name):
                raise TimeoutError("the answer was lost")
            return answer

        catalog.load_table = load_table  # type: ignore[method-assign]
        catalog.commit_table = commit_table  # type: ignore[method-assign]
        yield catalog


@dataclass
class World:
    """One table, what is to come into it, and everybody who lays hands on it."""

    folder: Path
    seed: int
    end: int = 20
    stage: Stage = field(init=False)
    replays: int = 0
    set_right: int = 0

    def __post_init__(self) -> None:
        self.stage = Stage(self.seed)

    def play(self) -> None:
        with catalog_in(self.folder) as catalog:
            table_in(catalog).transaction().set_properties(
                {"commit.retry.num-retries": "0"}
            ).commit_transaction()
            letters_in(catalog)
        self.stage.run(
            {
                "first": lambda: self.write("first", bad_every=3),
                "second": lambda: self.write("second", bad_every=4),
                "upkeep": self.keep_up,
                "stranger": self.meddle,
                **self._replayers(),
            }
        )
        self.write("last", bad_every=6)

    # --- actors

    def write(self, name: str, bad_every: int) -> None:
        done = False
        while not done:
            try:
                with process(self.stage, self.folder, name) as catalog:
                    while not done:
                        done = self._commit_some(catalog, bad_every)
            except NoProgressError:
                self._set_right()
            except (Killed, NeveError, FileNotFoundError):
                continue

    def _commit_some(self, catalog: Catalog, bad_every: int) -> bool:
        table = table_in(catalog)
        expected = read_progress(table)
        ranges = self._plan(expected)
        if not ranges:
            return True
        good, bad = [], []
        for partition, (first, end) in ranges.items():
            # None at all at times: a range without letters is committed in another way.
            broken = [
                offset
                for offset in range(first, end)
                if offset % bad_every == 0 and offset % 20 < 15
            ]
            bad.append(letter_rows(broken, partition))
            kept = pa.array([offset not in broken for offset in range(first, end)])
            good.append(rows(first, end, partition).filter(kept))
        letters = letters_in(catalog)
        letter_files = written(letters, *bad)
        new = {TOPIC_ID: TopicProgress(TOPIC, {p: end for p, (_, end) in ranges.items()})}
        commit_range(
            table,
            written(table, *good),
            expected,
            new,
            letters=lambda: letters,
            letter_files=letter_files,
        )
        return False

    def _plan(self, progress: Progress) -> dict[int, tuple[int, int]]:
        found = {}
        for partition in range(PARTITIONS):
            first = offset_of(progress, TOPIC_ID, partition) or 0
            end = min(self.end, first + self.stage.chance.randint(0, 9))
            if first < self.end and end > first:
                found[partition] = (first, end)
        if not found and any(
            (offset_of(progress, TOPIC_ID, each) or 0) < self.end for each in range(PARTITIONS)
        ):
            return self._plan(progress)
        return found

    def _replayers(self) -> dict[str, Callable[[], None]]:
        # A rollback discards what was replayed since: docs/contributors/lake.md.
        if self.seed % 2:
            return {}
        return {
            "mender": lambda: self.mend("mender", readable=1),
            "rival mender": lambda: self.mend("rival mender", readable=2),
        }

    def mend(self, name: str, readable: int) -> None:
        for _ in range(10):
            self.stage.idle(name, 40)
            with (
                contextlib.suppress(Killed, NeveError, FileNotFoundError, TimeoutError),
                process(self.stage, self.folder, name) as catalog,
            ):
                self._replay(catalog, readable)

    def _replay(self, catalog: Catalog, readable: int) -> None:
        table, letters = table_in(catalog), letters_in(catalog)
        seen = begin_replay(table, letters)
        found = Findings()
        batches = list(replayable(letters, seen, TOPIC))
        for batch in batches:
            offsets = batch.column("offset").to_numpy()
            found.add(record_ids(batch), offsets % readable == 0)
        runs = found.runs()
        if not runs:
            return
        named = LetterRuns(runs)
        chosen = [
            (partition, offset)
            for batch in batches
            for _, partition, offset in record_ids(batch.filter(pa.array(named.mask(batch))))
        ]
        mended = [rows(offset, offset + 1, partition) for partition, offset in chosen]
        if commit_replay(table, letters, written(table, *mended), runs, seen):
            self.replays += 1

    def keep_up(self) -> None:
        policy = MaintenancePolicy(merge_files_least=2)
        for _ in range(3):
            self.stage.idle("upkeep", 30)
            with (
                contextlib.suppress(Killed, NeveError, FileNotFoundError, TimeoutError),
                process(self.stage, self.folder, "upkeep") as catalog,
            ):
                merge_small_files(table_in(catalog), policy, MaintenanceReport())
                merge_small_files(letters_in(catalog), policy, MaintenanceReport())

    def meddle(self) -> None:
        # Both together may leave no offsets, which is refused and so not played here.
        destructive = self._roll_back if self.seed % 2 else self._expire_all_but_one
        for number in range(6):
            self.stage.idle("stranger", 25)
            act = self.stage.chance.choice([self._append, destructive])
            with (
                contextlib.suppress(Killed, CommitFailedException, ValueError, TimeoutError),
                process(self.stage, self.folder, "stranger") as catalog,
            ):
                act(catalog, number)

    def _append(self, catalog: Catalog, number: int) -> None:
        foreign_append(
            table_in(catalog), rows(STRANGE_OFFSET + number, STRANGE_OFFSET + number + 1)
        )

    def _expire_all_but_one(self, catalog: Catalog, _: int) -> None:
        table = table_in(catalog)
        current = table.current_snapshot()
        ids = [each.snapshot_id for each in table.snapshots() if each != current]
        if ids:
            table.maintenance.expire_snapshots().by_ids(ids).commit()

    def _roll_back(self, catalog: Catalog, _: int) -> None:
        """To any snapshot of ours: one before the current, or one that the table had left."""
        table = table_in(catalog)
        ours = [each for each in table.snapshots() if SNAPSHOT_PROGRESS in summary_of(each)]
        if ours:
            _set_current(table, self.stage.chance.choice(ours).snapshot_id)

    def _set_right(self) -> None:
        """What an operator does who is told that the table was set to what it had left."""
        with catalog_in(self.folder) as catalog:
            table = table_in(catalog)
            text = table.metadata.properties[TABLE_PROGRESS]
            _set_current(table, int(from_text(text, "table")[1]["snapshot"]))
        self.set_right += 1

    # --- what came of it

    def wrong(self) -> list[str]:
        """Every offset that is not exactly once in the table or among the letters."""
        with catalog_in(self.folder) as catalog:
            in_table = held(table_in(catalog))
            letters = letters_held(letters_in(catalog))
        count: Counter[tuple[int, int]] = Counter(
            {place: number for place, number in in_table.items() if place[1] < STRANGE_OFFSET}
        )
        count.update({place: len(reasons) for place, reasons in letters.items()})
        wanted = {(p, offset) for p in range(PARTITIONS) for offset in range(self.end)}
        return [
            f"partition {place[0]}, offset {place[1]}: {in_table[place]} rows and "
            f"{len(letters.get(place, []))} letters"
            for place in sorted(wanted | count.keys())
            if count[place] != (place in wanted)
        ]


def _set_current(table: Table, snapshot_id: int) -> None:
    table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()
