"""`neve group …`: consumer groups of any Kafka-compatible broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import group_admin, group_seek
from neve.cli.connection import DEFAULT_FLAGS, BrokerFlags
from neve.cli.name_validation import name_validator
from neve.cli.offsets import parse_bound
from neve.cli.output import UsageError
from neve.cli.topic import numbers

Group = Annotated[str, Parameter(help="The group.", validator=name_validator("group"))]
Groups = Annotated[
    list[str], Parameter(help="One or more groups.", validator=name_validator("group"))
]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]

# The states of classic groups, and of KIP-848 groups that other brokers may have.
STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
    "Unknown",
)

app = App(name="group", help="Describe consumer groups, reset their offsets, delete them.")


@app.command(name="list")
def list_(
    *,
    state: Annotated[
        list[str] | None,
        Parameter(negative="", help="Only groups in this state, such as Stable. Repeatable."),
    ] = None,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """List groups with their states."""
    for each in state or []:
        if each.lower() not in map(str.lower, STATES):
            raise UsageError(f"--state {each}: must be one of {', '.join(STATES)}")
    with broker.connect() as connection:
        return group_admin.show_all(connection, states=state or [], as_json=json)


@app.command
def describe(
    groups: Groups,
    /,
    *,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Show members, committed offsets, and the lag in records and in seconds."""
    with broker.connect() as connection:
        return group_admin.describe(connection, _distinct(groups), as_json=json)


@app.command
def seek(
    group: Group,
    /,
    *,
    to: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="start, end, 47, +2, -3, @-1h or @2026-01-01."),
    ],
    topics: Annotated[
        str | None, Parameter(help="Topics, comma-separated. Default: all topics of the group.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        Parameter(negative="", help="Partitions of a topic, as name:0,1. Repeatable."),
    ] = None,
    allow_new_topics: Annotated[
        bool, Parameter(negative="", help="Accept topics without committed offsets of the group.")
    ] = False,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Print the offsets without committing them.")
    ] = False,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Reset the committed offsets of a group. Its members must be stopped."""
    target = group_seek.Target(
        to=parse_bound(to, runtime.now_ms()),
        topics=_chosen(topics, topic or []),
        allow_new_topics=allow_new_topics,
    )
    with broker.connect() as connection:
        return group_seek.seek(connection, group, target, dry_run=dry_run, as_json=json)


@app.command
def delete(groups: Groups, /, *, broker: BrokerFlags = DEFAULT_FLAGS) -> int:
    """Delete groups with all their committed offsets."""
    with broker.connect() as connection:
        return group_admin.delete(connection, _distinct(groups))


def _chosen(whole: str | None, parts: Sequence[str]) -> dict[str, list[int] | None]:
    chosen: dict[str, list[int] | None] = {}
    names = [] if whole is None else [name.strip() for name in whole.split(",")]
    for text in [*names, *parts]:
        name, colon, listed = text.partition(":")
        if not name:
            raise UsageError("a topic's name is empty: write --topics a,b or --topic a:0,1")
        if name in chosen:
            raise UsageError(f"topic {name} is given twice: remove one")
        chosen[name] = numbers("--topic", listed) if colon else None
    return chosen


def _distinct(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
