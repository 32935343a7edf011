"""One attempt at one commit, with a certain result.

A proposal is based on the table version that was read, and the catalog applies it only if the
table's main branch is unchanged. pyiceberg's own commits are not used, regardless of the retries
that the table's properties allow: they put files onto a newer table without checking its offsets,
and delete their files when a catalog reports a conflict, which a repeated request may report for a
commit that took effect.

The table decides, not the catalog's answer: a proposal's snapshot has a random id, and a table with
this snapshot has the commit. Nothing is deleted here; unused files are removed later as orphans.
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
"""How many attempts in a row may lose to other commits before BusyTableError is raised."""
MAIN = "main"


class CommitUnknownError(NeveError):
    """A commit may or may not have taken effect, and the table cannot be read to find out.

    Calling again with the same arguments is safe and decides it.
    """


class BusyTableError(NeveError):
    """Other commits changed the table before each attempt of this one: try later."""


@dataclass(frozen=True)
class Proposal:
    """A commit that is ready to be sent."""

    snapshot_id: int
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]


class _MetadataTransaction(Transaction):
    """Builds a snapshot on the table's metadata without copying it.

    pyiceberg copies it at each step, which takes about 0.1 s for a few hundred snapshots.
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
    """Build a snapshot on the table version of this object, with this state.

    `same_rows` means that the added files contain all rows of the removed ones: Iceberg's operation
    "replace", which incremental readers skip. A table of dead letters has no state. `properties`
    become properties of the table in the same commit; without a state they are ignored.
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
    """Change the operation to "replace", which pyiceberg reads but does not write."""
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.summary is None:
        return update
    summary = Summary(Operation.REPLACE, **update.snapshot.summary.additional_properties)
    snapshot: Snapshot = update.snapshot.model_copy(update={"summary": summary})
    return AddSnapshotUpdate(snapshot=snapshot)


def unchanged(table: Table) -> tuple[TableRequirement, ...]:
    """Require that the table's branches and tags are those of this object."""
    heads = [
        AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
        for name, ref in sorted(table.metadata.refs.items())
    ]
    return (*heads, _same_table(table))


def _same_table(table: Table) -> TableRequirement:
    return AssertTableUUID(uuid=table.metadata.table_uuid)


class Attempt(Enum):
    """The result of sending a proposal."""

    LANDED = "landed"
    REFUSED = "refused"


def attempt(table: Table, proposal: Proposal) -> Attempt:
    """Send a proposal. Afterwards `table` has the catalog's version. Raises CommitUnknownError.

    A refused proposal may still land later if its request was delayed, but only on the table
    version it was made for. So its files must not be deleted here.
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
    """Return True if this object has the proposal's snapshot."""
    return table.metadata.snapshot_by_id(proposal.snapshot_id) is not None


def refreshed(table: Table, cause: Exception | None = None) -> Table:
    """Refresh the table from the catalog. Raises CommitUnknownError if that fails."""
    try:
        return table.refresh()
    except Exception as error:
        raise CommitUnknownError(
            f"table {'.'.join(table.name())} cannot be read ({error}); call again once the catalog "
            "answers"
        ) from (cause or error)
