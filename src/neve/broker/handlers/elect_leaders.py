"""ElectLeaders: let the brokers that should lead partitions take them now.

An election of type "unclean" is one of partitions without a leader. It loses nothing here: all
that was acknowledged is in the bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from neve.broker.admin.changes import WAIT_MS_LEAST, Changes
from neve.broker.error_codes import NO_ERROR, admin_error
from neve.broker.errors import ElectionNotNeededError, ElectionTypeError
from neve.errors import NeveError
from neve.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from neve.broker.admin.reassignments import NamedPartition
    from neve.broker.broker import Broker
    from neve.broker.context import Context


class _ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def handle(
    broker: Broker, request: ElectLeadersRequest, context: Context
) -> ElectLeadersResponse:
    del context
    rows = request.topic_partitions or ()
    named = list(dict.fromkeys((row.topic, number) for row in rows for number in row.partitions))
    is_for_all = request.topic_partitions is None
    try:
        outcomes = await _elected(broker, request, broker.elections.all() if is_for_all else named)
    except NeveError as error:
        code, reason = admin_error(error)
        failed = dict.fromkeys(named, (code, reason))
        return ElectLeadersResponse(error_code=code, replica_election_results=_rows(failed))
    results = {
        row: (NO_ERROR, None) if error is None else admin_error(error)
        for row, error in outcomes.items()
        # As Kafka: of all partitions, only those for which there was an election.
        if not (is_for_all and isinstance(error, ElectionNotNeededError))
    }
    return ElectLeadersResponse(replica_election_results=_rows(results))


async def _elected(
    broker: Broker, request: ElectLeadersRequest, named: Sequence[NamedPartition]
) -> dict[NamedPartition, NeveError | None]:
    if request.election_type not in tuple(_ElectionType):
        raise ElectionTypeError(
            f"election type {request.election_type} does not exist: ask for 0 (preferred) or 1 "
            "(unclean)"
        )
    elect = partial(
        broker.elections.elect,
        named,
        max(request.timeout_ms, WAIT_MS_LEAST) / 1000,
        only_unled=request.election_type == _ElectionType.UNCLEAN,
    )
    return await Changes(broker.changing, request.timeout_ms).make(elect)


def _rows(
    results: Mapping[NamedPartition, tuple[int, str | None]],
) -> list[ElectLeadersResponse.Topic]:
    topics: dict[str, list[ElectLeadersResponse.Partition]] = {}
    for (name, number), (code, reason) in results.items():
        row = ElectLeadersResponse.Partition(
            partition_id=number, error_code=code, error_message=reason
        )
        topics.setdefault(name, []).append(row)
    return [
        ElectLeadersResponse.Topic(topic=name, partition_result=rows)
        for name, rows in topics.items()
    ]
