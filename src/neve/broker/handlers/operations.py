"""Authorized operations, as bits, which clients may ask for beside a description.

Without access control everybody may do everything that the kind of resource knows.
"""

from __future__ import annotations

NOT_ASKED_FOR = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
TOPIC = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
GROUP = _bits(_READ, _DELETE, _DESCRIBE)


def asked_for(wanted: bool, operations: int) -> int:
    """The bits where the client wants them, else Kafka's sign for not asked."""
    return operations if wanted else NOT_ASKED_FOR
