"""Probe: a broker asks another one whether a third refuses connections."""

from __future__ import annotations

from neve.protocol.compiler import define

PROBE = define(
    """
    Probe 30001, versions 0-0, flexible none
    request
      suspect int64  # the incarnation in question
    response
      error_code int16
      refused bool
    """
)
ProbeRequest = PROBE.Request
ProbeResponse = PROBE.Response
