"""Names of a table's files: each carries the first half of the table's UUID.

Two catalogs may make a table of one name in one place, and a listing shows the files of both. Only
the mark says whose a file is, so upkeep can leave alone what another catalog's table is made of.
"""

from __future__ import annotations

import uuid

from neve import runtime

MARK_CHARACTERS = 18
"""Half of a UUID's text: `xxxxxxxx-xxxx-xxxx`."""
TOKEN_BYTES = 12


def mark_of(table_uuid: uuid.UUID | str) -> str:
    """What stands in the name of every data file, manifest and manifest list of a table."""
    return str(table_uuid)[:MARK_CHARACTERS]


def task_prefix(table_uuid: uuid.UUID | str) -> str:
    """How the names of one task's data files begin; no other task has the same."""
    return f"{mark_of(table_uuid)}-{runtime.token(TOKEN_BYTES).hex()}"


def commit_uuid(table_uuid: uuid.UUID) -> uuid.UUID:
    """What pyiceberg names a commit's manifests after: the mark, then chance."""
    return uuid.UUID(bytes=table_uuid.bytes[:8] + runtime.token(8))
