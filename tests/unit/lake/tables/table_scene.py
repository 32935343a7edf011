"""A catalog in a folder, rows of a made-up topic, and what is in a table in the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from neve.lake.tables import (
    Progress,
    TopicProgress,
    WrittenFile,
    catalog_of,
    open_dead_letters,
    open_table,
    table_ref,
    write_files,
)
from neve.lake.tables.columns import DEAD_LETTER_SCHEMA, KAFKA_STRUCT

TOPIC = "orders"
TOPIC_ID = "a" * 32
NAME = "lake.orders"
VALUE = pa.schema([("number", pa.int64()), ("text", pa.string())])
DAY_US = 86_400_000_000
START_US = 20_000 * DAY_US


@contextlib.contextmanager
def catalog_in(folder: Path) -> Iterator[Catalog]:
    catalog = catalog_of({}, str(folder / "store"))
    try:
        yield catalog
    finally:
        catalog.close()


def table_in(catalog: Catalog, partition_by: Iterable[str] = ("day(_kafka.timestamp)",)) -> Table:
    return open_table(catalog, NAME, VALUE, partition_by)


def letters_in(catalog: Catalog) -> Table:
    return open_dead_letters(catalog, NAME)


def at(*offsets: int | None, topic_id: str = TOPIC_ID) -> Progress:
    """Next offsets by partition; None for one not started."""
    known = {number: offset for number, offset in enumerate(offsets) if offset is not None}
    return {topic_id: TopicProgress(TOPIC, known)}


def rows(first: int, end: int, partition: int = 0, topic: str = TOPIC) -> pa.RecordBatch:
    """Rows of these offsets, a hundred of them a day."""
    offsets = range(first, end)
    origin = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": START_US + offset * DAY_US // 100,
            "key": f"key-{offset}".encode(),
            "headers": [{"key": "h", "value": b"v"}],
        }
        for offset in offsets
    ]
    columns = [
        pa.array(offsets, pa.int64()),
        pa.array([f"text {offset}" for offset in offsets], pa.string()),
        pa.array(origin, KAFKA_STRUCT),
    ]
    return pa.RecordBatch.from_arrays(columns, ["number", "text", "_kafka"])


def letter_rows(
    offsets: Iterable[int], partition: int = 0, reason: str = "broken", topic_id: str = TOPIC_ID
) -> pa.RecordBatch:
    made = [
        {
            "topic": TOPIC,
            "topic_id": topic_id,
            "partition": partition,
            "offset": offset,
            "value": b"?",
            "reason": reason,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(made, schema=DEAD_LETTER_SCHEMA)


def written(table: Table, *batches: pa.RecordBatch) -> list[WrittenFile]:
    return write_files(table_ref(table), iter(batches))


def foreign_append(table: Table, *batches: pa.RecordBatch) -> None:
    """What another program does: a snapshot that knows nothing of offsets."""
    with table.refresh().transaction() as changes, changes.update_snapshot().fast_append() as added:
        for file in written(table, *batches):
            added.append_data_file(file.entry())


def held(table: Table) -> Counter[tuple[int, int]]:
    """How often each partition and offset is in the table."""
    origins = table.refresh().scan(selected_fields=("_kafka",)).to_arrow()["_kafka"].to_pylist()
    return Counter((row["partition"], row["offset"]) for row in origins if row is not None)


def letters_held(letters: Table) -> dict[tuple[int, int], list[str]]:
    """The reasons that each partition and offset has in the table of dead letters."""
    found: dict[tuple[int, int], list[str]] = {}
    for row in letters.refresh().scan().to_arrow().to_pylist():
        found.setdefault((row["partition"], row["offset"]), []).append(row["reason"])
    return found


def once(first: int, end: int, partition: int = 0) -> Counter[tuple[int, int]]:
    return Counter({(partition, offset): 1 for offset in range(first, end)})
