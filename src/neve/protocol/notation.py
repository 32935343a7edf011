"""Parse the notation of messages into a tree.

A line has one field, and two spaces indent the fields of a struct. docs/contributors/protocol.md
has the grammar. The parser is strict, and its errors have the line and the reason: descriptions are
code, and a typo in one would be a wrong byte on the wire.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass, field

from neve.protocol.errors import NotationError
from neve.protocol.schema import (
    FIXED_WIDTHS,
    NEVER,
    NO_VERSIONS,
    SIZED_TYPES,
    ZERO_UUID,
    ApiSchema,
    Default,
    Field,
    Struct,
    Versions,
)

_HEADING = re.compile(
    r"(?P<name>[A-Z]\w*) (?P<key>\d+), versions (?P<versions>\S+), "
    r"flexible (?P<flexible>\d+\+|none)"
)
_FIELD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*) (?P<array>\[\])?(?P<type>[A-Za-z]\w*)"
    r"(?: (?P<versions>\d\S*))?"
    r"(?: (?P<nullable>nullable)(?: (?P<null_versions>\d\S*))?)?"
    r"(?: tag (?P<tag>\d+))?"
    r"(?: = (?P<default>.+))?"
)
_VERSIONS = re.compile(r"(?P<first>\d+)(?:(?P<open>\+)|-(?P<last>\d+))?")
_BEFORE_COMMENT = re.compile(r"""(?:"[^"]*"|'[^']*'|[^"'#])*""")

_ZEROS: dict[str, Default] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": ZERO_UUID,
}


@dataclass(slots=True)
class _Line:
    number: int
    depth: int
    text: str

    def wrong(self, reason: str) -> NotationError:
        return NotationError(self.number, self.text, reason)


@dataclass(slots=True)
class _Message:
    """The state while the fields of one message are parsed."""

    versions: Versions
    flexible_from: int
    structs: dict[str, Struct] = field(default_factory=dict)


def parse(text: str) -> ApiSchema:
    """Return the API that `text` describes. Raises NotationError."""
    lines = _lines(text)
    heading = lines[0]
    matched = _HEADING.fullmatch(heading.text)
    if matched is None or heading.depth:
        raise heading.wrong("begin with `Name KEY, versions 0-9, flexible 4+` (or `flexible none`)")
    versions = _versions(matched["versions"], heading, Versions(0, NEVER - 1))
    if matched["versions"].endswith("+"):
        raise heading.wrong("an API names its greatest version")
    flexible = matched["flexible"]
    flexible_from = NEVER if flexible == "none" else int(flexible.rstrip("+"))
    bodies = _bodies(lines)
    return ApiSchema(
        name=matched["name"],
        key=int(matched["key"]),
        versions=versions,
        flexible_from=flexible_from,
        request=_message("Request", bodies["request"], _Message(versions, flexible_from)),
        response=_message("Response", bodies["response"], _Message(versions, flexible_from)),
    )


def _lines(text: str) -> list[_Line]:
    found = []
    for number, raw in enumerate(textwrap.dedent(text).splitlines(), 1):
        before = _BEFORE_COMMENT.match(raw)
        content = before[0].rstrip() if before else ""
        if not content:
            continue
        stripped = content.lstrip(" ")
        depth, odd = divmod(len(content) - len(stripped), 2)
        line = _Line(number, depth, re.sub(r" +", " ", stripped))
        if odd or "\t" in content:
            raise line.wrong("indent by two spaces a level")
        found.append(line)
    if not found:
        raise NotationError(1, "", "nothing is described")
    return found


def _bodies(lines: list[_Line]) -> dict[str, list[_Line]]:
    bodies: dict[str, list[_Line]] = {}
    current: list[_Line] | None = None
    for line in lines[1:]:
        if line.depth == 0:
            if line.text not in ("request", "response") or line.text in bodies:
                raise line.wrong("expected `request` or `response`, once each")
            current = bodies[line.text] = []
        elif current is None:
            raise line.wrong("a field stands below `request` or `response`")
        else:
            current.append(line)
    for name in ("request", "response"):
        if name not in bodies:
            raise lines[-1].wrong(f"`{name}` is missing")
    return bodies


def _message(name: str, lines: list[_Line], message: _Message) -> Struct:
    return Struct(name, _fields(lines, 1, message.versions, message))


