"""DeleteTopics: delete topics by name or by id, each separately. Objects are removed later."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.changes import Changes
from neve.broker.admin.duplicates import check_named_once
from neve.broker.error_codes import admin_error
from neve.errors import InvalidError, NeveError
from neve.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.cluster.state import Topic

_NO_ID = bytes(16)
_IDS_SINCE = 6


class _Named(NamedTuple):
    name: str | None
    topic_id: bytes


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: Context
) -> DeleteTopicsResponse:
    if context.api_version >= _IDS_SINCE:
        asked = [_Named(each.name, each.topic_id) for each in request.topics]
    else:
        asked = [_Named(name, _NO_ID) for name in request.topic_names]
    changes = Changes(broker.changing, request.timeout_ms)
    # Counted before any is deleted: a topic may be named by its name and once more by its id.
    meant = {named: _meant(broker, named) for named in asked}
    times = Counter(meant[named] for named in asked)
    rows = [await _row(broker, named, times[meant[named]], changes) for named in meant]
    return DeleteTopicsResponse(responses=rows)


def _meant(broker: Broker, named: _Named) -> _Named:
    """Return the same value for a topic's name and for its id: its name, if it exists."""
    topic = broker.topics.get_by_id(named.topic_id) if named.name is None else None
    return named if topic is None else _Named(topic.name, _NO_ID)


async def _row(
    broker: Broker, named: _Named, times: int, changes: Changes
) -> DeleteTopicsResponse.Topic:
    name, topic_id = named
    try:
        topic = _found(broker, named, times)
        if name is None:
            name = topic.name
            topic = await changes.make(partial(broker.topics.delete_by_id, topic))
        else:
            topic = await changes.make(partial(broker.topics.delete, name))
    except NeveError as error:
        code, reason = admin_error(error)
        return DeleteTopicsResponse.Topic(
            name=name, topic_id=topic_id, error_code=code, error_message=reason
        )
    return DeleteTopicsResponse.Topic(name=name, topic_id=topic.id_bytes)


def _found(broker: Broker, named: _Named, times: int) -> Topic:
    name, topic_id = named
    if (name is None) == (topic_id == _NO_ID):
        raise InvalidError("name a topic by its name or by its id, and not by both")
    check_named_once(f"topic {name!r}" if name is not None else f"topic id {topic_id.hex()}", times)
    return broker.topics.find(name) if name is not None else broker.topics.find_by_id(topic_id)
