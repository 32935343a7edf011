"""Classifies statements: commands that the session runs itself, and queries for an engine."""

from __future__ import annotations

from dataclasses import dataclass

from neve.lake.pgwire.lexer import IDENTIFIER, SYMBOL, WORD, Statement, Token
from neve.lake.pgwire.sqlstate import FEATURE_NOT_SUPPORTED, SYNTAX_ERROR, SqlError

NO_OP = "no-op"
ROWS_ALL = 0
"""A number of rows to fetch that means all remaining rows."""

_SPARK_SHOWS = {
    *("tables", "table", "columns", "create", "databases", "schemas", "functions", "partitions"),
    *("tblproperties", "views", "catalogs", "namespaces", "user", "system", "current", "cache"),
}
_NO_OP_COMMANDS = {
    "listen": "LISTEN",
    "unlisten": "UNLISTEN",
    "lock": "LOCK TABLE",
    "savepoint": "SAVEPOINT",
    "release": "RELEASE",
    "checkpoint": "CHECKPOINT",
}
"""Accepted without effect, because the server is read-only. Name to command tag."""


@dataclass(frozen=True)
class Command:
    """A statement that the session runs itself. The fields in use depend on `name`."""

    name: str
    tag: str
    subject: str = ""
    value: str = ""
    rows: int = ROWS_ALL
    hold: bool = False
    query: Statement | None = None


def command_of(statement: Statement) -> Command | None:
    """Parse a statement as a command of the session. Returns None for a query."""
    words = statement.words
    make = _MAKERS.get(words[0])
    if make is not None:
        return make(statement)
    if words[0] in _NO_OP_COMMANDS:
        return Command(NO_OP, _NO_OP_COMMANDS[words[0]])
    return None


def _begin(statement: Statement) -> Command | None:
    if statement.words[0] == "start" and statement.words[1:2] != ("transaction",):
        return None
    tag = "START TRANSACTION" if statement.words[0] == "start" else "BEGIN"
    return Command("begin", tag)


def _commit(statement: Statement) -> Command | None:
    if "prepared" in statement.words:
        raise SqlError(FEATURE_NOT_SUPPORTED, "prepared transactions are not supported")
    return Command("commit", "COMMIT")


def _rollback(statement: Statement) -> Command | None:
    if "prepared" in statement.words:
        raise SqlError(FEATURE_NOT_SUPPORTED, "prepared transactions are not supported")
    if "to" in statement.words:
        return Command("rollback to", "ROLLBACK")
    return Command("rollback", "ROLLBACK")


def _set(statement: Statement) -> Command | None:
    tokens = list(statement.tokens[1:])
    if tokens and tokens[0].value in ("session", "local") and len(tokens) > 1:
        tokens = tokens[1:]
    words = [token.value.lower() for token in tokens[:3]]
    if words[:1] in (["transaction"], ["characteristics"]):
        return Command(NO_OP, "SET")
    if words[:2] == ["time", "zone"]:
        return Command("set", "SET", "timezone", _joined(tokens[2:]))
    if words[:1] == ["names"]:
        return Command("set", "SET", "client_encoding", _joined(tokens[1:]))
    if words[:1] == ["role"] or words[:2] == ["authorization", "default"]:
        return Command(NO_OP, "SET")
    name, after = _dotted(tokens)
    sign = tokens[after] if after < len(tokens) else None
    if not name or sign is None or sign.value not in ("=", "to"):
        raise SqlError(SYNTAX_ERROR, "invalid SET: write SET name = value or SET name TO value")
    return Command("set", "SET", name, _joined(tokens[after + 1 :]))


def _dotted(tokens: list[Token]) -> tuple[str, int]:
    """Parse a name with optional dots. Returns the name and its number of tokens."""
    parts: list[str] = []
    at = 0
    while at < len(tokens) and tokens[at].kind in (WORD, IDENTIFIER):
        parts.append(tokens[at].value)
        at += 1
        if at >= len(tokens) or tokens[at].value != "." or tokens[at].kind != SYMBOL:
            break
        at += 1
    return ".".join(parts), at


def _joined(tokens: list[Token]) -> str:
    """Join the tokens of a SET value: one value, or several separated by commas."""
    text = "".join(token.value + (" " if token.value == "," else "") for token in tokens)
    return text.strip()


