# Written by tools/message_stubs.py from notify.py: run `make protocol`.

from neve.protocol.compiler import Api, Message

class NotifyRequest(Message, kw_only=True):
    end: int = ...

class NotifyResponse(Message, kw_only=True):
    error_code: int = ...
    position: int = ...

NOTIFY: Api[NotifyRequest, NotifyResponse]
