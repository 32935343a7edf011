"""Dead letters that can be read by now become rows, each once; the rest stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from neve.cli import main
from neve.errors import InvalidError
from neve.lake.pipeline.config import PipelineConfig, parse_config
from neve.lake.pipeline.replay import replay
from neve.lake.tables import (
    catalog_of,
    commit_range,
    dead_letter_replay,
    open_dead_letters,
    open_table,
    read_progress,
)
from neve.lake.tables.columns import DEAD_LETTER_SCHEMA
from neve.lake.tables.dead_letter_files import record_ids
from neve.lake.tables.dead_letter_replay import RUNS_MAX, Findings, LetterRuns
from neve.lake.tables.history import LetterRun, state_of
from unit.lake.tables.table_scene import TOPIC_ID, at, written

NAME = "lake.orders"
SCHEMA = {"number": "long"}
JSON_NUMBER = {"format": "json", "schema": SCHEMA}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def catalog(store: str) -> Iterator[Catalog]:
    catalog = catalog_of({}, store)
    yield catalog
    catalog.close()


def config_of(store: str, value: dict[str, Any] | None = None) -> PipelineConfig:
    return parse_config(
        {"store": store, "topics": [{"topic": "orders", "value": value or JSON_NUMBER}]}
    )


def scene(
    catalog: Catalog,
    values: list[bytes],
    *,
    end: int | None = None,
    kind: pa.DataType = pa.int64(),  # noqa: B008 (a constant)
) -> tuple[Table, Table]:
    """A table whose offsets 0, 2, 4, ... are dead letters with these values."""
    table = open_table(catalog, NAME, pa.schema([("number", kind)]))
    letters = open_dead_letters(catalog, NAME)
    commit_range(
        table,
        [],
        {},
        at(2 * len(values) if end is None else end),
        letters=lambda: letters,
        letter_files=written(letters, letters_with(values)),
    )
    return table, letters


def letters_with(values: list[bytes]) -> pa.RecordBatch:
    made = [
        {
            "topic": "orders",
            "topic_id": TOPIC_ID,
            "partition": 0,
            "offset": 2 * number,
            "timestamp": 1_700_000_000_000_000 + number,
            "key": b"key",
            "value": value,
            "headers": [{"key": "h", "value": b"v"}],
            "reason": "broken",
        }
        for number, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(made, schema=DEAD_LETTER_SCHEMA)


def rows_of(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.refresh().scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["_kafka"]["offset"])


def offsets_left(letters: Table) -> list[int]:
    return sorted(letters.refresh().scan().to_arrow()["offset"].to_pylist())


def test_what_can_be_read_becomes_a_row_with_its_origin(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b"{", b'{"number": 3}'])
    (report,) = replay(config_of(store))
    assert (report.replayed, report.left) == (2, 1)
    assert sum(report.reasons.values()) == 1
    first, last = rows_of(table)
    assert (first["number"], last["number"]) == (1, 3)
    assert (first["_kafka"]["offset"], last["_kafka"]["offset"]) == (0, 4)
    assert first["_kafka"]["key"] == b"key"
    assert first["_kafka"]["headers"] == [{"key": "h", "value": b"v"}]
    assert offsets_left(letters) == [2]
    assert read_progress(table) == at(6)
    assert not state_of(table).replayed


LETTERS = {
    "fields that get a column": [b'{"number": 1, "new": 1}', b'{"new": 2}'],
    "a field without a place": [b'{"number": 1, "NUMBER": 2}', b'{"_kafka": 1}', b'{"": 1}'],
    "kinds of one new field": [b'{"new": 1}', b'{"new": 2}', b'{"new": "x"}', b'{"new": {"a": 1}}'],
    "fields inside new ones": [b'{"a": {"b": 1}}', b'{"a": {"c": [1]}}', b'{"a": 5}', b"{"],
}


@pytest.mark.parametrize("values", LETTERS.values(), ids=LETTERS.keys())
@pytest.mark.parametrize("value", [{"format": "json"}, JSON_NUMBER], ids=["inferred", "given"])
def test_a_dry_run_counts_as_the_run_does_and_changes_nothing(
    store: str, catalog: Catalog, values: list[bytes], value: dict[str, Any]
) -> None:
    table, letters = scene(catalog, values)
    before = (table.refresh().metadata, letters.refresh().metadata)
    (dry,) = replay(config_of(store, value), dry_run=True)
    assert (table.refresh().metadata, letters.refresh().metadata) == before
    (done,) = replay(config_of(store, value))
    assert dry == done
    assert len(rows_of(table)) == dry.replayed
    assert len(offsets_left(letters)) == dry.left


def test_again_changes_nothing(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b"{"])
    replay(config_of(store))
    before = table.refresh().current_snapshot()
    (report,) = replay(config_of(store))
    assert (report.replayed, report.left) == (0, 1)
    assert table.refresh().current_snapshot() == before
    assert offsets_left(letters) == [2]


def test_a_mended_value_is_read(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b"{"])
    assert replay(config_of(store))[0].left == 1
    mended = letters_with([b'{"number": 7}'])
    letters.refresh().overwrite(pa.Table.from_batches([mended]), EqualTo("offset", 0))
    assert replay(config_of(store))[0].replayed == 1
    assert [row["number"] for row in rows_of(table)] == [7]
    assert offsets_left(letters) == []


def test_a_value_that_was_mended_as_it_was_read_is_read(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b"{", b'{"number": 2}'])
    read = letters.refresh().scan().to_arrow()
    values = pa.array([b'{"number": 7}', b'{"number": 8}'], pa.large_binary())
    mended = read.set_column(read.schema.get_field_index("value"), "value", values)
    letters.overwrite(mended)
    assert replay(config_of(store))[0].replayed == 2
    assert [row["number"] for row in rows_of(table)] == [7, 8]


def test_the_files_new_schema_is_the_tables_first(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 5000000000, "share": 1}'], kind=pa.int32())
    assert replay(config_of(store, {"format": "json", "schema": {"number": "int"}}))[0].left == 1
    wider = {"format": "json", "schema": {"number": "long", "share": "double"}}
    (report,) = replay(config_of(store, wider), dry_run=True)
    assert (report.replayed, report.left) == (1, 0)
    assert (rows_of(table), offsets_left(letters)) == ([], [0])
    assert replay(config_of(store, wider))[0].replayed == 1
    assert [(row["number"], row["share"]) for row in rows_of(table)] == [(5_000_000_000, 1.0)]


def test_letters_of_other_topics_of_the_table_are_left(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}'])
    other = letters_with([b'{"number": 2}']).to_pylist()[0] | {"topic": "other", "offset": 1}
    letters.refresh().append(pa.Table.from_pylist([other], schema=DEAD_LETTER_SCHEMA))
    assert replay(config_of(store))[0].replayed == 1
    assert [row["number"] for row in rows_of(table)] == [1]
    assert offsets_left(letters) == [1]


def test_new_fields_get_columns(store: str, catalog: Catalog) -> None:
    table, _ = scene(catalog, [b'{"number": 1, "note": "new"}'])
    (report,) = replay(config_of(store, {"format": "json"}))
    assert report.replayed == 1
    assert rows_of(table)[0]["note"] == "new"


def test_a_dry_run_only_tells(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b"{"])
    (report,) = replay(config_of(store), dry_run=True)
    assert (report.replayed, report.left) == (1, 1)
    assert rows_of(table) == []
    assert offsets_left(letters) == [0, 2]


def test_a_dry_run_leaves_a_replay_that_was_killed_as_it_is(
    store: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b"{"])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changes:
        changes.setattr(dead_letter_replay, "_remove_letters", killed)
        with pytest.raises(KeyboardInterrupt):
            replay(config_of(store))
    before = table.refresh().current_snapshot()
    (report,) = replay(config_of(store), dry_run=True)
    assert (report.replayed, report.left) == (0, 1)
    assert table.refresh().current_snapshot() == before
    assert offsets_left(letters) == [0, 2]
    assert replay(config_of(store))[0].replayed == 0
    assert [row["number"] for row in rows_of(table)] == [1]
    assert offsets_left(letters) == [2]


def test_letters_of_offsets_to_come_are_left_to_the_pipeline(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b'{"number": 2}'], end=1)
    assert replay(config_of(store))[0].replayed == 1
    assert [row["number"] for row in rows_of(table)] == [1]
    assert offsets_left(letters) == [2]


def test_a_letter_that_stands_there_twice_is_left(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}', b'{"number": 2}'])
    again = letters_with([b'{"number": 5}'])
    letters.refresh().append(pa.Table.from_batches([again]))
    (report,) = replay(config_of(store))
    assert (report.replayed, report.twice) == (1, 1)
    assert [row["number"] for row in rows_of(table)] == [2]
    assert offsets_left(letters) == [0, 0]


def test_a_letter_without_a_place_is_left(store: str, catalog: Catalog) -> None:
    table, letters = scene(catalog, [b'{"number": 1}'])
    strange = pa.Table.from_pylist([{"value": b'{"number": 9}'}], schema=DEAD_LETTER_SCHEMA)
    letters.refresh().append(strange)
    replay(config_of(store))
    assert [row["number"] for row in rows_of(table)] == [1]
    assert letters.refresh().scan().to_arrow().num_rows == 1


def test_without_tables_there_is_nothing_to_do(store: str) -> None:
    (report,) = replay(config_of(store))
    assert (report.replayed, report.left) == (0, 0)


def test_another_topic_is_refused(store: str) -> None:
    with pytest.raises(InvalidError, match="not in this pipeline; valid topics: orders"):
        replay(config_of(store), topic="other")


def test_the_command(
    store: str, catalog: Catalog, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    scene(catalog, [b'{"number": 1}', b"{"])
    file = tmp_path / "pipeline.yaml"
    topic = {"topic": "orders", "value": JSON_NUMBER}
    file.write_text(json.dumps({"store": store, "topics": [topic]}))
    assert main(["lake", "replay", "-f", str(file), "--dry-run"]) == 0
    assert b"lake.orders: 1 could be replayed, 1 still" in capsysbinary.readouterr().out
    assert main(["lake", "replay", "-f", str(file), "--json"]) == 0
    (row,) = json.loads(capsysbinary.readouterr().out)
    assert (row["replayed"], row["left"], row["twice"]) == (1, 1, 0)


# --- runs


def test_runs_hold_neighbours_among_letters() -> None:
    found = Findings()
    places = [("a", 0, offset) for offset in (1, 5, 9, 12)] + [("a", 1, 3), ("b", 1, 4)]
    found.add(places, _mask([True, True, False, True, True, True]))
    assert found.runs() == [
        LetterRun("a", 0, 1, 5),
        LetterRun("a", 0, 12, 12),
        LetterRun("a", 1, 3, 3),
        LetterRun("b", 1, 4, 4),
    ]


def test_one_commit_takes_so_many_runs() -> None:
    found = Findings()
    count = 3 * RUNS_MAX
    places = [("a", 0, offset) for offset in range(count)]
    found.add(places, _mask([offset % 2 == 0 for offset in range(count)]))
    assert len(found.runs()) == RUNS_MAX


def test_runs_name_what_is_in_them() -> None:
    named = LetterRuns(
        [LetterRun(TOPIC_ID, 0, 2, 4), LetterRun(TOPIC_ID, 0, 8, 8), LetterRun("b", 0, 0, 99)]
    )
    batch = letters_with([b""] * 6)
    assert [place[2] for place in record_ids(batch)] == [0, 2, 4, 6, 8, 10]
    assert named.mask(batch).tolist() == [False, True, True, False, True, False]


def _mask(values: list[bool]) -> Any:
    return pa.array(values).to_numpy(zero_copy_only=False)
