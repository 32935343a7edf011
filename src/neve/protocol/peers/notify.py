"""Notify: a leader lets a follower know how far its stream is committed."""

from __future__ import annotations

from neve.protocol.compiler import define

NOTIFY = define(
    """
    Notify 30010, versions 0-0, flexible none
    request
      cluster_id string
      sender int64  # whose stream
      target int64
      end int64  # all numbers below it are committed
    response
      error_code int16
      position int64  # the number up to which the follower has read, or -1
    """
)
NotifyRequest = NOTIFY.Request
NotifyResponse = NOTIFY.Response
