from __future__ import annotations

import re
from pathlib import Path

import pytest

import neve
from neve.broker import error_codes
from neve.broker.error_codes import (
    admin_error,
    fetch_error,
    group_code,
    join_code,
    offset_fetch_code,
    produce_error,
)
from neve.broker.errors import (
    BatchTooLargeError,
    NotAuthorizedError,
    TimedOutError,
    UnknownTopicIdError,
)
from neve.cluster.topic_config import InvalidConfigError
from neve.cluster.topic_rules import (
    NoTopicError,
    PartitionCountError,
    TopicExistsError,
    TopicNameError,
)
from neve.coordinator.group_errors import GroupError, group_error_for
from neve.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    DeniedError,
    FencedError,
    FullError,
    InvalidError,
    LostRangeError,
    NeveError,
    StoreFailedError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.producers import (
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.protocol.codes import ErrorCode

DAMAGED = DamagedError("key", "a checksum")
DOWN = UnavailableError("key", "SlowDown")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicExistsError("x"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NoTopicError("x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicNameError("x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (PartitionCountError("x"), ErrorCode.INVALID_PARTITIONS),
        (InvalidConfigError("x"), ErrorCode.INVALID_CONFIG),
        (InvalidError("x"), ErrorCode.INVALID_REQUEST),
        (FencedError("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ClosedError("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (DeniedError("key", "403"), ErrorCode.KAFKA_STORAGE_ERROR),
        (StoreFailedError("key", "disk full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (NeveError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (NotAuthorizedError("x"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (UnknownTopicIdError(bytes(16)), ErrorCode.UNKNOWN_TOPIC_ID),
        (TimedOutError("x"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_requests_about_topics(error: NeveError, code: ErrorCode) -> None:
    assert admin_error(error) == (code, str(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DAMAGED, ErrorCode.CORRUPT_MESSAGE),
        (InvalidError("x"), ErrorCode.INVALID_RECORD),
        (UnsupportedError("x"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (OutOfOrderSequenceError("x"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (DuplicateSequenceError("x"), ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        (ProducerFencedError("x"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (FencedError("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (BatchTooLargeError("x"), ErrorCode.MESSAGE_TOO_LARGE),
        (UnknownTopicIdError(bytes(16)), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_produced_batches(error: NeveError, code: ErrorCode) -> None:
    assert produce_error(error) == (code, str(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DAMAGED, ErrorCode.KAFKA_STORAGE_ERROR),
        (LostRangeError("x"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OffsetOutOfRangeError("t-0", 9, 0, 5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (ClosedError("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        # Not a time-out: Java's consumer knows none in the answer to a fetch, and ends.
        (DOWN, ErrorCode.KAFKA_STORAGE_ERROR),
        (ConflictError("key", "409"), ErrorCode.KAFKA_STORAGE_ERROR),
        (FullError("x"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_fetches(error: NeveError, code: ErrorCode) -> None:
    assert fetch_error(error) is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FencedError("x"), ErrorCode.NOT_COORDINATOR),
        (ClosedError("x"), ErrorCode.NOT_COORDINATOR),
        (DOWN, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (FullError("x"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_groups(error: NeveError, code: ErrorCode) -> None:
    assert group_code(group_error_for(error)) is code


def test_every_refusal_of_the_coordinator_has_a_code() -> None:
    for refusal in GroupError:
        codes = group_code(refusal), join_code(refusal), offset_fetch_code(refusal)
        assert ErrorCode.NONE not in codes
    assert {group_code(None), join_code(None), offset_fetch_code(None)} == {ErrorCode.NONE}


def test_clients_do_not_expect_every_refusal_in_every_use() -> None:
    full, late = GroupError.TOO_MANY_GROUPS, GroupError.TIMED_OUT
    assert (group_code(full), join_code(full)) == (
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    )
    assert (group_code(late), offset_fetch_code(late)) == (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )


@pytest.mark.parametrize("error", [DOWN, ConflictError("key", "409"), FullError("x")])
def test_what_passes_is_retried_whatever_was_asked(error: NeveError) -> None:
    codes = (
        admin_error(error)[0],
        produce_error(error)[0],
        fetch_error(error),
        group_code(group_error_for(error)),
    )
    assert all(code.retriable for code in codes)


def test_a_special_error_is_never_hidden_behind_a_general_one() -> None:
    for table in (
        error_codes._REFUSALS,
        error_codes._ANY_REQUEST,
        error_codes._PRODUCE,
        error_codes._FETCH,
    ):
        kinds = [kind for kind, _ in table]
        for at, kind in enumerate(kinds):
            assert not any(issubclass(kind, before) for before in kinds[:at]), kind


def test_no_other_file_names_an_error_code() -> None:
    source = Path(neve.__file__).parent
    allowed = {source / "protocol" / "codes.py", Path(error_codes.__file__)}
    files = [file for file in sorted(source.rglob("*.py")) if file not in allowed]
    assert len(files) > 100
    named = [
        str(file.relative_to(source))
        for file in files
        if re.search(r"\bErrorCode\b", file.read_text(encoding="utf-8"))
    ]
    assert named == []
