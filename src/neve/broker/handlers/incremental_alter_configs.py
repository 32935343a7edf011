"""IncrementalAlterConfigs: set or delete single configs of a resource, or edit them as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.config_changes import ConfigEdit, apply_edits
from neve.broker.handlers.config_resources import ResourceEdit, alter
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
    outcomes = await alter(broker, edits, apply_edits, validate_only=request.validate_only)
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
