"""DeleteGroups: groups without members go, and their offsets with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve import runtime
from neve.protocol.messages.delete_groups import DELETE_GROUPS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = DELETE_GROUPS.Response


async def handle(broker: Broker, request: Any, _: Context) -> Any:
    names = list(dict.fromkeys(request.groups_names))
    errors = await runtime.gather(*(broker.groups.delete_group(name) for name in names))
    return _Response(
        results=[
            _Response.Result(group_id=name, error_code=error)
            for name, error in zip(names, errors, strict=True)
        ]
    )
