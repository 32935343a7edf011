"""Making tables, letting them grow, and finding their catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import LongType, StringType

from neve.errors import InvalidError, UnavailableError
from neve.lake.tables import (
    SchemaMovedError,
    apply_evolution,
    catalog_of,
    commit,
    open_table,
    table_ref,
    write_files,
)
from neve.lake.tables.catalogs import catalog_file
from neve.settings import StoreSettings
from neve.store.cloud import S3_ENDPOINT_VARIABLES
from unit.lake.tables.table_scene import VALUE, at, catalog_in, letters_in, rows, table_in, written


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as opened:
        yield opened


# --- tables


def test_a_table_has_the_value_s_fields_and_its_origin(catalog: Catalog) -> None:
    table = table_in(catalog)
    assert [column.name for column in table.schema().fields] == ["number", "text", "_kafka"]
    origin = table.schema().find_type("_kafka")
    assert str(origin) == (
        "struct<4: topic: optional string, 5: partition: optional int, 6: offset: optional long, "
        "7: timestamp: optional timestamptz, 8: key: optional binary, 9: headers: optional "
        "list<struct<12: key: optional string, 13: value: optional binary>>, 10: topic_id: "
        "optional string>"
    )
    assert str(table.spec().fields[0]) == "1000: kafka_timestamp_day: day(7)"


def test_opening_again_gives_the_same_table(catalog: Catalog) -> None:
    assert table_in(catalog).metadata.table_uuid == table_in(catalog).metadata.table_uuid
    assert letters_in(catalog).name() == ("lake", "orders_dead_letters")


def test_whoever_comes_second_gets_the_first_one_s_table(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table_in(catalog)
    load = catalog.load_table
    missed = False

    def not_yet(name: str) -> object:
        nonlocal missed
        if not missed:
            missed = True
            raise NoSuchTableError(name)
        return load(name)

    monkeypatch.setattr(catalog, "load_table", not_yet)
    assert table_in(catalog).metadata.table_uuid == first.metadata.table_uuid


@pytest.mark.parametrize(
    ("name", "value", "partition_by", "said"),
    [
        ("orders", VALUE, [], "no namespace"),
        ("lake.a", pa.schema([("_kafka", pa.int32())]), [], "rename it"),
        ("lake.a", VALUE, ["day(_kafka.time)"], "column _kafka.time does not exist"),
        ("lake.a", VALUE, ["day(text)"], "cannot be used like this"),
        ("lake.a", VALUE, ["week(number)"], "write a column, year, month"),
        ("lake.a", VALUE, ["bucket(number)"], "write a column, year, month"),
        ("lake.a", VALUE, ["bucket(0, number)"], "write a column, year, month"),
        ("lake.a", VALUE, ["_kafka"], "cannot be used like this"),
        ("lake.a", VALUE, ["number", "identity(number)"], "has a duplicate"),
    ],
)
def test_what_cannot_be_a_table_is_refused(
    catalog: Catalog, name: str, value: pa.Schema, partition_by: list[str], said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        open_table(catalog, name, value, partition_by)


def test_partitioning_that_yaml_splits_at_a_comma_is_joined(catalog: Catalog) -> None:
    given = yaml.safe_load("[day(_kafka.timestamp), bucket(2, number), truncate(3,text)]")
    assert len(given) == 5
    fields = open_table(catalog, "lake.a", VALUE, given).spec().fields
    assert [str(each.transform) for each in fields] == ["day", "bucket[2]", "truncate[3]"]


# --- evolution


@dataclass
class Change:
    add: list[pa.Field] = field(default_factory=list)
    widen: list[tuple[tuple[str, ...], pa.DataType]] = field(default_factory=list)


NESTED = pa.schema(
    [
        ("count", pa.int32()),
        ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
        ("parts", pa.list_(pa.struct([("size", pa.float32())]))),
    ]
)
GROWN = Change(
    add=[
        pa.field("extra", pa.list_(pa.struct([("x", pa.int64())]))),
        pa.field("who", pa.struct([("email", pa.string())])),
        pa.field("parts", pa.list_(pa.struct([("colour", pa.string())]))),
    ],
    widen=[
        (("count",), pa.int64()),
        (("who", "age"), pa.int64()),
        (("parts", "[]", "size"), pa.float64()),
    ],
)


def test_a_table_grows_and_old_files_stay_readable(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.nested", NESTED, [])
    row = {"count": 1, "who": {"name": "a", "age": 2}, "parts": [{"size": 0.5}]}
    old = write_files(table_ref(table), iter([pa.RecordBatch.from_pylist([row], schema=NESTED)]))
    before = {
        name: table.schema().find_field(name).field_id
        for name in ("count", "who.age", "parts.element.size")
    }
    apply_evolution(table, GROWN)
    apply_evolution(table, GROWN)
    assert {name: table.schema().find_field(name).field_id for name in before} == before
    assert table.schema().find_type("count") == LongType()
    assert table.schema().find_type("who.email") == StringType()
    assert table.schema().find_type("parts.element.colour") == StringType()
    commit(table, old, {}, at(1))
    new = {
        "count": 2**40,
        "who": {"name": "b", "age": 2**40, "email": "e"},
        "parts": [{"size": 0.1, "colour": "red"}],
        "extra": [{"x": 1}],
    }
    commit(table, written(table, pa.RecordBatch.from_pylist([new])), at(1), at(2))
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda each: each["count"])
    assert found[0]["who"] == {"name": "a", "age": 2, "email": None}
    assert found[0]["parts"] == [{"size": 0.5, "colour": None}]
    assert {name: found[1][name] for name in new} == new


def test_two_pipelines_may_grow_a_table_at_once(catalog: Catalog) -> None:
    first, second = table_in(catalog), table_in(catalog)
    apply_evolution(first, Change(add=[pa.field("a", pa.int32()), pa.field("b", pa.string())]))
    apply_evolution(second, Change(add=[pa.field("b", pa.string()), pa.field("c", pa.string())]))
    names = [column.name for column in second.schema().fields]
    assert names == ["number", "text", "_kafka", "a", "b", "c"]
    # Wider than it was meant to become is as good.
    apply_evolution(second, Change(widen=[(("a",), pa.int64())]))
    apply_evolution(first.refresh(), Change(add=[pa.field("a", pa.int32())]))


def test_a_change_that_others_made_impossible_is_told(catalog: Catalog) -> None:
    first, second = table_in(catalog), table_in(catalog)
    apply_evolution(first, Change(add=[pa.field("a", pa.string())]))
    with pytest.raises(SchemaMovedError, match="compare the values with its schema again"):
        apply_evolution(second, Change(add=[pa.field("a", pa.int32())]))


# --- catalogs


def test_a_folder_s_catalog_and_tables_are_in_the_folder(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        commit(table, written(table, rows(0, 1)), {}, at(1))
    assert (store / "lake" / "catalog.db").is_file()
    assert list((store / "lake" / "lake" / "orders" / "data").rglob("*.parquet"))


def test_a_bucket_s_catalog_is_in_the_user_s_folder_or_a_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    settings = StoreSettings(endpoint="http://localhost:1", region="here")
    catalog = catalog_of({}, "s3://bucket/some/prefix", store=settings)
    catalog.close()
    assert catalog.properties["warehouse"] == "s3://bucket/some/prefix/lake"
    assert catalog.properties["s3.endpoint"] == "http://localhost:1"
    assert list((tmp_path / "share").rglob("catalog.db"))
    given = catalog_of({"folder": str(tmp_path / "mine")}, "s3://bucket")
    given.close()
    assert (tmp_path / "mine" / "catalog.db").is_file()
    assert given.properties["warehouse"] == "s3://bucket/lake"


def test_no_two_buckets_prefixes_or_endpoints_share_a_default_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in S3_ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    urls = ("prod/eu", "prod_eu", "a b", "a_b", "日本", "中国", "p/" * 150 + "p", "p/" * 151 + "p")
    files = [catalog_file(f"s3://data/{url}", StoreSettings()) for url in urls]
    files.append(catalog_file("gs://data/a_b", StoreSettings()))
    for endpoint in ("http://one:9000", "http://two:9000", "http://two:9001"):
        files.append(catalog_file("s3://data/a_b", StoreSettings(endpoint=endpoint)))
    assert len(set(files)) == len(files)
    assert max(len(file.parent.name) for file in files) < 255
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://two:9001")
    assert catalog_file("s3://data/a_b/", StoreSettings()) == files[-1]


@pytest.mark.parametrize("warehouse", [{}, {"warehouse": "tables"}])
def test_a_folder_with_the_catalog_of_another_store_is_refused(
    tmp_path: Path, warehouse: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = {"folder": str(tmp_path / "catalog")}
    catalog_of({**spec, **warehouse}, "s3://bucket/one").close()
    with pytest.raises(InvalidError, match=r"is for tables under .*(bucket/one/lake|tables), not"):
        catalog_of(spec, "s3://bucket/two")
    catalog_of({**spec, **warehouse}, "s3://bucket/one/").close()
    shared = {"uri": f"sqlite:///{tmp_path}/catalog/catalog.db"}
    catalog_of(shared, "s3://bucket/two").close()


@pytest.mark.parametrize(
    ("store", "environment", "region"),
    [
        ({"region": "here"}, {"AWS_REGION": "there"}, "here"),
        ({}, {"AWS_REGION": "there"}, "there"),
        ({}, {"AWS_DEFAULT_REGION": "there"}, "there"),
        ({}, {}, "us-east-1"),
    ],
)
def test_nobody_is_asked_for_the_region_of_a_bucket_behind_an_endpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: dict[str, str],
    environment: dict[str, str],
    region: str,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyiceberg.io.pyarrow._cached_resolve_s3_region", _asks_aws)
    settings = StoreSettings(endpoint="http://127.0.0.1:1", **store)
    with catalog_of({"folder": str(tmp_path)}, "s3://bucket", store=settings) as catalog:
        io = catalog._load_file_io(catalog.properties, "s3://bucket/lake")
        assert isinstance(io, PyArrowFileIO)
        assert io.fs_by_scheme("s3", "bucket").region == region


def _asks_aws(**_: object) -> str:
    raise AssertionError("AWS was asked for the region")


def test_the_environment_s_endpoint_holds_for_tables_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    with catalog_of({"folder": str(tmp_path)}, "s3://bucket") as catalog:
        assert catalog.properties["s3.endpoint"] == "http://127.0.0.1:2"


def test_a_catalog_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="rest catalog: it cannot be opened"):
        catalog_of({"type": "rest", "uri": "http://127.0.0.1:1"}, str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "url", "said"),
    [
        ({"type": "hive"}, "folder", "use one of sql, rest, glue"),
        ({}, "memory://x", "in memory holds no tables"),
        ({"uri": ["a"]}, "folder", "must be a string or a number"),
    ],
)
def test_a_catalog_that_cannot_be_is_refused(
    spec: dict[str, object], url: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidError, match=said):
        catalog_of(spec, url)
