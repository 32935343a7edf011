"""Names of a table's files: each carries the first half of the table's UUID.

Two catalogs may create a table with one name in one place, and a listing shows the files of both.
The mark identifies the table of a file, so maintenance leaves the files of other tables alone.
"""

from __future__ import annotations

import uuid

from neve import runtime

MARK_CHARACTERS = 18
"""Half of a UUID's text: `xxxxxxxx-xxxx-xxxx`."""
TOKEN_BYTES = 12


def mark_of(table_uuid: uuid.UUID | str) -> str:
    """Return the part that is in the name of all data files and manifests of a table."""
    return str(table_uuid)[:MARK_CHARACTERS]


def task_prefix(table_uuid: uuid.UUID | str) -> str:
    """Return a unique prefix for the data files of one task."""
    return f"{mark_of(table_uuid)}-{runtime.token(TOKEN_BYTES).hex()}"


def commit_uuid(table_uuid: uuid.UUID) -> uuid.UUID:
    """Return the UUID for the names of a commit's manifests: the mark and a random half."""
    return uuid.UUID(bytes=table_uuid.bytes[:8] + runtime.token(8))
