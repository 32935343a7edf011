"""The objects that a table's snapshots refer to."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Snapshot


class ReachableFiles:
    """Finds manifest lists, manifests, data and delete files. Reads each manifest once."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._files_of: dict[str, list[str]] = {}

    def of(self, snapshots: Iterable[Snapshot]) -> set[str]:
        """Return the paths that reading these snapshots needs, without removed files."""
        paths: set[str] = set()
        for snapshot in snapshots:
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(self._io):
                paths.add(manifest.manifest_path)
                paths.update(self._listed_in(manifest))
        return paths

    def _listed_in(self, manifest: ManifestFile) -> list[str]:
        if manifest.manifest_path not in self._files_of:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            self._files_of[manifest.manifest_path] = [each.data_file.file_path for each in entries]
        return self._files_of[manifest.manifest_path]
