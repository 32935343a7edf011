"""docs/contributors/format-payloads.md describes each JSON struct, field, default and tag."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import msgspec

from neve.cluster import records as cluster_records
from neve.cluster import state as cluster_state
from neve.cluster import stream_ends
from neve.cluster.liveness import heartbeat
from neve.log.envelope import Stored
from neve.log.manifest import records as manifest_records
from neve.log.manifest import state as manifest_state
from neve.log.wal import checkpoint as wal_checkpoint
from neve.log.wal import store_identity

PAGE = Path(__file__).parents[4] / "docs" / "contributors" / "format-payloads.md"
PARTS: dict[str, tuple[ModuleType, ...]] = {
    "cluster log": (cluster_records, cluster_state),
    "manifest": (manifest_records, manifest_state),
    "WAL checkpoint": (wal_checkpoint,),
    "heartbeat": (heartbeat,),
    "WAL store": (store_identity,),
    "stream ends": (stream_ends,),
}


def structs_of(modules: tuple[ModuleType, ...]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for module in modules:
        for name, thing in vars(module).items():
            is_payload = isinstance(thing, type) and issubclass(thing, Stored)
            is_base = thing in (Stored, cluster_records.ClusterStored)
            if is_payload and not is_base and thing.__module__ == module.__name__:
                info = msgspec.inspect.type_info(thing)
                fields = {
                    row.encode_name: "required" if row.required else "default"
                    for row in info.fields
                }
                found[name] = {"tag": info.tag, "fields": fields}
    return found


def tables_of(heading: str) -> dict[str, dict[str, object]]:
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", text.split(f"## Payload: {heading}\n", 1)[1], maxsplit=1)[0]
    found: dict[str, dict[str, object]] = {}
    for title, tag, rows in re.findall(
        r"\*\*(\w+)\*\*(?:, tag `([a-z-]+)`)?[^\n]*\n\n((?:\|[^\n]*\n)+)", section
    ):
        cells = [row.split("|")[1:3] for row in rows.strip().splitlines()[2:]]
        fields = {
            name.strip(): "default" if "default" in kind else "required" for name, kind in cells
        }
        found[title] = {"tag": tag or None, "fields": fields}
    for title, tag in re.findall(r"\*\*(\w+)\*\*, tag `([a-z-]+)`[^\n]*\. No fields\n", section):
        found[title] = {"tag": tag, "fields": {}}
    return found


def test_every_payload_is_described_as_it_is():
    for heading, modules in PARTS.items():
        assert tables_of(heading) == structs_of(modules), heading