def _show(statement: Statement) -> Command | None:
    words = statement.words
    if words[1:3] == ("time", "zone"):
        return Command("show", "SHOW", "timezone")
    if words[1:4] == ("transaction", "isolation", "level"):
        return Command("show", "SHOW", "transaction_isolation")
    if words[1:3] == ("session", "authorization"):
        return Command("show", "SHOW", "session_authorization")
    name, taken = _dotted(list(statement.tokens[1:]))
    if name in _SPARK_SHOWS or taken + 1 != len(statement.tokens) or not name:
        return None
    return Command("show", "SHOW", name)


def _reset(statement: Statement) -> Command | None:
    name, _ = _dotted(list(statement.tokens[1:]))
    if statement.words[1:3] == ("time", "zone"):
        name = "timezone"
    return Command("reset", "RESET", name)


def _discard(statement: Statement) -> Command | None:
    what = (statement.words[1:2] or ("all",))[0]
    return Command("discard", f"DISCARD {what.upper()}", what)


def _deallocate(statement: Statement) -> Command | None:
    names = [t.value for t in statement.tokens[1:] if t.value != "prepare"]
    if len(names) != 1:
        raise SqlError(SYNTAX_ERROR, "invalid DEALLOCATE: name one prepared statement, or ALL")
    is_all = names[0].lower() == "all"
    return Command("deallocate", "DEALLOCATE ALL" if is_all else "DEALLOCATE", names[0])


def _close(statement: Statement) -> Command | None:
    if len(statement.tokens) != 2:
        raise SqlError(SYNTAX_ERROR, "invalid CLOSE: name one cursor, or ALL")
    name = statement.tokens[1].value
    is_all = statement.tokens[1].kind == WORD and name == "all"
    tag = "CLOSE CURSOR ALL" if is_all else "CLOSE CURSOR"
    return Command("close", tag, "" if is_all else name)


def _declare(statement: Statement) -> Command | None:
    tokens = statement.tokens
    words = [token.value.lower() if token.kind == WORD else "" for token in tokens]
    if "cursor" not in words or "for" not in words[words.index("cursor") :]:
        return None
    after = words.index("for", words.index("cursor")) + 1
    if after >= len(tokens):
        raise SqlError(SYNTAX_ERROR, "DECLARE CURSOR has no query after FOR")
    hold = "hold" in words[:after] and "without" not in words[:after]
    query = _tail(statement, after)
    return Command("declare", "DECLARE CURSOR", tokens[1].value, hold=hold, query=query)


def _tail(statement: Statement, after: int) -> Statement:
    start = statement.tokens[after].start
    moved = (
        Token(t.kind, t.value, t.start - start, t.end - start) for t in statement.tokens[after:]
    )
    return Statement(statement.text[start:], tuple(moved), statement.offset + start)


def _fetch(statement: Statement) -> Command | None:
    moves = statement.words[0] == "move"
    *before_name, last = statement.tokens[1:] or (statement.tokens[0],)
    words = [token.value.lower() for token in before_name]
    words = [word for word in words if word not in ("from", "in", "forward", "next")]
    if words in ([], ["all"]):
        rows = ROWS_ALL if words else 1
    elif len(words) == 1 and words[0].isdigit() and 0 < int(words[0]) < 2**31:
        rows = int(words[0])
    else:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "cursors can only scan forward: FETCH and MOVE accept NEXT, FORWARD, ALL or a count",
        )
    name = "move" if moves else "fetch"
    return Command(name, name.upper(), last.value, rows=rows)


def _unsupported(statement: Statement) -> Command | None:
    if statement.words[:2] == ("execute", "immediate"):
        return None  # a statement of Spark SQL, which the engine rejects
    keyword = statement.words[0].upper()
    raise SqlError(
        FEATURE_NOT_SUPPORTED,
        f"{keyword} is not supported",
        hint="This server is read-only. It runs queries in Spark SQL.",
    )


_MAKERS = {
    "begin": _begin,
    "start": _begin,
    "commit": _commit,
    "end": _commit,
    "rollback": _rollback,
    "abort": _rollback,
    "set": _set,
    "show": _show,
    "reset": _reset,
    "discard": _discard,
    "deallocate": _deallocate,
    "close": _close,
    "declare": _declare,
    "fetch": _fetch,
    "move": _fetch,
    "copy": _unsupported,
    "prepare": _unsupported,
    "execute": _unsupported,
}
