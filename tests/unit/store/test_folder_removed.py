"""A folder that is removed under its users is told, and never quietly made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from neve.errors import NotFoundError, StoreFailedError
from neve.store.folder import FolderStore


@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("gone", ["", "wal", "wal/1"])
async def test_nothing_is_written_where_objects_were_removed(
    tmp_path: Path, gone: str, fsync: bool
) -> None:
    store = FolderStore(tmp_path / "bucket", fsync=fsync)
    await store.create("wal/1/0", b"first")
    shutil.rmtree(tmp_path / "bucket" / gone)
    for _ in range(2):
        with pytest.raises(StoreFailedError, match="removed"):
            await store.create("wal/1/1", b"second")
    with pytest.raises(NotFoundError):
        await store.get("wal/1/1")
    with pytest.raises(NotFoundError):
        await store.get("wal/1/0")


async def test_what_was_not_used_is_made_and_temporary_files_may_be_swept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "bucket")
    await store.create("wal/1/0", b"first")
    shutil.rmtree(tmp_path / "bucket" / ".tmp")
    await store.create("wal/2/0", b"another")
    await store.create("wal/1/1", b"second")
    assert bytes(await store.get("wal/1/1")) == b"second"
