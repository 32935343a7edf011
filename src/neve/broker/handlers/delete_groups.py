"""DeleteGroups: delete groups that have no members, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.error_codes import group_code
from neve.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(broker: Broker, request: DeleteGroupsRequest, _: Context) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    errors = await runtime.gather(*(broker.groups.delete_group(name) for name in names))
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.Result(group_id=name, error_code=group_code(error))
            for name, error in zip(names, errors, strict=True)
        ]
    )
