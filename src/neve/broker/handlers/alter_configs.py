"""AlterConfigs: what is given replaces all that a resource had; the rest goes back to defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.broker.handlers.resources import Target, alter, value_of
from neve.protocol.messages.alter_configs import ALTER_CONFIGS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = ALTER_CONFIGS.Response


async def handle(broker: Broker, request: Any, context: Context) -> Any:
    del context
    return _Response(responses=await alter(broker, request, _Response.Resource, _replaced))


def _replaced(target: Target, asked: Any) -> dict[str, str]:
    del target
    return {config.name: value_of(config) for config in asked.configs}
