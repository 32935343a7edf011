"""Every message of every version comes back as it was written, and peers read it as the same.

The messages are made from the descriptions; a new API is covered as soon as it is listed.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.protocol_peers import (
    as_lists,
    differences,
    kio_class,
    kio_decode,
    kio_encode,
    leaves,
    old_class,
)
from support.protocol_samples import Message, every_message, messages

quick = settings(
    max_examples=4,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

KNOWN_TO_KIO = [each for each in every_message() if kio_class(each) is not None]
DROPPED_BY_KAFKA = [each for each in every_message() if kio_class(each) is None]
WRONG_IN_KAFKA_PYTHON = {"DescribeLogDirsRequest-v0"}
"""Its one list of partitions is a single number there."""


def assert_comes_back(message: Message, value: Any, written: bytes) -> None:
    assert message.decode(written) == value
    assert message.cls.decode(memoryview(b"before" + written), message.version, 6) == value


@pytest.mark.parametrize("message", KNOWN_TO_KIO, ids=repr)
@quick
@given(data=st.data())
def test_we_and_kio_read_what_the_other_writes(message: Message, data: st.DataObject) -> None:
    value = data.draw(messages(message, narrow=True))
    written = message.encode(value)
    assert_comes_back(message, value, written)
    theirs, size = kio_decode(kio_class(message), written)
    assert size == len(written)
    assert differences(value, theirs, message.schema, message.version, repr(message)) == []
    assert kio_encode(theirs) == written


@pytest.mark.parametrize("message", DROPPED_BY_KAFKA, ids=repr)
@quick
@given(data=st.data())
def test_kafka_python_reads_what_kafka_dropped(message: Message, data: st.DataObject) -> None:
    value = data.draw(messages(message))
    written = message.encode(value)
    assert_comes_back(message, value, written)
    if repr(message) in WRONG_IN_KAFKA_PYTHON:
        return
    buffer, cls = BytesIO(written), old_class(message)
    theirs = cls.decode(buffer)
    assert buffer.read() == b""
    shown = [getattr(theirs, name) for name in cls.SCHEMA.names]
    assert as_lists(shown) == leaves(value, message.version, message.schema)
    assert theirs.encode() == written


@pytest.mark.parametrize("message", every_message(), ids=repr)
def test_a_message_of_defaults_comes_back(message: Message) -> None:
    value = message.cls()
    assert_comes_back(message, value, message.encode(value))
