"""Cuts SQL as PostgreSQL's clients write it into tokens, and scripts into statements.

Strings follow the standard (a backslash is a character), because that is what the server tells its
clients; a value quoted by a client's library therefore stays one value. Nothing is lost: tokens
carry their places, and what lies between them is space and comments.
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
    """One token; `value` is what it stands for: a word in lower case, a string without quotes."""

    kind: str
    value: str
    start: int
    end: int


def tokens(sql: str) -> list[Token]:
    """All tokens of a text; raises a syntax error where a quote or comment never ends."""
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
    def meant(match: re.Match[str]) -> str:
        code = match.group(1)
        if code is None:
            return "'"
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8) & 0xFF)
        return _LETTERS.get(code, code)

    try:
        return _ESCAPE.sub(meant, text)
    except (ValueError, OverflowError) as error:
        raise SqlError("22025", "invalid Unicode escape value", position=start + 1) from error


@dataclass(frozen=True)
class Statement:
    """One statement of a script: its text, its tokens (placed in it), where it began."""

    text: str
    tokens: tuple[Token, ...]
    offset: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """Its first words and names in lower case, for telling what it is."""
        return tuple(token.value.lower() for token in self.tokens[:8])

    @property
    def parameters(self) -> int:
        """The highest number among its parameters."""
        return max((int(t.value) for t in self.tokens if t.kind == PARAMETER), default=0)


def statements(sql: str) -> list[Statement]:
    """The statements of a script, without those that say nothing."""
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
