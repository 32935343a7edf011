"""The notation of `-f`: text, escapes, and fields such as `%v` or `%v{hex}`.

A format becomes a list of literal bytes and fields; what a field means is up to who writes records
(`record_format`) or reads them (`input_format`). Escapes are `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and
`\\xNN`; `%%` is a percent sign. What stands in braces behind a field is its modifier, and may hold
braces itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from neve.cli.output import UsageError

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class FormatSyntaxError(UsageError):
    """A text that is no format."""


@dataclass(frozen=True)
class Field:
    """`%` and a letter, with what stood in braces behind it."""

    letter: str
    modifier: str | None = None

    def __str__(self) -> str:
        return f"%{self.letter}" + ("" if self.modifier is None else f"{{{self.modifier}}}")


Piece: TypeAlias = bytes | Field


def parse(text: str) -> list[Piece]:
    """A format as pieces; neighbouring literals are one piece."""
    pieces: list[Piece] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        sign = text[position]
        if sign == "\\":
            escaped, position = _escape(text, position + 1)
            literal += escaped
        elif sign == "%" and text[position + 1 : position + 2] != "%":
            if literal:
                pieces.append(bytes(literal))
                literal.clear()
            field, position = _field(text, position + 1)
            pieces.append(field)
        else:
            literal += sign.encode()
            position += 2 if sign == "%" else 1
    if literal:
        pieces.append(bytes(literal))
    return pieces


def _escape(text: str, position: int) -> tuple[bytes, int]:
    letter = text[position : position + 1]
    if letter in _ESCAPES:
        return _ESCAPES[letter], position + 1
    digits = text[position + 1 : position + 3]
    if letter == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", digits):
        return bytes.fromhex(digits), position + 3
    raise FormatSyntaxError(
        f"\\{letter} is no escape: there are \\n, \\t, \\r, \\0, \\\\ and \\xNN with two digits"
    )


def _field(text: str, position: int) -> tuple[Field, int]:
    letter = text[position : position + 1]
    if not letter:
        raise FormatSyntaxError("a % stands at the end: write %% for a percent sign")
    position += 1
    if text[position : position + 1] != "{":
        return Field(letter), position
    depth = 0
    for end in range(position, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return Field(letter, text[position + 1 : end]), end + 1
    raise FormatSyntaxError(f"the brace behind %{letter} is never closed")
