# Written by tools/message_stubs.py from delete_groups.py: run `make protocol`.

import msgspec

from neve.protocol.compiler import Api, Message

class DeleteGroupsRequest(Message, kw_only=True):
    groups_names: list[str] = ...

class DeleteGroupsResponse(Message, kw_only=True):
    class Result(msgspec.Struct, kw_only=True):
        group_id: str = ...
        error_code: int = ...

    throttle_time_ms: int = ...
    results: list[DeleteGroupsResponse.Result] = ...

DELETE_GROUPS: Api[DeleteGroupsRequest, DeleteGroupsResponse]
