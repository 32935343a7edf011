"""Our descriptions say what Kafka's own definitions say: fields, types, versions, tags, defaults.

kafka-python carries those definitions; it is an oracle here and nothing else.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from neve.protocol.messages import APIS
from neve.protocol.schema import NEVER, ZERO_UUID, Field, Struct, Versions
from support.protocol_peers import definition
from support.protocol_samples import Message

MESSAGES = [
    Message(api, kind, api.max_version) for api in APIS.values() for kind in ("Request", "Response")
]


def versions_of(text: str | None) -> Versions:
    if text is None or text == "none":
        return Versions(NEVER, 0)
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), NEVER)
    return Versions(int(first), int(last or first))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def default_of(theirs: dict[str, Any], ours: Field) -> Any:
    """A definition's default as our tree would hold it."""
    text = theirs.get("default")
    if text == "null":
        return None
    if ours.array or ours.struct is not None:
        return False
    if ours.type == "bool":
        return text in (True, "true")
    if ours.type in ("string", "bytes", "records", "uuid"):
        zero = {"string": "", "uuid": ZERO_UUID}.get(ours.type, b"")
        return text or zero
    return int(str(text or 0), 0)


def described(ours: Field, version: int) -> tuple[Any, ...]:
    kind = ("[]" if ours.array else "") + ("struct" if ours.struct else ours.type)
    return ours.name, kind, version in ours.nullable, ours.tag, ours.default


def defined(theirs: dict[str, Any], ours: Field | None, version: int) -> tuple[Any, ...]:
    kind = re.sub(r"[A-Z]\w*", "struct", theirs["type"])
    nullable = version in versions_of(theirs.get("nullableVersions"))
    tagged = version in versions_of(theirs.get("taggedVersions"))
    tag = theirs["tag"] if tagged else None
    default = default_of(theirs, ours) if ours is not None else None
    return snake(theirs["name"]), kind, nullable, tag, default


def differences(ours: Struct, fields: list[dict[str, Any]], version: int) -> list[str]:
    mine = [each for each in ours.fields if version in each.versions]
    others = [each for each in fields if version in versions_of(each["versions"])]
    if [each.name for each in mine] != [snake(each["name"]) for each in others]:
        return [f"{ours.name}: {[each.name for each in mine]} in version {version}"]
    found = []
    for field, other in zip(mine, others, strict=True):
        if described(field, version) != defined(other, field, version):
            found.append(f"{described(field, version)} is not {defined(other, field, version)}")
        if field.struct is not None:
            found += differences(field.struct, other["fields"], version)
    return found


# kafka-python has no definition of these; kio's tests compare them.
UNDEFINED = {"UnregisterBroker"}
DEFINED = [message for message in MESSAGES if message.api.name not in UNDEFINED]


@pytest.mark.parametrize("message", DEFINED, ids=repr)
def test_a_description_says_what_kafka_s_definition_says(message: Message) -> None:
    api, theirs = message.api, definition(message)
    assert theirs["apiKey"] == api.key
    assert versions_of(theirs["flexibleVersions"]).first == api.flexible_from
    valid = versions_of(theirs["validVersions"])
    assert api.max_version in valid
    for version in range(max(valid.first, api.min_version), api.max_version + 1):
        assert differences(message.schema, theirs["fields"], version) == []


def test_a_difference_is_found() -> None:
    message = next(each for each in MESSAGES if repr(each).startswith("MetadataResponse"))
    theirs = definition(message)["fields"]
    broker = next(each for each in theirs if each["name"] == "Brokers")["fields"]
    for spoiled in (
        {"default": "7"},
        {"type": "int64"},
        {"versions": "99+"},
        {"nullableVersions": "0+"},
        {"tag": 3, "taggedVersions": "0+"},
    ):
        kept = dict(broker[0])
        broker[0] |= spoiled
        assert differences(message.schema, theirs, message.version) != []
        broker[0] = kept
    assert differences(message.schema, theirs, message.version) == []
