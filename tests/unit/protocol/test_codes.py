"""The error codes are Kafka's, as two other clients list them."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioCode

from neve.protocol.codes import ErrorCode
from support.protocol_peers import kafka_python_errors


def test_names_numbers_and_retriable_flags_are_kio_s() -> None:
    ours = {(code.name, int(code), code.retriable) for code in ErrorCode}
    assert ours == {(code.name.upper(), int(code), code.retriable) for code in KioCode}


def test_every_number_of_kafka_python_s_is_there() -> None:
    assert kafka_python_errors() <= {int(code) for code in ErrorCode}


def test_a_code_is_a_number() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.retriable
    assert not ErrorCode.NONE.retriable
