"""The notation of `-f`: text, escapes, and fields such as `%v` or `%v{hex}`.

A format is parsed into literal bytes and fields. `record_format` (writing) and `input_format`
(reading) define the fields. Escapes are `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and `\\xNN`; `%%` is a
percent sign. The text in braces behind a field is its modifier, which may contain braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from neve.cli.output import UsageError

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class FormatSyntaxError(UsageError):
    """The text is not a valid format."""


@dataclass(frozen=True)
class Field:
    """`%` and a letter, with the modifier in braces, if any."""

    letter: str
    modifier: str | None = None

    def __str__(self) -> str:
        return f"%{self.letter}" + ("" if self.modifier is None else f"{{{self.modifier}}}")


Token: TypeAlias = bytes | Field


def parse(text: str) -> list[Token]:
    """Parse a format into fields and literals; adjacent literals are joined."""
    tokens: list[Token] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        sign = text[position]
        if sign == "\\":
            escaped, position = _escape(text, position + 1)
            literal += escaped
        elif sign == "%" and text[position + 1 : position + 2] != "%":
            if literal:
                tokens.append(bytes(literal))
                literal.clear()
            field, position = _field(text, position + 1)
            tokens.append(field)
        else:
            literal += sign.encode()
            position += 2 if sign == "%" else 1
    if literal:
        tokens.append(bytes(literal))
    return tokens


def _escape(text: str, position: int) -> tuple[bytes, int]:
    letter = text[position : position + 1]
    if letter in _ESCAPES:
        return _ESCAPES[letter], position + 1
    digits = text[position + 1 : position + 3]
    if letter == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", digits):
        return bytes.fromhex(digits), position + 3
    raise FormatSyntaxError(
        f"\\{letter} is not an escape: use \\n, \\t, \\r, \\0, \\\\ or \\xNN with two hex digits"
    )


def _field(text: str, position: int) -> tuple[Field, int]:
    letter = text[position : position + 1]
    if not letter:
        raise FormatSyntaxError("a % at the end: write %% for a percent sign")
    position += 1
    if text[position : position + 1] != "{":
        return Field(letter), position
    depth = 0
    for end in range(position, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return Field(letter, text[position + 1 : end]), end + 1
    raise FormatSyntaxError(f"the brace after %{letter} is not closed: add }}")
