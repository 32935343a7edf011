"""Finds where the names of WITH expressions hide topics with the same name.

Used for queries that are analysed by their tokens, because only Spark can parse them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

_BEFORE_BODY = frozenset({TokenType.ALIAS, TokenType.NUMBER})
_LEVELS = frozenset({"MAX", "RECURSION", "LEVEL"})
"""`MAX RECURSION LEVEL 5` may be between a name and its AS."""


@dataclass(frozen=True)
class CteSpan:
    """The tokens from `first` up to `end` in which `name`, in lower case, is a WITH expression."""

    name: str
    first: int
    end: int

    def hides(self, parts: Sequence[str], at: int) -> bool:
        """Return True if a name at this token is the expression and not a topic."""
        named = len(parts) == 1 and parts[0].lower() == self.name
        return named and self.first <= at < self.end


def cte_spans(tokens: Sequence[Token]) -> list[CteSpan]:
    """Return the scope of every WITH expression: from its body to the end of the enclosing query.

    Only the scope of a recursive one includes its body.
    """
    closing, enclosing = _parentheses(tokens)
    found: list[CteSpan] = []
    for start, token in enumerate(tokens):
        if token.token_type != TokenType.WITH:
            continue
        at = start + 1
        recursive = at < len(tokens) and tokens[at].text.upper() == "RECURSIVE"
        at += recursive
        while at < len(tokens):
            body, after = _body(tokens, at + 1, closing)
            if body is None:
                break
            end = closing.get(enclosing[start], len(tokens))
            found.append(CteSpan(tokens[at].text.lower(), body if recursive else after, end))
            if after >= len(tokens) or tokens[after].token_type != TokenType.COMMA:
                break
            at = after + 1
    return found


def _body(tokens: Sequence[Token], at: int, closing: dict[int, int]) -> tuple[int | None, int]:
    """Return the opening parenthesis of an expression's body, and the first token after the body.

    `at` is the token after the expression's name. Column names in parentheses may come before.
    """
    body = None
    while at < len(tokens):
        if tokens[at].token_type == TokenType.L_PAREN:
            body = at
            at = closing[at]
        elif tokens[at].token_type not in _BEFORE_BODY and tokens[at].text.upper() not in _LEVELS:
            break
        at += 1
    return body, at


def _parentheses(tokens: Sequence[Token]) -> tuple[dict[int, int], list[int]]:
    """Return the closing token of each parenthesis by its opening one, and each token's enclosing
    opening parenthesis, or -1.
    """
    closing: dict[int, int] = {}
    enclosing: list[int] = []
    opened: list[int] = []
    for at, token in enumerate(tokens):
        enclosing.append(opened[-1] if opened else -1)
        if token.token_type == TokenType.L_PAREN:
            opened.append(at)
        elif token.token_type == TokenType.R_PAREN and opened:
            closing[opened.pop()] = at
    return closing | dict.fromkeys(opened, len(tokens)), enclosing
