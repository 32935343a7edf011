"""Prometheus' text format, version 0.0.4.

prometheus-client takes about thirty times as long per sample, and a scrape of a broker with
thousands of partitions runs on the event loop that serves them. The tests parse the output with
prometheus-client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf, isnan

from neve.serving.catalogue import CATALOGUE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Sequence[str]
Rows = Iterable[tuple[Labels, float]]


def header(name: str) -> str:
    """Return the HELP and TYPE lines of a family."""
    about = CATALOGUE[name]
    help_text = about.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {help_text}\n# TYPE {name} {about.kind}\n"


def number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def labels_of(name: str, values: Labels, *more: tuple[str, str]) -> str:
    """Return `{a="x",b="y"}` for a sample of this family; empty if it has no labels."""
    pairs = [*zip(CATALOGUE[name].labels, values, strict=True), *more]
    if not pairs:
        return ""
    return "{" + ",".join(f"{label}={quoted(value)}" for label, value in pairs) + "}"


def one(name: str, value: float) -> str:
    """Return a family without labels."""
    return f"{header(name)}{name} {number(value)}\n"


def several(name: str, rows: Rows) -> str:
    """Return a family with a sample for each combination of label values."""
    lines = [f"{name}{labels_of(name, labels)} {number(value)}\n" for labels, value in rows]
    return header(name) + "".join(lines)


def histogram(name: str, rows: Iterable[tuple[Labels, Sequence[tuple[float, int]], float]]) -> str:
    """Return a family of histograms: labels, cumulative buckets up to infinity, and the sum."""
    lines = []
    for labels, buckets, total in rows:
        for bound, below in buckets:
            inside = labels_of(name, labels, ("le", number(bound)))
            lines.append(f"{name}_bucket{inside} {below}\n")
        plain = labels_of(name, labels)
        count = buckets[-1][1]
        lines.append(f"{name}_sum{plain} {number(total)}\n{name}_count{plain} {count}\n")
    return header(name) + "".join(lines)
