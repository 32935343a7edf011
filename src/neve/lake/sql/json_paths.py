"""Paths into JSON values: `value:customer.id` is the field as text.

`value` or `key`, followed directly by a colon and a path, is replaced by a call of
`get_json_object` on the bytes as text. The result is a string, or null if the value is not JSON or
lacks the field. Other columns keep Spark's own `:`, which extracts from VARIANT.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from neve.lake.sql.errors import QueryError
from neve.lake.sql.statements import Splice, spliced, tokens_of

JSON_COLUMNS = frozenset({"key", "value"})
_WRITTEN_OUT = re.compile(r"get_json_object\(CAST\((\w+) AS STRING\), \$\.?([^()]*)\)")
_OPEN, _CLOSE = TokenType.L_BRACKET, TokenType.R_BRACKET


def with_json_paths(sql: str) -> str:
    """Replace every such path by a call of `get_json_object`."""
    if ":" not in sql:
        return sql
    tokens = tokens_of(sql)
    splices = []
    at = 0
    while at < len(tokens):
        if _begins_path(tokens, at):
            first = _chain_start(tokens, at - 1)
            path, after = _path(tokens, at + 1)
            base = sql[tokens[first].start : tokens[at - 1].end + 1]
            text = f"get_json_object(CAST({base} AS STRING), '{path}')"
            splices.append(Splice(tokens[first].start, tokens[after - 1].end + 1, text))
            at = after
        else:
            at += 1
    return spliced(sql, splices)


def as_written(name: str) -> str:
    """Return a column name of Spark with the user's paths instead of `get_json_object`."""
    return _WRITTEN_OUT.sub(r"\1:\2", name)


def _begins_path(tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].token_type != TokenType.COLON or not 0 < at < len(tokens) - 1:
        return False
    before, after = tokens[at - 1], tokens[at + 1]
    if before.text.lower() not in JSON_COLUMNS or before.token_type == TokenType.STRING:
        return False
    return before.end + 1 == tokens[at].start and (_is_name(after) or after.token_type == _OPEN)


def _is_name(token: Token) -> bool:
    if token.token_type == TokenType.IDENTIFIER:
        return True
    constant = token.token_type in (TokenType.STRING, TokenType.NUMBER)
    return token.text.replace("_", "a").isalnum() and not constant


def _chain_start(tokens: Sequence[Token], last: int) -> int:
    """Return the first token of a qualified name such as `o.value`, which ends at `last`."""
    first = last
    while first >= 2 and tokens[first - 1].token_type == TokenType.DOT:
        first -= 2
    return first


def _path(tokens: Sequence[Token], at: int) -> tuple[str, int]:
    """Return the JSON path that begins here, and the first token after it."""
    path = "$"
    wants_name = True
    while at < len(tokens) and tokens[at - 1].end + 1 == tokens[at].start:
        token = tokens[at]
        if wants_name and _is_name(token):
            path += _field(token.text)
            wants_name = False
        elif token.token_type == TokenType.DOT and not wants_name:
            wants_name = True
        elif token.token_type == _OPEN and (path == "$" or not wants_name):
            path += _bracket(tokens, at)
            at += 2
            wants_name = False
        else:
            break
        at += 1
    if wants_name:
        raise QueryError(f"{path} is incomplete: write value:field, or value:field[0].other")
    return path, at


def _field(name: str) -> str:
    if "'" in name or "\\" in name or "]" in name:
        raise QueryError(f"{name!r} cannot be part of a path: use from_json or parse_json")
    return f".{name}" if name.replace("_", "a").isalnum() else f"[\\'{name}\\']"


def _bracket(tokens: Sequence[Token], at: int) -> str:
    inner = tokens[at + 1] if at + 2 < len(tokens) else None
    if inner is None or tokens[at + 2].token_type != _CLOSE:
        raise QueryError("a bracket of a path must have a number, a quoted name or *")
    if inner.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return _field(inner.text)
    if inner.text.isdecimal() or inner.text == "*":
        return f"[{inner.text}]"
    raise QueryError(f"[{inner.text}] in a path: write a number, a quoted name or *")