def _fields(
    lines: list[_Line], depth: int, outer: Versions, message: _Message
) -> tuple[Field, ...]:
    found: dict[str, Field] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.depth != depth:
            raise line.wrong(f"indented by {line.depth} levels where {depth} were expected")
        after = at + 1
        while after < len(lines) and lines[after].depth > depth:
            after += 1
        made = _field(line, lines[at + 1 : after], outer, message)
        if made.name in found:
            raise line.wrong(f"{made.name} is described twice")
        if made.tag is not None and made.tag in {each.tag for each in found.values()}:
            raise line.wrong(f"tag {made.tag} is taken")
        found[made.name] = made
        at = after
    return tuple(found.values())


def _field(line: _Line, below: list[_Line], outer: Versions, message: _Message) -> Field:
    matched = _FIELD.fullmatch(line.text)
    if matched is None:
        raise line.wrong("not `name type [versions] [nullable [versions]] [tag N] [= default]`")
    type_name, array = matched["type"], bool(matched["array"])
    versions = _versions(matched["versions"], line, outer)
    nullable = NO_VERSIONS
    if matched["nullable"]:
        nullable = _versions(matched["null_versions"], line, versions)
    struct = _struct(line, type_name, below, versions, message)
    if struct is None and type_name not in FIXED_WIDTHS and type_name not in SIZED_TYPES:
        raise line.wrong(f"no type is called {type_name}")
    if matched["nullable"] and struct is None and not array and type_name in FIXED_WIDTHS:
        raise line.wrong(f"{type_name} cannot be null")
    made = Field(
        name=matched["name"],
        type="" if struct is not None else type_name,
        struct=struct,
        array=array,
        versions=versions,
        nullable=nullable,
        tag=None if matched["tag"] is None else int(matched["tag"]),
        default=_default(line, matched["default"], type_name, array or struct is not None),
    )
    if made.default is None and nullable.empty:
        raise line.wrong("null by default, but not nullable")
    _check_tag(line, made, message)
    return made


def _struct(
    line: _Line, name: str, below: list[_Line], versions: Versions, message: _Message
) -> Struct | None:
    if not name[0].isupper():
        if below:
            raise below[0].wrong(f"{name} has no fields of its own")
        return None
    if not below:
        if name not in message.structs:
            raise line.wrong(f"{name} has no fields, here or above")
        return message.structs[name]
    if name in message.structs or name in ("Request", "Response"):
        raise line.wrong(f"{name} is the name of another struct of this message")
    made = Struct(name, _fields(below, below[0].depth, versions, message))
    if below[0].depth != line.depth + 1:
        raise below[0].wrong("indented by more than one level")
    message.structs[name] = made
    return made


def _check_tag(line: _Line, field: Field, message: _Message) -> None:
    if field.tag is None:
        return
    if field.versions.first < message.flexible_from:
        raise line.wrong(f"tagged in version {field.versions.first}, flexible only in later ones")
    structs = field.struct.walk() if field.struct is not None else ()
    inside = [each.type for struct in structs for each in struct.fields]
    if "records" in (field.type, *inside):
        raise line.wrong("records cannot be tagged: they are never copied")


def _versions(text: str | None, line: _Line, outer: Versions) -> Versions:
    if text is None:
        return outer
    matched = _VERSIONS.fullmatch(text)
    if matched is None:
        raise line.wrong(f"{text} is not a range of versions: write 4+, 2-7 or 3")
    first = int(matched["first"])
    last = NEVER if matched["open"] else int(matched["last"] or first)
    if last < first:
        raise line.wrong(f"{text} ends before it begins")
    found = Versions(first, last).within(outer)
    if found.empty:
        raise line.wrong(f"no version of {outer} is in {text}")
    return found


def _default(line: _Line, text: str | None, type_name: str, composite: bool) -> Default:
    """Return the default in `text`. For lists and structs, False means empty and None null."""
    zero = False if composite else _ZEROS.get(type_name, 0)
    if text is None:
        return zero
    if text == "null":
        return None
    if composite:
        raise line.wrong("lists and structs are empty by default, or null")
    made = _literal(line, text, zero)
    if type(made) is int and not _fits(made, type_name):
        raise line.wrong(f"{text} does not fit into {type_name}")
    return made


def _fits(value: int, type_name: str) -> bool:
    bits = 8 * FIXED_WIDTHS[type_name]
    least = 0 if type_name.startswith("u") else -(1 << bits - 1)
    return 0 <= value - least < 1 << bits


def _literal(line: _Line, text: str, zero: Default) -> Default:
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        raise line.wrong(f"{text} is not a value") from None
    if type(value) is int and type(zero) is float:
        value = float(value)
    if type(value) is not type(zero):
        raise line.wrong(f"{text} cannot be the default of this type")
    kept: Default = value
    return kept
