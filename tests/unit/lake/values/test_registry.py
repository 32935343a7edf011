"""Values in Confluent's wire format, against a small registry on this machine."""

from __future__ import annotations

import base64
import io
import json
import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from neve.errors import DeniedError, InvalidError, UnavailableError
from neve.lake.values import registry as registry_module
from neve.lake.values import value_format
from neve.lake.values.registry import CREDENTIALS_VARIABLE, Registry, RegistryRef, registry_of
from neve.lake.values.types import map_of
from unit.lake.values.fake_registry import FakeRegistry


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    listed = [{"name": name, "type": type_} for name, type_ in fields]
    return {"type": "record", "name": "Row", "fields": listed}


FIRST = record(("id", "long"))
SECOND = record(("id", "long"), ("name", ["null", "string"]))
CLASH = record(("id", "string"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.delenv(CREDENTIALS_VARIABLE, raising=False)
    registry_of.cache_clear()
    found = FakeRegistry()
    found.add(1, FIRST)
    found.add(2, SECOND)
    found.add(3, CLASH)
    yield found
    found.close()


def wire(schema_id: int, schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + target.getvalue()


def decode(fake: FakeRegistry, values: list[bytes | None], schema: pa.Schema) -> Any:
    found = value_format({"format": "avro", "registry": fake.url})
    return found.decode(pa.array(values, pa.binary()), schema)


BOTH = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_values_of_several_schemas_keep_their_order(fake: FakeRegistry) -> None:
    values = [
        wire(2, SECOND, {"id": 1, "name": "a"}),
        wire(1, FIRST, {"id": 2}),
        None,
        wire(9, FIRST, {"id": 3}),
        b"{}",
        wire(2, SECOND, {"id": 4, "name": None}) + b"x",
        wire(3, CLASH, {"id": "5"}),
        wire(1, FIRST, {"id": 6}),
        b"\0\0\0",
    ]
    decoded = decode(fake, [*values], BOTH)
    assert decoded.good.to_pylist() == [0, 1, 2, 7]
    assert decoded.rows.to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": None},
        {"id": None, "name": None},
        {"id": 6, "name": None},
    ]
    reasons = {each.row: each.reason for each in decoded.bad}
    assert sorted(reasons) == [3, 4, 5, 6, 8]
    assert reasons[3] == "schema 9 is not in the registry"
    assert "wire format" in reasons[4]
    assert "left over" in reasons[5]
    assert "id is string" in reasons[6]
    assert "wire format" in reasons[8]
    assert sorted(fake.asked) == [f"/schemas/ids/{schema_id}" for schema_id in (1, 2, 3, 9)]


def test_columns_are_inferred_from_the_schemas_that_values_name(fake: FakeRegistry) -> None:
    found = value_format({"format": "avro", "registry": fake.url})
    assert found.schema() is None
    sample = [wire(1, FIRST, {"id": 1}), wire(2, SECOND, {"id": 1, "name": "x"}), b"?", None]
    assert found.infer(pa.array(sample, pa.binary())) == BOTH


def test_fields_that_the_table_lacks_are_reported(fake: FakeRegistry) -> None:
    value = wire(2, SECOND, {"id": 1, "name": "a"})
    decoded = decode(fake, [value], pa.schema([("id", pa.int64())]))
    assert decoded.rows.to_pylist() == [{"id": 1}]
    assert decoded.unknown == pa.schema([("name", pa.string())])


def test_a_schema_is_asked_for_once_in_a_process(fake: FakeRegistry) -> None:
    for _ in range(3):
        decode(fake, [wire(1, FIRST, {"id": 1}), wire(9, FIRST, {"id": 1})], BOTH)
    assert sorted(fake.asked) == ["/schemas/ids/1", "/schemas/ids/9"]


def test_an_unknown_id_is_asked_for_again_after_a_while(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = wire(9, FIRST, {"id": 1})
    assert len(decode(fake, [value], BOTH).bad) == 1
    fake.add(9, FIRST)
    assert len(decode(fake, [value], BOTH).bad) == 1
    monkeypatch.setattr(registry_module, "UNKNOWN_SECONDS", 0.0)
    assert decode(fake, [value], BOTH).bad == []


def test_no_more_schemas_are_kept_than_the_bound(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "SCHEMAS_MAX", 2)
    registry = Registry(RegistryRef.parse(fake.url))
    for schema_id in (1, 2, 1, 3, 1, 2):
        registry.avro_schema(schema_id)
    assert fake.asked == [f"/schemas/ids/{schema_id}" for schema_id in (1, 2, 3, 2)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "syntax = ...", "schemaType": "PROTOBUF"}, "is PROTOBUF, not AVRO"),
        ({"schema": "{"}, "is not JSON text"),
        ({"schema": '"long"'}, "must be a record"),
        ({"schema": json.dumps(record(("f", ["string", "long"])))}, "union of 2 types"),
    ],
)
def test_a_schema_that_has_no_columns_makes_bad_rows(
    fake: FakeRegistry, answer: Any, reason: str
) -> None:
    fake.answers["/schemas/ids/5"] = (200, answer)
    decoded = decode(fake, [wire(5, FIRST, {"id": 1})], BOTH)
    assert reason in decoded.bad[0].reason


