"""One attempt at one commit, and the certain answer whether it took effect.

A proposal is made from the table as it was looked at and asks the catalog to apply it only while
the table's main branch still stands there. pyiceberg's own way to commit is not used, whatever
retries the table's properties allow: it would put the files onto a newer table without looking at
its offsets, and it deletes what it wrote when a catalog says "conflict", which a repeated request
may say about a commit that took effect.

Whatever the catalog answers, the table decides: a proposal's snapshot has a random number, and a
table that has it has the commit. Nothing is deleted here; what was written for nothing is an orphan
and removed as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from neve.errors import NeveError
from neve.lake.tables.file_names import commit_uuid
from neve.lake.tables.history import TableState, snapshot_properties, table_property
from neve.lake.tables.pyiceberg_private import (
    AppendFiles,
    OverwriteFiles,
    send_commit,
    snapshot_updates,
)

ATTEMPTS_MAX = 10
"""Others may win as often in a row before a commit gives up until the next interval."""
MAIN = "main"


class CommitUnknownError(NeveError):
    """A commit may or may not have taken effect, and the table cannot be read to find out.

    Calling again with the same arguments is safe and decides it.
    """


class BusyTableError(NeveError):
    """Others changed the table each time before this commit could: try later."""


@dataclass(frozen=True)
class Proposal:
    """A commit that is ready to be sent."""

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


class _MetadataTransaction(Transaction):
    """Lets pyiceberg build a snapshot on the table as it is, of which it would else make a copy
    at each step: a tenth of a second a step for a table of some hundred snapshots.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def propose(
    table: Table,
    state: TableState | None,
    *,
    add: Iterable[DataFile] = (),
    remove: Iterable[DataFile] = (),
    same_rows: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Proposal:
    """A snapshot on top of the table as this object holds it, carrying the state along.

    `same_rows` says that the removed files' rows are all in the added ones: Iceberg's "replace",
    which readers of changes pass over. A table of dead letters has no state of its own. Further
    `properties` of the table are set with the state.
    """
    removed = list(remove)
    transaction = _MetadataTransaction(table)
    kind = OverwriteFiles if removed else AppendFiles
    producer = kind(
        operation=Operation.OVERWRITE if removed else Operation.APPEND,
        transaction=transaction,
        io=table.io,
        commit_uuid=commit_uuid(table.metadata.table_uuid),
        snapshot_properties=snapshot_properties(state) if state else {},
    )
    for file in add:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    updates, requirements = snapshot_updates(producer)
    if same_rows:
        updates = tuple(_as_replace(update) for update in updates)
    if state:
        snapshot = next(u.snapshot for u in updates if isinstance(u, AddSnapshotUpdate))
        changed = {**(properties or {}), **table_property(state, snapshot)}
        updates = (*updates, SetPropertiesUpdate(updates=changed))
    return Proposal(producer.snapshot_id, updates, (*requirements, _same_table(table)))


def _as_replace(update: TableUpdate) -> TableUpdate:
    """pyiceberg writes no replace by itself, though it reads them."""
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.summary is None:
        return update
    summary = Summary(Operation.REPLACE, **update.snapshot.summary.additional_properties)
    snapshot: Snapshot = update.snapshot.model_copy(update={"summary": summary})
    return AddSnapshotUpdate(snapshot=snapshot)


def unchanged(table: Table) -> tuple[TableRequirement, ...]:
    """Asks that the table's branches and tags stand where this object has them."""
    heads = [
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in sorted(table.metadata.refs.items())
    ]
    return (*heads, _same_table(table))


def _same_table(table: Table) -> TableRequirement:
    return AssertTableUUID(uuid=table.metadata.table_uuid)


class Attempt(Enum):
    """What became of a proposal."""

    LANDED = "landed"
    REFUSED = "refused"


def attempt(table: Table, proposal: Proposal) -> Attempt:
    """Send it. Afterwards `table` is as the catalog has it.

    A refused proposal may still land later, if its request was only delayed; until then its files
    are not anybody else's to delete, and it can land only on the table it was made for.
    """
    failure: Exception | None = None
    try:
        send_commit(table, proposal.updates, proposal.requirements)
    except CommitFailedException:
        pass
    except Exception as error:
        failure = error
    else:
        return Attempt.LANDED
    if landed(refreshed(table, failure), proposal):
        return Attempt.LANDED
    if failure is not None:
        raise CommitUnknownError(
            f"table {'.'.join(table.name())}: a commit failed ({failure}) and is not in the table "
            "so far; call again, which is safe, once the catalog answers"
        ) from failure
    return Attempt.REFUSED


def landed(table: Table, proposal: Proposal) -> bool:
    """Whether this object has the proposal's snapshot."""
    return table.metadata.snapshot_by_id(proposal.snapshot_id) is not None


def refreshed(table: Table, cause: Exception | None = None) -> Table:
    """The table as the catalog has it now."""
    try:
        return table.refresh()
    except Exception as error:
        raise CommitUnknownError(
            f"table {'.'.join(table.name())} cannot be read ({error}); call again once the catalog "
            "answers"
        ) from (cause or error)
