"""Changing the configs of resources: what AlterConfigs and IncrementalAlterConfigs share.

Only topics have configs that can be changed while a broker runs. Each resource is decided by
itself; what a topic has not been asked to change is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from neve.broker.error_codes import RefusedError, admin_error
from neve.broker.handlers.changes import Changes
from neve.broker.handlers.topic_names import (
    check_named_once,
    check_not_internal,
    each_once,
    existing_topic,
)
from neve.cluster.topic_config import check_configs
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.cluster.state import Topic

TOPIC, BROKER = 2, 4

Derive = Callable[["Broker", "Topic", Any], dict[str, str]]
"""From a topic and what is asked of its configs to all that it keeps afterwards."""


async def alter(broker: Broker, request: Any, row_class: Any, derive: Derive) -> list[Any]:
    """Change each resource that may be changed; one row each."""
    key_of = attrgetter("resource_type", "resource_name")
    changes = None if request.validate_only else Changes(broker)
    rows = []
    for resource, times in each_once(request.resources, key_of):
        kind, name = key_of(resource)
        code, reason = ErrorCode.NONE, None
        try:
            check_named_once(f"resource {name!r}", times)
            topic = _alterable(broker, kind, name)
            for config, named in each_once(resource.configs, attrgetter("name")):
                check_named_once(f"config {config.name!r}", named)
            await _change(broker, topic, derive(broker, topic, resource), changes)
        except NeveError as error:
            code, reason = admin_error(error)
        rows.append(
            row_class(error_code=code, error_message=reason, resource_type=kind, resource_name=name)
        )
    return rows


def _alterable(broker: Broker, resource_type: int, name: str) -> Topic:
    if resource_type == BROKER:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "a broker's settings are read when it starts: change them there, and restart it",
        )
    if resource_type != TOPIC:
        raise refuse_type(resource_type)
    topic = existing_topic(broker, name)
    check_not_internal(name, "changed")
    return topic


async def _change(
    broker: Broker, topic: Topic, wanted: dict[str, str], changes: Changes | None
) -> None:
    values = {name: value for name, value in wanted.items() if topic.configs.get(name) != value}
    removed = tuple(name for name in topic.configs if name not in wanted)
    check_configs(values)
    if changes is not None and (values or removed):
        await changes.make(partial(broker.node.set_configs, topic.name, values, removed))


def value_of(config: Any) -> str:
    """The value that is given for a config; it must not be null."""
    if config.value is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{config.name} is given no value, but null")
    value: str = config.value
    return value


def refuse_type(resource_type: int) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {resource_type} have no configs here: "
        f"topics ({TOPIC}) and brokers ({BROKER}) have",
    )
