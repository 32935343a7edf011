"""Resources with configs as Kafka's requests name them, and changing what several requests name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from neve.broker.admin.changes import Changes
from neve.broker.admin.config_changes import (
    ConfigEdit,
    ConfigTarget,
    broker_target,
    change_configs,
    topic_target,
)
from neve.broker.error_codes import NO_ERROR, admin_error
from neve.broker.handlers.duplicates import check_named_once, each_once
from neve.cluster.records import ALL_NODES
from neve.errors import InvalidError, NeveError

if TYPE_CHECKING:
    from neve.broker.broker import Broker

TOPIC, BROKER = 2, 4
ALL_BROKERS = ""


class ResourceEdit(NamedTuple):
    """What a request asks of one resource."""

    kind: int
    name: str
    configs: Sequence[ConfigEdit]


class EditOutcome(NamedTuple):
    """Whether a resource was changed. `code` is NO_ERROR if it was."""

    kind: int
    name: str
    code: int
    reason: str | None


Derive: TypeAlias = Callable[[ConfigTarget, Sequence[ConfigEdit]], dict[str, str]]
"""From a resource and what is asked of its configs to all that it keeps afterwards."""


async def alter(
    broker: Broker, edits: Iterable[ResourceEdit], derive: Derive, *, validate_only: bool
) -> list[EditOutcome]:
    """Change each resource that may be changed, one after the other."""
    changes = None if validate_only else Changes(broker)
    outcomes = []
    for edit, times in each_once(list(edits), attrgetter("kind", "name")):
        code, reason = NO_ERROR, None
        try:
            check_named_once(f"resource {edit.name!r}", times)
            target = _target(broker, edit.kind, edit.name)
            for config, named in each_once(edit.configs, attrgetter("name")):
                check_named_once(f"config {config.name!r}", named)
            await change_configs(target, derive(target, edit.configs), changes)
        except NeveError as error:
            code, reason = admin_error(error)
        outcomes.append(EditOutcome(edit.kind, edit.name, code, reason))
    return outcomes


def _target(broker: Broker, resource_type: int, name: str) -> ConfigTarget:
    if resource_type == BROKER:
        return broker_target(broker, node_named(broker, name))
    if resource_type != TOPIC:
        raise refuse_type(resource_type)
    return topic_target(broker, name)


def node_named(broker: Broker, name: str) -> int:
    """The node that a broker resource names, ALL_NODES for all of them together."""
    if name == ALL_BROKERS:
        return ALL_NODES
    if name != str(broker.node_id):
        raise InvalidError(
            f"this is broker {broker.node_id}, and it knows its own configs and those of all "
            f"brokers (resource name {ALL_BROKERS!r}), not those of broker {name!r}"
        )
    return broker.node_id


def refuse_type(resource_type: int) -> InvalidError:
    return InvalidError(
        f"resources of type {resource_type} have no configs here: "
        f"topics ({TOPIC}) and brokers ({BROKER}) have"
    )
