"""Notify: a leader lets a follower know how far its stream is committed."""

from __future__ import annotations

from neve.protocol.compiler import define

NOTIFY = define(
    """
    Notify 30005, versions 0-0, flexible none
    request
      end int64  # all numbers of the sender's stream below it are committed
    response
      error_code int16
      position int64  # the number up to which the follower has read, or -1
    """
)
NotifyRequest = NOTIFY.Request
NotifyResponse = NOTIFY.Response
