"""From what PostgreSQL's clients write to what Spark reads, token by token.

Only what the two disagree about is touched: quotes, escapes, parameters, and names of types in
casts. Everything else reaches the engine as it was written, so all of Spark's SQL can be used.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from neve.lake.pgwire.lexer import IDENTIFIER, PARAMETER, STRING, SYMBOL, WORD, Statement, Token
from neve.lake.pgwire.types import BY_NAME, SCALARS

DEFAULT_SCHEMA = "public"
"""Where relations without a namespace are shown. The engine takes it as a prefix of theirs."""

_STRING_TYPES = ("text", "name", "citext", "json", "jsonb", "uuid", "bpchar", "regclass", "unknown")
_TYPES: dict[tuple[str, ...], str] = {
    **{(name,): "STRING" for name in _STRING_TYPES},
    ("int2",): "SMALLINT",
    ("int4",): "INT",
    ("int8",): "BIGINT",
    ("float4",): "FLOAT",
    ("float8",): "DOUBLE",
    ("double", "precision"): "DOUBLE",
    ("bool",): "BOOLEAN",
    ("bytea",): "BINARY",
    ("timestamptz",): "TIMESTAMP",
    ("timestamp", "with", "time", "zone"): "TIMESTAMP",
    ("timestamp", "without", "time", "zone"): "TIMESTAMP_NTZ",
}
_SIZED_TYPES: dict[tuple[str, ...], tuple[str, str]] = {
    ("varchar",): ("STRING", "VARCHAR"),
    ("character", "varying"): ("STRING", "VARCHAR"),
    ("char",): ("STRING", "CHAR"),
    ("character",): ("STRING", "CHAR"),
    ("numeric",): ("DECIMAL(38, 18)", "DECIMAL"),
    ("decimal",): ("DECIMAL(38, 18)", "DECIMAL"),
}
"""Name to what it is without a size, and with one."""
_TYPE_WORDS_MAX = 4
_CASTS = ("cast", "try_cast")
_HEX = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")


@dataclass(frozen=True)
class Translated:
    """A statement for the engine, and the way back to where a client wrote it."""

    sql: str
    order: tuple[int, ...]
    """For each `?`, the number of the client's parameter, from 0."""
    places: tuple[tuple[int, int], ...]
    """Pairs of (place here, place in the client's text), ascending."""

    def position(self, place: int) -> int:
        """The client's character, from 1, for one of this text, from 1."""
        at = bisect.bisect_right(self.places, (place - 1, 1 << 60)) - 1
        if at < 0:
            return place
        here, there = self.places[at]
        return there + (place - 1 - here) + 1


class _Writer:
    def __init__(self, statement: Statement) -> None:
        self._source = statement.text
        self._tokens = statement.tokens
        self._parts: list[str] = []
        self._length = 0
        self._copied = 0
        self.order: list[int] = []
        self.places: list[tuple[int, int]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        for piece in (self._source[self._copied : start], text):
            self._parts.append(piece)
            self._length += len(piece)
        self._copied = end
        self.places.append((self._length, end))

    def translate(self) -> Translated:
        casts: list[bool] = []
        at = 0
        while at < len(self._tokens):
            at = self._step(at, casts)
        self._parts.append(self._source[self._copied :])
        return Translated("".join(self._parts), tuple(self.order), tuple(self.places))

    def _step(self, at: int, casts: list[bool]) -> int:
        token = self._tokens[at]
        if token.kind == SYMBOL:
            if token.value == "(":
                casts.append(at > 0 and self._word(at - 1) in _CASTS)
            elif token.value == ")" and casts:
                casts.pop()
            return self._type(at + 1) if token.value == "::" else at + 1
        if token.kind == WORD and token.value == "as" and casts and casts[-1]:
            return self._type(at + 1)
        self._literal(
            token, is_bytes=self._symbol(at + 1) == "::" and self._word(at + 2) == "bytea"
        )
        return at + 1

    def _literal(self, token: Token, *, is_bytes: bool) -> None:
        written = _HEX.fullmatch(token.value) if is_bytes and token.kind == STRING else None
        if written is not None:
            self.replace(token.start, token.end, f"X'{written[1]}'")
        elif token.kind == STRING:
            self.replace(token.start, token.end, spark_string(token.value))
        elif token.kind == IDENTIFIER:
            self.replace(token.start, token.end, spark_name(token.value))
        elif token.kind == PARAMETER:
            self.order.append(int(token.value) - 1)
            self.replace(token.start, token.end, "?")

    def _word(self, at: int) -> str:
        token = self._tokens[at] if at < len(self._tokens) else None
        return token.value if token is not None and token.kind == WORD else ""

    def _symbol(self, at: int) -> str:
        token = self._tokens[at] if 0 <= at < len(self._tokens) else None
        return token.value if token is not None and token.kind == SYMBOL else ""

    def _type(self, at: int) -> int:
        """Translate the type that begins here; the place after it."""
        if self._word(at) == "pg_catalog" and self._symbol(at + 1) == ".":
            self.replace(self._tokens[at].start, self._tokens[at + 1].end, "")
            at += 2
        named, count = self._named_type(at)
        last = at + count - 1
        if self._symbol(at + count) == "[" and self._symbol(at + count + 1) == "]":
            named, last = f"ARRAY<{named or self._word(at)}>", at + count + 1
        if named:
            self.replace(self._tokens[at].start, self._tokens[last].end, named)
            return last + 1
        return at

    def _named_type(self, at: int) -> tuple[str, int]:
        """What Spark calls the type, and how many words it takes; no name where it is the same."""
        for count in range(_TYPE_WORDS_MAX, 0, -1):
            words = tuple(self._word(at + more) for more in range(count))
            if words in _TYPES:
                return _TYPES[words], count
            if words in _SIZED_TYPES:
                return _SIZED_TYPES[words][self._symbol(at + count) == "("], count
        return "", 1


def spark_string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def translate(statement: Statement) -> Translated:
    return _Writer(statement).translate()


def cast_parameters(statement: Statement) -> dict[int, int]:
    """Parameters that are cast where they stand, from 0, with the oid of the type.

    Clients leave types open where a cast tells them. Days and times stay text: Spark reads more
    forms of them.
    """
    found: dict[int, int] = {}
    values = [token.value for token in statement.tokens]
    for at, token in enumerate(statement.tokens):
        if token.kind != PARAMETER:
            continue
        is_cast = values[at + 1 : at + 2] == ["::"]
        if is_cast or (values[at - 2 : at] == ["cast", "("] and values[at + 1 : at + 2] == ["as"]):
            oid = _cast_type(values[at + 2 : at + 4 + _TYPE_WORDS_MAX])
            if oid:
                found.setdefault(int(token.value) - 1, oid)
    return found


def _cast_type(values: list[str]) -> int:
    """The oid of the type that is written here; 0 where it says nothing about a value."""
    for count in range(_TYPE_WORDS_MAX, 0, -1):
        each = _CAST_TYPES.get(" ".join(values[:count]))
        if each is None:
            continue
        if values[count : count + 2] == ["[", "]"]:
            return each.array_oid
        return each.oid if each.name in _TOLD_BY_CASTS else 0
    return 0


_TOLD_BY_CASTS = ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "bytea", "uuid")
_CAST_TYPES = {
    name: each for each in SCALARS if each.array_oid for name in (each.name, each.sql_name)
} | {"int": BY_NAME["int4"], "decimal": BY_NAME["numeric"]}
