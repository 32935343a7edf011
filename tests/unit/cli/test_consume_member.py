"""`neve topic consume -g`: when a member has read all it is given, and when more is to come."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from neve.cli import consume_member, main, output
from neve.cli.connection import BrokerFlags
from support.kafka_fakes import FakeCluster, member

WE, OTHER = "we", "other"
ALL = (("t", 0), ("t", 1))
SAYS_ALL = "neve: the other members of the group own all partitions\n"


def record(partition: int, offset: int) -> Any:
    value = b"%d@%d" % (partition, offset)
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: partition,
        offset=lambda: offset,
        error=lambda: None,
        timestamp=lambda: (1, 0),
        key=lambda: None,
        value=lambda: value,
        headers=lambda: None,
    )


def end(partition: int, offset: int) -> Any:
    message = record(partition, offset)
    message.error = lambda: KafkaError(KafkaError._PARTITION_EOF)
    return message


class ScriptedConsumer:
    """Each wait is one step: messages that come, or something that happens in the group."""

    def __init__(self, steps: list[list[Any] | Callable[[ScriptedConsumer], None]]) -> None:
        self.steps = steps
        self.committed: dict[int, int] = {}
        self.refusal: KafkaError | None = None
        self.left = False

    def subscribe(self, _: list[str], on_assign: Any, on_revoke: Any) -> None:
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def unsubscribe(self) -> None:
        self.left = True

    def memberid(self) -> str:
        return WE

    def consume(self, count: int, _: float) -> list[Any]:
        if count > 1:
            return []
        step = self.steps.pop(0)
        if isinstance(step, list):
            return step
        step(self)
        return []

    def pause(self, _: list[TopicPartition]) -> None:
        pass

    def commit(self, offsets: list[TopicPartition], **_: Any) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        self.committed.update({each.partition: each.offset for each in offsets})

    def given(self, *partitions: int) -> None:
        self._on_assign(self, [TopicPartition("t", each) for each in partitions])

    def refuse(self, code: int) -> None:
        self.refusal = KafkaError(code)

    def taken(self, *partitions: int) -> None:
        self._on_revoke(self, [TopicPartition("t", each) for each in partitions])


Reads = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster({"t": {0: (0, 2), 1: (0, 1)}})
    monkeypatch.setattr(BrokerFlags, "connect", lambda _: made)
    monkeypatch.setattr(consume_member, "GROUP_POLL_SECONDS", 0.0)
    return made


@pytest.fixture
def reads(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Reads:
    def run(consumer: ScriptedConsumer, *flags: str) -> tuple[int, str, str]:
        @contextlib.contextmanager
        def made(**_: object) -> Iterator[ScriptedConsumer]:
            yield consumer

        monkeypatch.setattr(cluster, "consumer", made)
        code = main(["topic", "consume", "t", "-g", "g", *flags])
        return code, *capfd.readouterr()

    return run


def settled(cluster: FakeCluster, *others: tuple[str, int], ours: bool = True) -> None:
    members = [member(WE)] if ours else []
    cluster.add_group("g", ConsumerGroupState.STABLE, *members, member(OTHER, *others))


def test_what_is_given_is_read_and_committed(reads: Reads) -> None:
    consumer = ScriptedConsumer(
        [lambda it: it.given(0, 1), [record(0, 0), record(1, 0)], [record(0, 1)]]
    )
    assert reads(consumer) == (0, "0@0\n1@0\n0@1\n", "")
    assert consumer.committed == {0: 2, 1: 1}
    assert consumer.left


def test_what_is_taken_to_be_divided_anew_is_waited_for(reads: Reads) -> None:
    consumer = ScriptedConsumer(
        [
            lambda it: it.given(0, 1),
            [record(0, 0)],
            lambda it: it.taken(0, 1),
            [],
            lambda it: it.given(0),
            [record(0, 1)],
        ]
    )
    assert reads(consumer) == (0, "0@0\n0@1\n", "")
    assert consumer.committed == {0: 2}


def test_a_member_that_is_given_its_partitions_later_waits(
    cluster: FakeCluster, reads: Reads
) -> None:
    """A group that hands over one by one looks settled while partition 1 is nobody's."""
    settled(cluster, ("t", 0))
    consumer = ScriptedConsumer(
        [lambda it: it.given(), [], [], lambda it: it.given(1), [record(1, 0)]]
    )
    assert reads(consumer) == (0, "1@0\n", "")


