"""Translates PostgreSQL's lexical conventions to Spark SQL, token by token.

Only quotes, escapes, parameters and type names in casts are translated. All other text reaches the
engine unchanged, so clients can use all of Spark SQL.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from neve.lake.pgwire.lexer import IDENTIFIER, PARAMETER, STRING, SYMBOL, WORD, Statement, Token
from neve.lake.pgwire.types import BY_NAME, SCALARS

DEFAULT_SCHEMA = "public"
"""The schema of relations without a namespace. The engine accepts it as a prefix."""

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
"""PostgreSQL's name to Spark's name without and with a size."""
_TYPE_WORDS_MAX = 4
_CASTS = ("cast", "try_cast")
_HEX = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")


@dataclass(frozen=True)
class Translated:
    """A translated statement, with the mapping of positions back to the client's text."""

    sql: str
    order: tuple[int, ...]
    """For each `?`, the index of the client's parameter, from 0."""
    offsets: tuple[tuple[int, int], ...]
    """Pairs of (offset in `sql`, offset in the client's text), ascending."""

    def position(self, position: int) -> int:
        """Map a position in `sql` to one in the client's text. Both count from 1."""
        at = bisect.bisect_right(self.offsets, (position - 1, 1 << 60)) - 1
        if at < 0:
            return position
        translated, original = self.offsets[at]
        return original + (position - 1 - translated) + 1


class _Writer:
    def __init__(self, statement: Statement) -> None:
        self._source = statement.text
        self._tokens = statement.tokens
        self._parts: list[str] = []
        self._length = 0
        self._copied = 0
        self.order: list[int] = []
        self.offsets: list[tuple[int, int]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        for part in (self._source[self._copied : start], text):
            self._parts.append(part)
            self._length += len(part)
        self._copied = end
        self.offsets.append((self._length, end))

    def translate(self) -> Translated:
        casts: list[bool] = []
        at = 0
        while at < len(self._tokens):
            at = self._step(at, casts)
        self._parts.append(self._source[self._copied :])
        return Translated("".join(self._parts), tuple(self.order), tuple(self.offsets))

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
        """Translate the type at this token. Returns the index of the next token to translate."""
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
        """Return Spark's name of the type, empty if it is the same, and the number of words."""
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
    """Find the parameters that the statement casts: index from 0 to the oid of the type.

    Clients leave the type of such a parameter open. Dates and times stay text, because Spark
    accepts more formats of them.
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
    """Return the oid of the type at the start of `values`; 0 if the parameter stays text."""
    for count in range(_TYPE_WORDS_MAX, 0, -1):
        each = _CAST_TYPES.get(" ".join(values[:count]))
        if each is None:
            continue
        if values[count : count + 2] == ["[", "]"]:
            return each.array_oid
        return each.oid if each.name in _TYPED_BY_CASTS else 0
    return 0


_TYPED_BY_CASTS = ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "bytea", "uuid")
_CAST_TYPES = {
    name: each for each in SCALARS if each.array_oid for name in (each.name, each.sql_name)
} | {"int": BY_NAME["int4"], "decimal": BY_NAME["numeric"]}
