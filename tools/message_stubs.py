"""Write the type stubs of messages, from their descriptions in neve.protocol.

These are Kafka's messages and those that brokers send each other.

The classes of messages are made at run time. The stub beside each module shows them to mypy.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from neve.protocol.compiler import Api, Message
from neve.protocol.schema import ApiSchema, Field, Struct

SOURCES = Path(__file__).resolve().parent.parent / "src"
FOLDERS = [SOURCES / "neve" / "protocol" / name for name in ("messages", "peers")]

_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
}
_LINE_LENGTH = 100


def modules() -> list[Path]:
    """Return the modules that each describe one API."""
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.py"))]
    return [file for file in files if file.stem != "__init__"]


def stub(module: Path) -> str:
    """Return the text of the stub for `module`, as `ruff format` would format it."""
    constant = module.stem.upper()
    loaded = importlib.import_module(f"neve.protocol.{module.parent.name}.{module.stem}")
    api: Api[Message, Message] = getattr(loaded, constant)
    schema = api.schema
    classes = [*_message(schema, schema.request), "", *_message(schema, schema.response)]
    text = "\n".join(classes)
    used = ["Records"] if ": Records" in text else []
    lines = [
        f"# Written by tools/message_stubs.py from {module.name}: run `make protocol`.",
        "",
        *(["import msgspec", ""] if "msgspec." in text else []),
        "from neve.protocol.compiler import Api, Message",
        *(f"from neve.protocol.wire import {name}" for name in used),
        "",
        text,
        "",
        *_declaration(constant, f"{schema.name}Request", f"{schema.name}Response"),
    ]
    return "\n".join(lines) + "\n"


def _declaration(constant: str, request: str, response: str) -> list[str]:
    line = f"{constant}: Api[{request}, {response}]"
    if len(line) <= _LINE_LENGTH:
        return [line]
    return [f"{constant}: Api[", f"    {request}, {response}", "]"]


def _message(api: ApiSchema, message: Struct) -> Iterator[str]:
    """Yield the lines of a message's class, which contains the classes of its structs."""
    name = f"{api.name}{message.name}"
    frozen = {each.struct.name for each in _fields(message) if each.struct and each.shared_default}
    structs = {each.name: each for each in message.walk() if each is not message}
    ends = "" if structs or message.fields else " ..."
    yield f"class {name}(Message, kw_only=True):{ends}"
    for struct in structs.values():
        option = ", frozen=True" if struct.name in frozen else ""
        yield f"    class {struct.name}(msgspec.Struct, kw_only=True{option}):"
        for field in struct.fields:
            yield f"        {field.name}: {_type(field, name, message.name)} = ..."
        yield ""
    for field in message.fields:
        yield f"    {field.name}: {_type(field, name, message.name)} = ..."


def _fields(message: Struct) -> Iterator[Field]:
    for struct in message.walk():
        yield from struct.fields


def _type(field: Field, outer: str, kind: str) -> str:
    if field.struct is not None:
        single = f"{outer}.{field.struct.name}"
    elif field.type == "records":
        # A decoded request has slices of the received bytes; a response may have many buffers.
        single = "memoryview" if kind == "Request" else "Records"
    else:
        single = _TYPES.get(field.type, "int")
    whole = f"list[{single}]" if field.array else single
    return whole if field.nullable.empty else f"{whole} | None"


if __name__ == "__main__":
    for each in modules():
        each.with_suffix(".pyi").write_text(stub(each), encoding="utf-8")
