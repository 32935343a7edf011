"""Names and addresses that no broker could be asked with: one line, and no client is made."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from neve.cli import main
from neve.cli.connection import BrokerFlags, explained
from neve.cli.name_validation import NAME_BYTES_MAX

NOT_UTF8 = "\udcff"
LONG = "a" * (NAME_BYTES_MAX + 1)


@pytest.fixture(autouse=True)
def _no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: BrokerFlags) -> None:
        raise AssertionError("a client would be made")

    monkeypatch.setattr("neve.cli.connection.Connection", connect)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("topic", "create", "a", ""), "topic name is empty"),
        (("topic", "describe", ""), "topic name is empty"),
        (("topic", "produce", ""), "topic name is empty"),
        (("topic", "consume", "t", "-g", ""), "group name is empty"),
        (("topic", "consume", "t", "-g", LONG), f"the maximum is {NAME_BYTES_MAX}"),
        (("topic", "describe", LONG), f"the maximum is {NAME_BYTES_MAX}"),
        (("topic", "create", NOT_UTF8), "is not UTF-8"),
        (("topic", "produce", "t", "-k", NOT_UTF8), "is not UTF-8"),
        (("topic", "create", "t", "-p", "99999999999"), "must be from 1 to 100000"),
        (("topic", "create", "t", "-p", "100001"), "must be from 1 to 100000"),
        (("topic", "create", "t", "-r", "10001"), "must be from 1 to 10000"),
        (("topic", "alter", "t", "-p", "99999999999"), "must be from 1 to 100000"),
        (("group", "describe", "g", ""), "group name is empty"),
        (("group", "describe", NOT_UTF8), "is not UTF-8"),
        (("group", "delete", ""), "group name is empty"),
        (("group", "seek", "", "--to", "start"), "group name is empty"),
        (("topic", "list", "--bootstrap", ""), "must be HOST:PORT"),
        (("topic", "list", "--bootstrap", " , "), "must be HOST:PORT"),
        (("topic", "list", "--bootstrap", "a:9092,b:99999"), "a port from 1 to 65535"),
        (("group", "list", "--bootstrap", "a:0"), "a port from 1 to 65535"),
    ],
)
def test_what_no_client_takes_is_a_usage_error(
    argv: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("neve: ")
    assert told in line


def test_a_name_that_a_broker_refuses_is_told_with_the_rule_or_its_own_reason() -> None:
    refused = KafkaError(KafkaError.TOPIC_EXCEPTION)
    assert "letters, digits" in str(explained(refused, "topic a/b"))
    reasoned = KafkaError(KafkaError.TOPIC_EXCEPTION, "it is ours")
    assert str(explained(reasoned, "topic a/b")) == "topic a/b: it is ours"
