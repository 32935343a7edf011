"""Merges small files of a partition into larger ones, rows in the order of their offsets.

Files are read and written as streams, in bounded memory. A merge is committed only if all of its
inputs are still live and no delete file applies to them; this is checked again after a concurrent
commit. The merge carries the table's current offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

from neve.lake.tables.columns import KAFKA_COLUMN
from neve.lake.tables.commit_attempt import ATTEMPTS_MAX, Attempt, attempt, propose, refreshed
from neve.lake.tables.commit_outcome import stale_reason
from neve.lake.tables.data_files import write_files
from neve.lake.tables.history import carried_state
from neve.lake.tables.live_files import bounds_of, live_entries
from neve.lake.tables.maintenance.policy import MaintenancePolicy, MaintenanceReport
from neve.lake.tables.projection import file_rows
from neve.lake.tables.table_ref import WrittenFile, table_ref

KAFKA_ORDER = (f"{KAFKA_COLUMN}.partition", f"{KAFKA_COLUMN}.offset")
LETTER_ORDER = ("partition", "offset")


def merge_small_files(table: Table, policy: MaintenancePolicy, report: MaintenanceReport) -> None:
    """Merge the files that the policy calls small, group by group."""
    groups = list(_groups(refreshed(table), policy))
    for group in groups[: policy.merge_groups_max]:
        written = write_files(table_ref(table), file_rows(table, group))
        if _replace(table, group, written):
            report.files_merged += len(group)
            report.files_written += len(written)
        else:
            report.merges_postponed += 1


def _groups(table: Table, policy: MaintenancePolicy) -> Iterator[list[DataFile]]:
    """Yield groups of small files of one partition, in order, of about the target size."""
    partitions: defaultdict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for entry in live_entries(table):
        if _is_small(table, entry.data_file, policy) and not entry.has_deletes:
            partitions[_values(entry.data_file)].append(entry.data_file)
    for files in partitions.values():
        group: list[DataFile] = []
        for file in sorted(files, key=lambda each: _place(table, each)):
            group.append(file)
            if sum(each.file_size_in_bytes for each in group) >= policy.target_bytes:
                yield group
                group = []
        if len(group) >= policy.merge_files_least:
            yield group


def _values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[place] for place in range(len(file.partition)))


def _is_small(table: Table, file: DataFile, policy: MaintenancePolicy) -> bool:
    return (
        file.file_size_in_bytes < policy.small_bytes
        and file.spec_id == table.metadata.default_spec_id
        and file.file_format == FileFormat.PARQUET
    )


def _place(table: Table, file: DataFile) -> tuple[Any, ...]:
    """Return the sort key of a file: its first offset in the topic, unknown ones last."""
    top = {field.name for field in table.schema().fields}
    columns = KAFKA_ORDER if KAFKA_COLUMN in top else LETTER_ORDER
    if not {column.partition(".")[0] for column in columns} <= top:
        return (True, 0, 0, file.file_path)
    bounds = [bounds_of(table, file, column) for column in columns]
    firsts = [0 if bound is None else bound[0] for bound in bounds]
    return (None in bounds, *firsts, file.file_path)


def _replace(table: Table, old: Sequence[DataFile], new: Sequence[WrittenFile]) -> bool:
    """Commit the merge if its inputs are still live. Returns True if it was committed."""
    for _ in range(ATTEMPTS_MAX):
        live = {each.data_file.file_path: each for each in live_entries(refreshed(table))}
        inputs = [live.get(file.file_path) for file in old]
        if any(each is None or each.has_deletes for each in inputs) or stale_reason(table, new):
            return False
        proposal = propose(
            table,
            carried_state(table),
            add=[file.entry() for file in new],
            remove=[each.data_file for each in inputs if each is not None],
            same_rows=True,
        )
        if attempt(table, proposal) is Attempt.LANDED:
            return True
    return False
