"""IncrementalAlterConfigs: single configs of a resource are set, taken back, edited as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.broker.error_codes import RefusedError
from neve.broker.handlers.resources import Target, alter, value_of
from neve.cluster.topic_config import InvalidConfigError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = INCREMENTAL_ALTER_CONFIGS.Response
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def handle(broker: Broker, request: Any, context: Context) -> Any:
    del context
    return _Response(responses=await alter(broker, request, _Response.Resource, _edited))


def _edited(target: Target, asked: Any) -> dict[str, str]:
    wanted = dict(target.kept)
    for config in asked.configs:
        operation = config.config_operation
        if operation == DELETE:
            if config.name not in wanted:
                target.known(config.name)
            wanted.pop(config.name, None)
        elif operation == SET:
            wanted[config.name] = value_of(config)
        elif operation in (APPEND, SUBTRACT):
            wanted[config.name] = _edited_list(target, config)
        else:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"{config.name}: there is no operation {operation}"
            )
    return wanted


def _edited_list(target: Target, config: Any) -> str:
    about = target.known(config.name)
    if about.kind != "list":
        raise InvalidConfigError(f"{about.name} is not a list: set it, nothing can be appended")
    present = target.kept.get(about.name, target.default(about))
    entries, given = _entries(present), _entries(value_of(config))
    if config.config_operation == APPEND:
        entries += [entry for entry in given if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in given]
    return ",".join(entries)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]
