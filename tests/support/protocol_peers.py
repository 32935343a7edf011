"""The same messages encoded by kio and kafka-python, for comparison.

kio turns durations, times, codes and ids into Python objects; they are converted back to the values
on the wire. Its fields are in the order of the wire, so they are matched by position.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import pkgutil
import uuid
import warnings
from enum import IntEnum
from functools import cache
from io import BytesIO
from typing import Any

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from neve.protocol.schema import Field, Struct
from support.protocol_samples import Message

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its resources
    import kafka.errors
    import kafka.protocol.old as old_protocol
    from kafka.protocol.schemas.load_json import load_json

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


@cache
def kio_class(message: Message) -> Any | None:
    """kio's class of a message; None where it does not have the version."""
    load = load_request_schema if message.kind == "Request" else load_response_schema
    try:
        return load(message.api.key, message.version)
    except UnknownEntity:
        return None


def kio_decode(cls: Any, data: bytes) -> tuple[Any, int]:
    return entity_reader(cls)(data, 0)


def kio_encode(value: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def wire_value(value: Any) -> Any:
    """A value of kio's as it is on the wire."""
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    return int(value) if isinstance(value, IntEnum) else value


def differences(ours: Any, theirs: Any, struct: Struct, version: int, path: str) -> list[str]:
    """Where an instance of ours and one of kio's differ, field by field."""
    wanted = [each for each in struct.fields if version in each.versions]
    there = dataclasses.fields(theirs)
    names = [each.name for each in there]
    if not matched(wanted, names):
        return [f"{path}: {[each.name for each in wanted]} is not {names}"]
    found = []
    for field, their_field in zip(wanted, there, strict=True):
        mine, other = getattr(ours, field.name), getattr(theirs, their_field.name)
        found += value_differences(mine, other, field, version, f"{path}.{field.name}")
    return found


def matched(wanted: list[Field], names: list[str]) -> bool:
    """Whether names are the same but for the units, which kio leaves out."""
    return len(wanted) == len(names) and all(
        name in (each.name, each.name.removesuffix("_ms"))
        for each, name in zip(wanted, names, strict=True)
    )


def value_differences(mine: Any, other: Any, field: Field, version: int, path: str) -> list[str]:
    if field.struct is not None and mine is not None and other is not None:
        pairs = zip(mine, other, strict=True) if field.array else [(mine, other)]
        found = []
        for my_each, other_each in pairs:
            found += differences(my_each, other_each, field.struct, version, path)
        return found
    if field.array and other is not None:
        other = [absent_filled(wire_value(each), field) for each in other]
    elif field.type == "uuid" or field.name.endswith("_time_ms"):
        other = absent_filled(wire_value(other), field)
    else:
        other = wire_value(other)
    return [] if mine == other else [f"{path}: {mine!r} is not {other!r}"]


def absent_filled(value: Any, field: Field) -> Any:
    """kio shows the zero id and the time -1 as None."""
    if value is not None:
        return value
    return bytes(16) if field.type == "uuid" else -1


@cache
def _old_classes() -> dict[tuple[int, int, str], Any]:
    found = {}
    for module in pkgutil.iter_modules(old_protocol.__path__):
        loaded = importlib.import_module(f"{old_protocol.__name__}.{module.name}")
        for name, cls in vars(loaded).items():
            if "_v" in name and hasattr(cls, "API_KEY"):
                kind = "Response" if "Response" in name else "Request"
                found[cls.API_KEY, cls.API_VERSION, kind] = cls
    return found


def old_class(message: Message) -> Any:
    """kafka-python's hand-written class of a version that Kafka itself has dropped."""
    return _old_classes()[message.api.key, message.version, message.kind]


def leaves(value: Any, version: int, struct: Struct) -> list[Any]:
    """Every value of an instance of ours, in the order of the wire, as nested lists."""
    return [leaf(getattr(value, each.name), version, each) for each in struct.fields_in(version)]


def leaf(value: Any, version: int, field: Field) -> Any:
    if field.struct is None or value is None:
        return bytes(value) if isinstance(value, memoryview) else value
    if field.array:
        return [leaves(each, version, field.struct) for each in value]
    return leaves(value, version, field.struct)


def as_lists(value: Any) -> Any:
    return [as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def definition(message: Message) -> dict[str, Any]:
    """Kafka's own definition of a message, as kafka-python carries it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded: dict[str, Any] = load_json(f"{message.api.name}{message.kind}")
    return loaded


def kafka_python_errors() -> set[int]:
    """Every error code that kafka-python knows."""
    return {
        each.errno
        for each in vars(kafka.errors).values()
        if isinstance(each, type) and issubclass(each, kafka.errors.BrokerResponseError)
        if isinstance(each.errno, int)
    }
