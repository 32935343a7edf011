"""Output of `neve sql`: a table, lines of JSON, or CSV, batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from neve import runtime
from neve.cli import output

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.lake.sql.model import Result

Format: TypeAlias = Literal["table", "json", "csv"]
TABLE_ROWS = 1_000
"""Rows printed at a time. The first of them determine the widths of the columns."""


def print_result(result: Result, form: Format) -> int:
    """Print all rows as they arrive. Returns their number."""
    started_at = runtime.monotonic()
    printers: dict[Format, Callable[[Result], int]] = {
        "json": _print_json,
        "csv": _print_csv,
        "table": _print_table,
    }
    count = printers[form](result)
    if form == "table":
        seconds = runtime.monotonic() - started_at
        print(f"({count} {'row' if count == 1 else 'rows'}, {seconds:.1f} s)", flush=True)
    return count


def _print_json(result: Result) -> int:
    from neve.lake.sql.rendering import json_lines

    return _lines(result, json_lines)


def _print_csv(result: Result) -> int:
    from neve.lake.sql.rendering import csv_header, csv_lines

    output.write_bytes(csv_header(result.schema))
    return _lines(result, csv_lines)


def _lines(result: Result, encode: Callable[[pa.RecordBatch], bytes]) -> int:
    count = 0
    for batch in result.batches():
        output.write_bytes(encode(batch))
        output.flush()
        count += batch.num_rows
    return count


def _print_table(result: Result) -> int:
    """Print rows in chunks. The first chunk determines the widths of the columns."""
    count = 0
    widths: list[int] | None = None
    for rows in _portions(result):
        if widths is None:
            widths = [
                max(len(name), *(_width(row[at]) for row in rows), 1)
                for at, name in enumerate(result.schema.names)
            ]
            _draw(result.schema, rows, widths, header=True)
        else:
            _draw(result.schema, rows, widths, header=False)
        count += len(rows)
    if widths is None:
        _draw(result.schema, [], [len(name) for name in result.schema.names], header=True)
    return count


def _width(cell: str) -> int:
    return max((len(line) for line in cell.splitlines()), default=0)


def _portions(result: Result) -> Iterator[list[list[str]]]:
    from neve.lake.sql.rendering import cells

    waiting: list[list[str]] = []
    for batch in result.batches():
        waiting += cells(batch)
        while len(waiting) >= TABLE_ROWS:
            yield waiting[:TABLE_ROWS]
            waiting = waiting[TABLE_ROWS:]
    if waiting:
        yield waiting


def _draw(schema: pa.Schema, rows: list[list[str]], widths: list[int], *, header: bool) -> None:
    import pyarrow as pa
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_header=header, show_edge=False, pad_edge=False)
    for field, width in zip(schema, widths, strict=True):
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        side: Literal["right", "left"] = "right" if number else "left"
        table.add_column(Text(field.name), justify=side, min_width=width, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Without a terminal there is no width: do not fold.
    wide = sum(widths) + 4 * len(widths) + 8
    columns = None if output.stdout_is_terminal() else max(wide, 80)
    console = Console(file=sys.stdout, width=columns, highlight=False)
    if output.stdout_is_terminal() and wide > console.width:
        for column in table.columns:
            column.min_width = None
    console.print(table)
