"""Finds every reference to a relation in a query, with the columns and rows that it needs.

References are analysed separately, so the two sides of a self-join can read different parts. Where
the analysis is uncertain, it returns every column and every row: data that it leaves out is not
read, so leaving out too much would make the query's result wrong.

A column is needed if its name is mentioned anywhere and could mean this relation. `required_rows`
decides which rows are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from neve.errors import UnsupportedError
from neve.lake.sql.cte_spans import cte_spans
from neve.lake.sql.literals import Constants
from neve.lake.sql.names import quoted
from neve.lake.sql.predicates import Predicate
from neve.lake.sql.required_rows import necessary
from neve.lake.sql.scopes import (
    alias_of,
    is_cte_reference,
    is_relation,
    mentions_of,
    needs_all_columns,
)
from neve.lake.sql.statements import Splice, tree_of


@dataclass(frozen=True)
class Mentions:
    """Names that may be columns: of any relation, or of the relation in (alias, name)."""

    anywhere: frozenset[str] = frozenset()
    by_alias: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class RelationReference:
    """One reference to a relation. Its name in the text is from `start` to `end`.

    `alias_at` is where an alias must be inserted, so that qualified columns still mean it; None if
    it already has one or cannot have one. It needs every column if `mentions` is None, and every
    row if `predicate` is None.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str
    alias_at: int | None
    mentions: Mentions | None = None
    predicate: Predicate | None = None

    def needs(self, column: str) -> bool:
        """Return True if a column of the relation must be read."""
        if self.mentions is None:
            return True
        name = column.lower()
        return name in self.mentions.anywhere or (self.alias, name) in self.mentions.by_alias


@dataclass(frozen=True)
class Analysis:
    """All references in the order of the text, and the edits that they need.

    `understood` is False if only the tokens were analysed, not a parse tree.
    """

    references: tuple[RelationReference, ...]
    edits: tuple[Splice, ...] = ()
    understood: bool = True


def analyse(sql: str, tokens: Sequence[Token], constants: Constants) -> Analysis:
    """Analyse a query. If only Spark can parse it, every name after FROM is read completely."""
    if _hides_names(tokens):
        return _by_tokens(tokens)
    try:
        tree = tree_of(sql, tokens)
    except Exception:
        # For syntax that only Spark understands, the parser also raises errors other than its own.
        return _by_tokens(tokens)
    if not isinstance(tree, exp.Query):
        return _by_tokens(tokens)
    try:
        return _by_tree(tree, tokens, constants)
    except RecursionError:
        return _by_tokens(tokens)


def _hides_names(tokens: Sequence[Token]) -> bool:
    """Return True for pipe syntax and IDENTIFIER(…), where a parse tree does not show all names."""
    following = [token.text for token in tokens[1:]] + [""]
    return any(
        token.text == "|>" or (token.text.upper() == "IDENTIFIER" and after == "(")
        for token, after in zip(tokens, following, strict=True)
    )


def _by_tree(tree: exp.Expr, tokens: Sequence[Token], constants: Constants) -> Analysis:
    found = [table for table in tree.find_all(exp.Table) if is_relation(table)]
    relations = [table for table in found if not is_cte_reference(table)]
    mentions = _mentions(tree)
    references = [_reference(table, tokens, mentions, constants) for table in relations]
    return Analysis(
        tuple(sorted(references, key=lambda reference: reference.start)),
        tuple(_qualifier_edits(tree)),
    )


def _mentions(tree: exp.Expr) -> Mentions:
    anywhere, by_alias = mentions_of(tree)
    return Mentions(frozenset(anywhere), frozenset(by_alias))


def _reference(
    table: exp.Table, tokens: Sequence[Token], mentions: Mentions, constants: Constants
) -> RelationReference:
    if table.args.get("version") or table.args.get("when"):
        raise UnsupportedError(f"{table.name} AS OF: earlier versions of a table are not read here")
    names = [part for part in table.parts if isinstance(part, exp.Identifier)]
    start = min(part.meta["start"] for part in names)
    end = max(part.meta["end"] for part in names) + 1
    return RelationReference(
        tuple(part.name for part in names),
        start,
        end,
        alias_of(table),
        None if table.alias else _alias_position(tokens, end),
        None if needs_all_columns(table) else mentions,
        necessary(table, constants),
    )


def _alias_position(tokens: Sequence[Token], end: int) -> int:
    """Return the position after the name and its TABLESAMPLE."""
    after = next((at for at, token in enumerate(tokens) if token.start >= end), len(tokens))
    if after == len(tokens) or tokens[after].text.upper() != "TABLESAMPLE":
        return end
    depth, at = 0, after + 1
    while at < len(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(tokens[at].token_type, 0)
        following = tokens[at + 1].text.upper() if at + 1 < len(tokens) else ""
        if depth == 0 and tokens[at].token_type == TokenType.R_PAREN and following != "REPEATABLE":
            return tokens[at].end + 1
        at += 1
    return end


def _qualifier_edits(tree: exp.Expr) -> list[Splice]:
    """Return edits from `sales.orders.id` to `orders.id`: the table's alias becomes `orders`."""
    edits = []
    for column in tree.find_all(exp.Column):
        table, db = column.args.get("table"), column.args.get("db")
        outer = column.args.get("catalog") or db
        if isinstance(table, exp.Identifier) and isinstance(outer, exp.Identifier):
            known = any(
                not other.alias
                and other.args.get("db")
                and other.name.lower() == table.name.lower()
                for other in tree.find_all(exp.Table)
            )
            if known:
                start, end = outer.meta["start"], table.meta["end"] + 1
                edits.append(Splice(start, end, quoted(table.name)))
    return edits


def _by_tokens(tokens: Sequence[Token]) -> Analysis:
    """Return the names after FROM and JOIN, with all of their columns and rows."""
    references = []
    hiding = cte_spans(tokens)
    for at, token in enumerate(tokens):
        if token.token_type in (TokenType.FROM, TokenType.JOIN, TokenType.TABLE):
            reference = _reference_at(tokens, at + 1)
            if reference is not None and token.token_type == TokenType.TABLE:
                reference = replace(reference, alias_at=None)  # TABLE orders takes no alias
            if reference is not None and not any(
                span.hides(reference.parts, at) for span in hiding
            ):
                references.append(reference)
    return Analysis(tuple(references), understood=False)


def _reference_at(tokens: Sequence[Token], at: int) -> RelationReference | None:
    parts, end = [], at
    while end < len(tokens) and _may_be_name(tokens[end]):
        parts.append(tokens[end].text)
        if end + 1 >= len(tokens) or tokens[end + 1].token_type != TokenType.DOT:
            break
        end += 2
    if not parts or end >= len(tokens):
        return None
    after = tokens[end + 1] if end + 1 < len(tokens) else None
    if after is not None and after.token_type == TokenType.L_PAREN:
        return None  # a table function
    stop = tokens[end].end + 1
    aliased = after is not None and (
        after.token_type in (TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER)
    )
    return RelationReference(
        tuple(parts), tokens[at].start, stop, parts[-1].lower(), None if aliased else stop
    )


def _may_be_name(token: Token) -> bool:
    return token.token_type not in (
        TokenType.L_PAREN,
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.SELECT,
        TokenType.VALUES,
    )
