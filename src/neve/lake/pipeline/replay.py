"""Replays dead letters: those that can be decoded now become rows of their tables.

A letter can become readable in two ways: the pipeline's file has a new schema, or a user corrected
the value in the table of dead letters. The letters are decoded again as the pipeline would, and
those that fit become rows. It runs in the driver: letters are few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from neve.lake.pipeline.config import PipelineConfig, PipelineTopic, chosen_topics
from neve.lake.pipeline.range_task import with_origin
from neve.lake.pipeline.runner import pipeline_catalog
from neve.lake.pipeline.schema_growth import PASSES_MAX, grow, room_for, united, value_schema
from neve.lake.tables import BusyTableError, table_ref, write_files
from neve.lake.tables.dead_letter_files import record_ids
from neve.lake.tables.dead_letter_replay import (
    Findings,
    LetterRuns,
    ReplayScan,
    begin_replay,
    commit_replay,
    replayable,
)
from neve.lake.tables.table_creation import DEAD_LETTERS_SUFFIX, complete_origin
from neve.lake.values import ValueFormat, decode_strictly, evolved, value_format

SCANS_MAX = 10
"""How often concurrent changes may discard a topic's scan before BusyTableError is raised."""


@dataclass
class ReplayReport:
    """The result for one topic.

    `left` is the number of unreadable letters, with their `reasons`. `twice` is the number of
    records with more than one letter, which are not replayed.
    """

    topic: str
    table: str
    replayed: int = 0
    left: int = 0
    twice: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


def replay(
    config: PipelineConfig,
    *,
    topic: str | None = None,
    dry_run: bool = False,
    folder: Path | None = None,
) -> list[ReplayReport]:
    """Replay the letters of one topic, or of all topics."""
    topics = chosen_topics(config, topic)
    with pipeline_catalog(config) as catalog:
        return [_Replay(catalog, each, folder).run(dry_run=dry_run) for each in topics]


class _Replay:
    """The replay of one topic."""

    def __init__(self, catalog: Catalog, config: PipelineTopic, folder: Path | None) -> None:
        self._catalog = catalog
        self._config = config
        self._format: ValueFormat = value_format(config.value, folder=folder)

    def run(self, *, dry_run: bool) -> ReplayReport:
        report = ReplayReport(self._config.topic, self._config.table)
        try:
            table = self._catalog.load_table(self._config.table)
            letters = self._catalog.load_table(self._config.table + DEAD_LETTERS_SUFFIX)
        except NoSuchTableError:
            return report
        return self._replay(table, letters, report, dry_run=dry_run)

    def _replay(
        self, table: Table, letters: Table, report: ReplayReport, *, dry_run: bool
    ) -> ReplayReport:
        overtaken = 0
        while overtaken < SCANS_MAX:
            seen = begin_replay(table, letters, finish=not dry_run)
            schema = self._grown(table, letters, seen, dry_run=dry_run)
            found = self._findings(letters, seen, schema, report)
            runs = found.runs()
            if dry_run or not runs:
                report.replayed += len(found.readable) if dry_run else 0
                return report
            files = write_files(
                table_ref(table), self._rows(letters, seen, schema, LetterRuns(runs))
            )
            if commit_replay(table, letters, files, runs, seen):
                report.replayed += sum(file.rows for file in files)
            else:
                overtaken += 1
        raise BusyTableError(
            f"table {self._config.table}: its dead letters changed {SCANS_MAX} times while they "
            "were read; try again while the pipeline adds none"
        )

    def _grown(self, table: Table, letters: Table, seen: ReplayScan, *, dry_run: bool) -> pa.Schema:
        """Return the table's columns, grown by the file's schema and new fields as in a pipeline.

        A dry run computes the same columns without changing the table.
        """
        if not dry_run:
            complete_origin(table)

        def grown(before: pa.Schema, wanted: list[pa.Schema]) -> pa.Schema:
            if dry_run:
                return evolved(before, room_for(before, united(wanted)))
            grow(table, self._config, wanted)
            return value_schema(table)

        schema = value_schema(table)
        given = self._format.schema()
        if given is not None:
            schema = grown(schema, [given])
        for _ in range(PASSES_MAX):
            unknown: list[pa.Schema] = []
            for batch in replayable(letters, seen, self._config.topic):
                found = self._format.decode(batch.column("value"), schema).unknown
                if found is not None and found not in unknown:
                    unknown.append(found)
            wider = grown(schema, unknown) if unknown else schema
            if wider.equals(schema):
                break
            schema = wider
        return schema

    def _findings(
        self, letters: Table, seen: ReplayScan, schema: pa.Schema, report: ReplayReport
    ) -> Findings:
        """Return which letters can be decoded into these columns."""
        found = Findings()
        report.reasons.clear()
        for batch in replayable(letters, seen, self._config.topic):
            bad = decode_strictly(self._format, batch.column("value"), schema).bad
            good = np.ones(batch.num_rows, np.bool_)
            good[[each.row for each in bad]] = False
            found.add(record_ids(batch), good)
            report.reasons.update(each.reason for each in bad)
        report.left, report.twice = len(found.bad - found.twice), len(found.twice)
        return found

    def _rows(
        self, letters: Table, seen: ReplayScan, schema: pa.Schema, runs: LetterRuns
    ) -> Iterator[pa.RecordBatch]:
        for batch in replayable(letters, seen, self._config.topic):
            chosen = batch.filter(pa.array(runs.mask(batch)))
            if chosen.num_rows:
                decoded = self._format.decode(chosen.column("value"), schema)
                assert not decoded.bad, "the same letters were readable a moment ago"
                yield with_origin(decoded.rows, chosen)