def test_schemas_that_a_schema_refers_to_are_put_in(fake: FakeRegistry) -> None:
    address = {
        "type": "record",
        "name": "com.x.Address",
        "fields": [{"name": "street", "type": "string"}],
    }
    whole = record(("at", "com.x.Address"), ("old", ["null", "com.x.Address"]))
    reference = {"name": "com.x.Address", "subject": "a/b", "version": 3}
    fake.add(7, whole, references=[reference])
    fake.answers["/subjects/a%2Fb/versions/3"] = (200, {"schema": json.dumps(address)})
    value = struct.pack(">bI", 0, 7) + b"\x02s\x00"
    schema = pa.schema([("at", pa.struct([("street", pa.string())]))])
    decoded = decode(fake, [value], schema)
    assert decoded.rows.to_pylist() == [{"at": {"street": "s"}}]


REFERENCED = {
    "com.x.B": {"type": "record", "name": "com.x.B", "fields": [{"name": "s", "type": "string"}]},
    "com.x.C": {"type": "record", "name": "com.x.C", "fields": [{"name": "b", "type": "B"}]},
    "G": {"type": "enum", "name": "G", "symbols": ["A"]},
}
B = pa.struct([("s", pa.string())])
C = pa.struct([("b", B)])


@pytest.mark.parametrize(
    ("names", "types", "columns"),
    [
        ({"name": "com.x.Row"}, ["B", "com.x.B", ["null", "B"]], [B, B, B]),
        ({"name": "com.x.Row"}, [{"type": "map", "values": "C"}, "B"], [map_of(C), B]),
        ({"name": "Row", "namespace": "com.x"}, ["B", "string"], [B, pa.string()]),
        ({"name": "com.x.Row", "namespace": "com.y"}, ["B"], [B]),
        ({"name": "com.y.Row"}, ["com.x.B", "com.x.C", "com.x.B"], [B, C, B]),
        ({"name": "com.y.Row"}, ["com.x.C", "com.x.B"], [C, B]),
        ({"name": "Row"}, ["G", "com.x.B", "G"], [pa.string(), B, pa.string()]),
    ],
)
def test_a_name_in_a_schema_is_found_as_avro_finds_it(
    fake: FakeRegistry, names: dict[str, str], types: list[Any], columns: list[pa.DataType]
) -> None:
    fields = [{"name": f"f{place}", "type": type_} for place, type_ in enumerate(types)]
    whole = {"type": "record", **names, "fields": fields}
    fastavro.parse_schema([*REFERENCED.values(), whole])  # raises if a name is not found
    fake.add(7, whole, references=[{"name": n, "subject": n, "version": 1} for n in REFERENCED])
    for name, each in REFERENCED.items():
        fake.answers[f"/subjects/{name}/versions/1"] = (200, {"schema": json.dumps(each)})
    found = value_format({"format": "avro", "registry": fake.url})
    assert found.infer(pa.array([struct.pack(">bI", 0, 7)], pa.binary())).types == columns


