"""Implementation of `neve group list`, `describe` and `delete`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neve.cli import output
from neve.cli.connection import BrokerError, Connection, explained
from neve.cli.group_lag import Lag, committed, lags

GONE = "Dead"
"""The state that Kafka reports for an unknown group."""


def state_name(state: Any) -> str:
    """Return Kafka's name of a state: PreparingRebalance, Stable, Empty, …"""
    name = state if isinstance(state, str) else getattr(state, "name", "Unknown")
    words = "".join(word.capitalize() for word in str(name).split("_"))
    return words.replace("Rebalancing", "Rebalance")  # librdkafka: PREPARING_REBALANCING


def show_all(connection: Connection, *, states: Sequence[str], as_json: bool) -> int:
    """List groups. Returns the exit code: 1 if a broker could not list its groups."""
    connection.metadata()
    found = connection.result(
        connection.admin.list_consumer_groups(request_timeout=connection.timeout_seconds), "groups"
    )
    wanted = {state.lower() for state in states}
    rows = sorted(
        (each.group_id, state_name(each.state), state_name(getattr(each, "type", None)))
        for each in found.valid
        if not wanted or state_name(each.state).lower() in wanted
    )
    if as_json:
        titles = ("group", "state", "type")
        output.write_json([dict(zip(titles, row, strict=True)) for row in rows])
    else:
        output.print_table(("group", "state", "type"), rows)
    for error in found.errors:
        output.complain(explained(_as_error(error), "groups of a broker"))
    return 1 if found.errors else 0


def _as_error(error: Any) -> Any:
    return error.args[0] if isinstance(error, Exception) else error


def find(connection: Connection, name: str) -> Any:
    """Return a group's description. Raises BrokerError if the group does not exist."""
    connection.metadata()
    futures = connection.admin.describe_consumer_groups(
        [name], request_timeout=connection.timeout_seconds
    )
    return connection.result(futures[name], f"group {name}")


def describe(connection: Connection, names: Sequence[str], *, as_json: bool) -> int:
    """Show groups with members and lags. Returns the exit code: 1 if a group does not exist."""
    connection.metadata()  # raises once, not for each group, if no broker responds
    documents = []
    failed = 0
    for name in names:
        try:
            documents.append(described(connection, name))
        except BrokerError as error:
            output.complain(error)
            failed = 1
    if as_json:
        output.write_json(documents)
        return failed
    for number, document in enumerate(documents):
        if number:
            print()
        _print_group(document)
    return failed


def described(connection: Connection, name: str) -> dict[str, Any]:
    """Return one group as a JSON document."""
    group = find(connection, name)
    offsets = committed(connection, name)
    if state_name(group.state) == GONE and not offsets:
        raise BrokerError(
            f"group {name} does not exist: `neve group list` lists the groups",
            "GROUP_ID_NOT_FOUND",
        )
    owners: dict[tuple[str, int], str] = {}
    for member in group.members:
        for each in member.assignment.topic_partitions if member.assignment else []:
            owners[each.topic, each.partition] = member.member_id
    rows = lags(connection, offsets, list(owners))
    known = [row.records for row in rows if row.records is not None]
    ages = [row.seconds for row in rows if row.seconds is not None]
    return {
        "group": name,
        "state": state_name(group.state),
        "protocol": group.partition_assignor or None,
        "coordinator": _node(group.coordinator),
        "members": [_member(member) for member in group.members],
        "lag": sum(known) if known or not rows else None,
        "lag_seconds": max(ages, default=None),
        "partitions": [_partition(row, owners) for row in rows],
    }


def _node(node: Any) -> dict[str, Any] | None:
    if node is None:
        return None
    return {"id": node.id, "host": node.host, "port": node.port}


def _member(member: Any) -> dict[str, Any]:
    assigned = member.assignment.topic_partitions if member.assignment else []
    return {
        "member": member.member_id,
        "instance": member.group_instance_id or None,
        "client": member.client_id,
        "host": member.host,
        "assignment": [
            {"topic": each.topic, "partition": each.partition} for each in sorted(assigned)
        ],
    }


def _partition(row: Lag, owners: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed,
        "start": row.start,
        "end": row.end,
        "lag": row.records,
        "lag_seconds": row.seconds,
        "member": owners.get((row.topic, row.partition)),
    }


def _print_group(document: Mapping[str, Any]) -> None:
    at = document["coordinator"]
    print(f"group        {document['group']}")
    print(f"state        {document['state']}")
    print(f"protocol     {_shown(document['protocol'])}")
    print(f"coordinator  {'-' if at is None else '{id} at {host}:{port}'.format(**at)}")
    print(f"lag          {_shown(document['lag'])} records, {_seconds(document['lag_seconds'])}")
    if document["members"]:
        print()
        output.print_table(
            ("member", "instance", "client", "host", "partitions"),
            [
                (
                    row["member"],
                    _shown(row["instance"]),
                    row["client"],
                    row["host"],
                    len(row["assignment"]),
                )
                for row in document["members"]
            ],
        )
    if document["partitions"]:
        print()
        titles = ("topic", "partition", "committed", "end", "lag", "seconds", "member")
        output.print_table(
            titles,
            [
                (
                    row["topic"],
                    row["partition"],
                    _shown(row["committed"]),
                    _shown(row["end"]),
                    _shown(row["lag"]),
                    _seconds(row["lag_seconds"]),
                    _shown(row["member"]),
                )
                for row in document["partitions"]
            ],
        )


def _shown(value: Any) -> Any:
    return "-" if value is None else value


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def delete(connection: Connection, names: Sequence[str]) -> int:
    """Delete groups with their offsets. Returns the exit code: 1 if a deletion failed."""
    connection.metadata()
    futures = connection.admin.delete_consumer_groups(
        list(names), request_timeout=connection.timeout_seconds
    )
    failed = 0
    for name, future in futures.items():
        try:
            connection.result(future, f"group {name}")
        except BrokerError as error:
            output.complain(error)
            failed = 1
        else:
            print(f"deleted {name}")
    return failed
