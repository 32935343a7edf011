"""Classifies and edits a query by its tokens.

Spark gets the user's own text with a few replacements, not a text generated from a parse tree, so
all syntax that Spark understands is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from neve.lake.sql.errors import QueryError, RefusedError

PARAMETER_PREFIX = "neve_parameter_"
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})


class SparkWords(Spark):
    """sqlglot's Spark tokenizer, without words that turn the rest of a query into one token.

    With these words, `begin show` would hide the rest of a query here, but not from Spark. `?::` is
    a parameter and a cast, not the operator that Databricks has.
    """

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "?::"
        }


_DIALECT = SparkWords()


class Kind(Enum):
    """The kinds of statements."""

    QUERY = "query"
    EXPLAIN = "explain"
    DESCRIBE = "describe"
    SHOW_TABLES = "show tables"
    SHOW = "show"


@dataclass(frozen=True)
class Splice:
    """A replacement of the characters from `start` to `end` (exclusive)."""

    start: int
    end: int
    text: str


def spliced(sql: str, splices: Iterable[Splice]) -> str:
    """Make all replacements, which must not overlap."""
    parts, done = [], 0
    for splice in sorted(splices, key=lambda each: (each.start, each.end)):
        assert splice.start >= done
        parts += [sql[done : splice.start], splice.text]
        done = splice.end
    return "".join([*parts, sql[done:]])


def tokens_of(sql: str) -> list[Token]:
    """Return all tokens except closing semicolons.

    Raises QueryError for an empty text and for more than one statement.
    """
    try:
        tokens = _DIALECT.tokenize(sql)
    except SqlglotError as error:
        raise QueryError(f"the query cannot be read: {first_line(error)}") from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise QueryError("the query is empty: write SELECT …, or SHOW TABLES")
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise QueryError("give one statement at a time, without a semicolon between")
    return tokens


def tree_of(sql: str, tokens: Sequence[Token]) -> exp.Expr | None:
    """Parse the query. Raises SqlglotError if only Spark can parse it."""
    trees = _DIALECT.parser().parse(list(tokens), sql)
    return trees[0] if trees else None


def blank_comments(sql: str) -> str:
    """Replace comments by spaces; tokens keep their positions.

    In Spark some comments end elsewhere: a backslash continues one on the next line. Without
    comments both parsers see the same query.
    """
    parts, done = [], 0
    for token in tokens_of(sql):  # one word may be several tokens, such as 5L
        parts += [_blank(sql[done : token.start]), sql[max(done, token.start) : token.end + 1]]
        done = max(done, token.end + 1)
    return "".join(parts)


def _blank(between: str) -> str:
    return "".join(each if each in "\r\n" else " " for each in between)


def kind_of(tokens: Sequence[Token]) -> Kind:
    """Return the kind of a statement from its first words; `plan_check` checks the rest."""
    words = [token.text.upper() for token in tokens[:3]]
    _refuse_substitution(tokens)
    if words[0] in _QUERY_WORDS or words[0] == "(":
        return Kind.QUERY
    if words[0] == "EXPLAIN":
        return Kind.EXPLAIN
    if words[0] in ("DESCRIBE", "DESC"):
        return Kind.DESCRIBE
    if words[0] == "SHOW":
        return Kind.SHOW_TABLES if words[1:] == ["TABLES"] else Kind.SHOW
    raise RefusedError(
        f"{tokens[0].text.upper()} is not allowed here: only SELECT, WITH, VALUES, FROM, TABLE, "
        "SHOW, DESCRIBE and EXPLAIN are"
    )


def _refuse_substitution(tokens: Sequence[Token]) -> None:
    """Refuse `${name}` outside of strings, where Spark's shell substitutes settings."""
    for token, after in pairwise(tokens):
        if token.text == "$" and after.text == "{" and after.start == token.end + 1:
            raise RefusedError("${…} is not allowed here: parameters are written $1 or ?")


def explained_query(sql: str) -> tuple[str, str]:
    """Return the query inside EXPLAIN, and the mode for Spark's plan."""
    modes = {"EXTENDED": "extended", "FORMATTED": "formatted", "CODEGEN": "codegen", "COST": "cost"}
    rest = sql[tokens_of(sql)[0].end + 1 :]
    if not rest.strip(" \t\r\n;"):
        raise QueryError("EXPLAIN needs a query: write EXPLAIN SELECT …")
    tokens = tokens_of(rest)
    mode = modes.get(tokens[0].text.upper())
    if mode is not None:
        rest = rest[tokens[0].end + 1 :]
        tokens = tokens_of(rest)
    if kind_of(tokens) != Kind.QUERY:
        raise QueryError("EXPLAIN explains queries: write EXPLAIN SELECT …")
    return rest[tokens[0].start : tokens[-1].end + 1], mode or "simple"


def with_named_parameters(
    sql: str, tokens: Sequence[Token], parameters: Sequence[object]
) -> tuple[str, Mapping[str, object]]:
    """Convert `?` and `$1` to named parameters of Spark, with their values."""
    splices: list[Splice] = []
    used: set[int] = set()
    asked = 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type == TokenType.PLACEHOLDER and token.text == "?":
            asked += 1
            splices.append(Splice(token.start, token.end + 1, f":{PARAMETER_PREFIX}{asked}"))
            used.add(asked)
        elif _numbered(token, after):
            assert after is not None
            splices.append(
                Splice(token.start, after.end + 1, f":{PARAMETER_PREFIX}{int(after.text)}")
            )
            used.add(int(after.text))
    if len(parameters) != max(used, default=0):
        raise QueryError(
            f"the query has {max(used, default=0)} parameters, and {len(parameters)} were given"
        )
    values = {f"{PARAMETER_PREFIX}{number}": parameters[number - 1] for number in sorted(used)}
    return spliced(sql, splices), values


def _numbered(token: Token, after: Token | None) -> bool:
    return (
        token.token_type == TokenType.PARAMETER
        and token.text == "$"
        and after is not None
        and after.token_type == TokenType.NUMBER
        and after.start == token.end + 1
        and after.text.isdecimal()
        and int(after.text) > 0
    )


def with_offset_as_column(sql: str) -> str:
    """Put `offset` in backquotes where Spark would parse it as a clause.

    Spark parses `FROM x WHERE offset IN (1, 2)` as an alias "where" and a clause OFFSET.
    """
    tokens = tokens_of(sql)
    return spliced(
        sql,
        [
            Splice(token.start, token.end + 1, f"`{token.text}`")
            for before, token in pairwise(tokens)
            if before.token_type == TokenType.WHERE and token.token_type == TokenType.OFFSET
        ],
    )


def split(text: str) -> tuple[list[str], str]:
    """Split a text into statements that end with a semicolon, and the rest."""
    try:
        tokens = _DIALECT.tokenize(text)
    except SqlglotError:
        return [], text  # a quote or a comment is still open
    statements, begin = [], 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append(text[begin : token.start].strip())
            begin = token.end + 1
    return [statement for statement in statements if statement], text[begin:]


def has_statement(text: str) -> bool:
    """Return True if a text has more than spaces and comments."""
    try:
        return any(token.token_type != TokenType.SEMICOLON for token in _DIALECT.tokenize(text))
    except SqlglotError:
        return True


def first_line(error: Exception) -> str:
    """Return the first line of a parser's message, without colours and the quoted query."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
