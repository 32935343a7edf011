"""IncrementalAlterConfigs: single configs of a resource are set, taken back, edited as lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.broker.handlers.resources import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    ConfigEdit,
    ResourceEdit,
    Target,
    alter,
)
from neve.cluster.topic_config import InvalidConfigError
from neve.errors import InvalidError
from neve.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    del context
    edits = [
        ResourceEdit(
            each.resource_type,
            each.resource_name,
            [
                ConfigEdit(config.name, config.value, config.config_operation)
                for config in each.configs
            ],
        )
        for each in request.resources
    ]
    outcomes = await alter(broker, edits, _edited, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.Resource(
                error_code=each.code,
                error_message=each.reason,
                resource_type=each.kind,
                resource_name=each.name,
            )
            for each in outcomes
        ]
    )


def _edited(target: Target, edits: Sequence[ConfigEdit]) -> dict[str, str]:
    wanted = dict(target.kept)
    for edit in edits:
        if edit.operation == DELETE:
            if edit.name not in wanted:
                target.known(edit.name)
            wanted.pop(edit.name, None)
        elif edit.operation == SET:
            wanted[edit.name] = edit.given_value
        elif edit.operation in (APPEND, SUBTRACT):
            wanted[edit.name] = _edited_list(target, edit)
        else:
            raise InvalidError(f"{edit.name}: there is no operation {edit.operation}")
    return wanted


def _edited_list(target: Target, edit: ConfigEdit) -> str:
    about = target.known(edit.name)
    if about.kind != "list":
        raise InvalidConfigError(f"{about.name} is not a list: set it, nothing can be appended")
    present = target.kept.get(about.name, target.default(about))
    entries, given = _entries(present), _entries(edit.given_value)
    if edit.operation == APPEND:
        entries += [entry for entry in given if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in given]
    return ",".join(entries)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]