@pytest.mark.parametrize("code", [40401, 40402])
def test_a_reference_to_what_was_deleted_makes_bad_rows(fake: FakeRegistry, code: int) -> None:
    reference = {"name": "com.x.Address", "subject": "gone", "version": 1}
    fake.add(7, record(("at", "com.x.Address")), references=[reference])
    fake.answers["/subjects/gone/versions/1"] = (404, {"error_code": code, "message": "none"})
    schema = pa.schema([("at", pa.string())])
    decoded = decode(fake, [struct.pack(">bI", 0, 7) + b"\x02s"], schema)
    (bad,) = decoded.bad
    assert bad.reason == "what schema 7 refers to (gone, version 1) is not in the registry"


@pytest.mark.parametrize("reference", [{}, {"name": "a", "subject": "s", "version": "x"}, 5])
def test_a_reference_that_cannot_be_followed_makes_bad_rows(
    fake: FakeRegistry, reference: object
) -> None:
    fake.add(7, record(("n", "int")), references=[reference])
    schema = pa.schema([("n", pa.int32())])
    decoded = decode(fake, [struct.pack(">bI", 0, 7) + b"\x02"], schema)
    assert "schema 7 has a reference" in decoded.bad[0].reason


# --- a registry in trouble


def test_a_registry_that_cannot_be_reached_can_be_tried_again() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ref = RegistryRef.parse(f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(UnavailableError, match="run the task again"):
            Registry(ref).avro_schema(1)


def test_a_registry_that_does_not_answer_is_left_after_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ref = RegistryRef.parse(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UnavailableError, match="did not give schema 1"):
            Registry(ref, timeout_seconds=0.1).avro_schema(1)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, {"error_code": 50001}, UnavailableError),
        (503, b"", UnavailableError),
        (429, b"", UnavailableError),
        (401, {"error_code": 40101}, DeniedError),
        (403, b"", DeniedError),
        (404, b"<html>", InvalidError),
        (404, {"error": "no such page"}, InvalidError),
        (200, b"<html>", InvalidError),
        (200, b"[]", InvalidError),
        (302, b"", InvalidError),
    ],
)
def test_an_answer_that_is_not_about_the_id_blames_no_record(
    fake: FakeRegistry, status: int, body: Any, error: type[Exception]
) -> None:
    fake.answers["/schemas/ids/1"] = (status, body)
    with pytest.raises(error):
        decode(fake, [wire(1, FIRST, {"id": 1})], BOTH)


def test_one_failure_is_tried_again_at_once(fake: FakeRegistry) -> None:
    fake.answers["/schemas/ids/1"] = (503, b"")
    with pytest.raises(UnavailableError):
        Registry(RegistryRef.parse(fake.url)).avro_schema(1)
    assert fake.asked == ["/schemas/ids/1"] * 2


# --- address and credentials


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def test_credentials_come_from_the_url_or_the_environment(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    Registry(RegistryRef.parse(fake.url)).avro_schema(1)
    monkeypatch.setenv(CREDENTIALS_VARIABLE, "key:secret")
    Registry(RegistryRef.parse(fake.url)).avro_schema(1)
    Registry(RegistryRef.parse(f"http://me:p%40ss@{fake.place}/")).avro_schema(1)
    assert fake.credentials == [None, basic("key:secret"), basic("me:p@ss")]


def test_credentials_travel_with_the_format_and_never_show(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CREDENTIALS_VARIABLE, "key:secret")
    found = value_format({"format": "avro", "registry": fake.url})
    travelled = pickle.dumps(found)
    monkeypatch.delenv(CREDENTIALS_VARIABLE)
    again = pickle.loads(travelled)
    again.decode(pa.array([wire(1, FIRST, {"id": 1})], pa.binary()), BOTH)
    assert fake.credentials == [basic("key:secret")]
    assert "secret" not in repr(again)
    fake.answers["/schemas/ids/2"] = (401, b"")
    with pytest.raises(DeniedError) as refused:
        again.decode(pa.array([wire(2, FIRST, {"id": 1})], pa.binary()), BOTH)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["ftp://x", "registry", "", 5, "http://", "http://a:pass@"])
def test_what_is_no_url_is_refused(url: object) -> None:
    with pytest.raises(InvalidError, match="registry") as refused:
        value_format({"format": "avro", "registry": url})
    assert "pass@" not in str(refused.value)
