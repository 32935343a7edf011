"""Splits SQL of PostgreSQL clients into tokens, and scripts into statements.

A backslash in a string is an ordinary character, as `standard_conforming_strings = on` announces to
clients. A value that a client library quotes therefore stays one value. Tokens keep their offsets;
only white space and comments lie between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from neve.lake.pgwire.sqlstate import SYNTAX_ERROR, SqlError

WORD, STRING, IDENTIFIER, PARAMETER, NUMBER, SYMBOL, RAW = (
    "word",
    "string",
    "identifier",
    "parameter",
    "number",
    "symbol",
    "raw",
)

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
  | (?P<comment>/\*)
  | (?P<escaped>[eE]'[^'\\]*(?:(?:''|\\.)[^'\\]*)*')
  | (?P<unended>[eE]')
  | (?P<prefixed>[rRxXbBnN]'[^']*(?:''[^']*)*')
  | (?P<string>'[^']*(?:''[^']*)*')
  | (?P<quoted>"[^"]*(?:""[^"]*)*")
  | (?P<backquoted>`[^`]*(?:``[^`]*)*`)
  | (?P<parameter>\$\d+)
  | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
  | (?P<symbol>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(
    r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|''", re.DOTALL
)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Token:
    """One token. `value` is a word in lower case, or a string or identifier without quotes."""

    kind: str
    value: str
    start: int
    end: int


def tokens(sql: str) -> list[Token]:
    """Split a text into tokens. Raises SqlError for an unterminated quote or comment."""
    found: list[Token] = []
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None
        kind = match.lastgroup
        if kind == "comment":
            at = _comment_end(sql, at)
        elif kind == "dollar":
            token = _dollar_quoted(sql, at, match.group())
            found.append(token)
            at = token.end
        else:
            if kind != "space":
                found.append(_token(kind or "symbol", match.group(), match.start()))
            at = match.end()
    return found


def _token(kind: str, text: str, start: int) -> Token:
    end = start + len(text)
    if kind == "word":
        return Token(WORD, text.lower(), start, end)
    if kind == "string":
        return Token(STRING, text[1:-1].replace("''", "'"), start, end)
    if kind == "escaped":
        return Token(STRING, _unescaped(text[2:-1], start), start, end)
    if kind == "quoted":
        return Token(IDENTIFIER, text[1:-1].replace('""', '"'), start, end)
    if kind == "backquoted":
        return Token(IDENTIFIER, text[1:-1].replace("``", "`"), start, end)
    if kind == "parameter":
        if len(text) > 6 or not 1 <= int(text[1:]) <= 65_535:
            raise SqlError("42P02", f"there is no parameter {text[:12]}", position=start + 1)
        return Token(PARAMETER, text[1:], start, end)
    if kind == "unended":
        raise SqlError(SYNTAX_ERROR, "unterminated quoted string", position=start + 1)
    if kind == "symbol" and text in "'\"`":
        what = "string" if text == "'" else "identifier"
        raise SqlError(SYNTAX_ERROR, f"unterminated quoted {what}", position=start + 1)
    return Token({"prefixed": RAW, "number": NUMBER}.get(kind, SYMBOL), text, start, end)


def _comment_end(sql: str, start: int) -> int:
    depth, at = 1, start + 2
    while depth:
        edge = _COMMENT_EDGE.search(sql, at)
        if edge is None:
            raise SqlError(SYNTAX_ERROR, "unterminated /* comment", position=start + 1)
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at


def _dollar_quoted(sql: str, start: int, tag: str) -> Token:
    end = sql.find(tag, start + len(tag))
    if end < 0:
        raise SqlError(SYNTAX_ERROR, "unterminated dollar-quoted string", position=start + 1)
    return Token(STRING, sql[start + len(tag) : end], start, end + len(tag))


def _unescaped(text: str, start: int) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match.group(1)
        if code is None:
            return "'"
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _LETTERS.get(code, code)

    try:
        return _ESCAPE.sub(unescape, text)
    except (ValueError, OverflowError) as error:
        raise SqlError("22025", "invalid Unicode escape value", position=start + 1) from error


@dataclass(frozen=True)
class Statement:
    """One statement of a script, at `offset`. The offsets of its tokens are relative to `text`."""

    text: str
    tokens: tuple[Token, ...]
    offset: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """The first eight tokens in lower case, to classify the statement."""
        return tuple(token.value.lower() for token in self.tokens[:8])

    @property
    def parameters(self) -> int:
        """The highest parameter number, 0 without parameters."""
        return max((int(t.value) for t in self.tokens if t.kind == PARAMETER), default=0)


def statements(sql: str) -> list[Statement]:
    """Split a script into its statements, without empty ones."""
    found: list[Statement] = []
    current: list[Token] = []
    for token in [*tokens(sql), Token(SYMBOL, ";", len(sql), len(sql))]:
        if token.kind == SYMBOL and token.value == ";":
            if current:
                found.append(_statement(sql, current))
            current = []
        else:
            current.append(token)
    return found


def _statement(sql: str, inside: list[Token]) -> Statement:
    start, end = inside[0].start, inside[-1].end
    placed = (Token(t.kind, t.value, t.start - start, t.end - start) for t in inside)
    return Statement(sql[start:end], tuple(placed), start)
