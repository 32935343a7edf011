# Written by tools/message_stubs.py from probe.py: run `make protocol`.

from neve.protocol.compiler import Api, Message

class ProbeRequest(Message, kw_only=True):
    suspect: int = ...

class ProbeResponse(Message, kw_only=True):
    error_code: int = ...
    refused: bool = ...

PROBE: Api[ProbeRequest, ProbeResponse]
