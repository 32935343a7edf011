"""AlterConfigs: replace all configs of a resource; those that are not given return to defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.config_changes import ConfigEdit, replace_all
from neve.broker.handlers.config_resources import ResourceEdit, alter
from neve.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(
    broker: Broker, request: AlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    del context
    edits = [
        ResourceEdit(
            each.resource_type,
            each.resource_name,
            [ConfigEdit(config.name, config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    outcomes = await alter(broker, edits, replace_all, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.Resource(
                error_code=each.code,
                error_message=each.reason,
                resource_type=each.kind,
                resource_name=each.name,
            )
            for each in outcomes
        ]
    )