@pytest.mark.parametrize(
    ("state", "members"),
    [
        (ConsumerGroupState.UNKNOWN, [member(WE), member(OTHER, *ALL)]),  # KIP-848: reconciling
        (ConsumerGroupState.PREPARING_REBALANCING, [member(WE), member(OTHER, *ALL)]),
        (ConsumerGroupState.STABLE, [member(OTHER, *ALL)]),  # we were put out, and join again
        (ConsumerGroupState.STABLE, [member(WE, ("t", 1)), member(OTHER, ("t", 0))]),
    ],
)
def test_a_group_that_has_not_settled_with_us_is_waited_for(
    cluster: FakeCluster, reads: Reads, state: ConsumerGroupState, members: list[Any]
) -> None:
    cluster.add_group("g", state, *members)
    consumer = ScriptedConsumer([lambda it: it.given(), [], lambda it: it.given(1), [end(1, 1)]])
    assert reads(consumer) == (0, "", "")


def test_where_others_read_all_there_is_nothing_to_come(cluster: FakeCluster, reads: Reads) -> None:
    settled(cluster, *ALL)
    assert reads(ScriptedConsumer([lambda it: it.given()])) == (0, "", SAYS_ALL)


def test_one_that_follows_says_so_once_and_waits(cluster: FakeCluster, reads: Reads) -> None:
    settled(cluster, *ALL)
    consumer = ScriptedConsumer(
        [lambda it: it.given(), [], [], lambda it: it.given(1), [record(1, 0)]]
    )
    told = reads(consumer, "--follow", "-n", "1")
    assert told == (0, "1@0\n", SAYS_ALL)


def test_more_that_is_given_to_one_who_has_some_may_be_nothing(
    cluster: FakeCluster, reads: Reads
) -> None:
    """A cooperative group tells what is new alone, even where nothing is."""
    settled(cluster, *ALL)
    consumer = ScriptedConsumer(
        [lambda it: it.given(0), [record(0, 0)], lambda it: it.given(), [record(0, 1)]]
    )
    assert reads(consumer) == (0, "0@0\n0@1\n", "")


def test_a_group_that_gives_nothing_is_told(cluster: FakeCluster, reads: Reads) -> None:
    settled(cluster, ("t", 0))
    cluster.timeout_seconds = 0.0
    code, out, err = reads(ScriptedConsumer([lambda it: it.given(), []]))
    assert (code, out) == (1, "")
    assert "the group assigned no partition within 0 s" in err


NOT_COMMITTED = "neve: the written records are not committed and will be read again: "


def test_what_cannot_be_committed_is_told(reads: Reads) -> None:
    consumer = ScriptedConsumer(
        [lambda it: it.given(1), lambda it: it.refuse(KafkaError._WAIT_COORD), [record(1, 0)]]
    )
    code, out, err = reads(consumer)
    assert (code, out) == (1, "1@0\n")
    assert err.startswith(NOT_COMMITTED)


@pytest.mark.parametrize("records_before", [0, 1])
def test_an_interrupted_write_is_reported_and_not_committed(
    reads: Reads, monkeypatch: pytest.MonkeyPatch, records_before: int
) -> None:
    """Where standard output is not buffered, a reader may see a record before it is counted."""
    write, writes = output.write_bytes, itertools.count()

    def interrupted(data: bytes) -> None:
        write(data)
        if data and next(writes) == records_before:
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "write_bytes", interrupted)
    messages = [[record(0, offset)] for offset in range(records_before + 1)]
    consumer = ScriptedConsumer([lambda it: it.given(0), *messages])
    code, _, err = reads(consumer, "--follow")
    assert code == 1
    assert err == f"{NOT_COMMITTED}the command was interrupted while it wrote them\n"
    assert consumer.committed == ({0: records_before} if records_before else {})


def test_one_that_follows_outlasts_a_group_that_has_forgotten_it(reads: Reads) -> None:
    consumer = ScriptedConsumer(
        [
            lambda it: it.given(1),
            [record(1, 0)],
            lambda it: it.refuse(KafkaError.UNKNOWN_MEMBER_ID),
            lambda it: it.taken(1),
            lambda it: setattr(it, "refusal", None),
            lambda it: it.given(1),
            [record(1, 0)],
        ]
    )
    code, out, err = reads(consumer, "--follow", "-n", "2")
    assert (code, out) == (0, "1@0\n1@0\n")
    assert err.startswith(NOT_COMMITTED)
    assert consumer.committed == {1: 1}


def test_it_commits_now_and_then(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_member, "COMMIT_EVERY_SECONDS", 0.0)
    seen: list[dict[int, int]] = []
    consumer = ScriptedConsumer(
        [
            lambda it: it.given(0),
            [record(0, 0)],
            lambda it: seen.append(dict(it.committed)),
            [record(0, 1)],
        ]
    )
    assert reads(consumer)[0] == 0
    assert seen == [{0: 1}]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_protocols_of_groups_take_what_a_member_is_made_with(protocol: str) -> None:
    """librdkafka refuses a client's own session where brokers set it."""
    flags = BrokerFlags("127.0.0.1:1", [f"group.protocol={protocol}"], 0.1)
    properties = consume_member._patience(flags.connect())
    with flags.connect().consumer(group__id="g", **properties):
        pass
    assert properties["socket__timeout__ms"] == 6000
