"""docs/users/clients.md names the clients in the versions that are really tested."""

from __future__ import annotations

import json
import re

from aiokafka import AIOKafkaProducer

from conformance.installs import HERE
from conformance.java_client import MAIN_CLASSES
from conformance.kafka_python_client import KafkaProducer

ROOT = HERE.parent.parent
PAGE = (ROOT / "docs" / "users" / "clients.md").read_text(encoding="utf-8")


def told() -> dict[str, str]:
    """The version of each client in the table."""
    return dict(re.findall(r"^\| ([\w' -]+?)(?: \(\w+\))? \| ([\d.]+) \|", PAGE, re.MULTILINE))


def test_the_python_clients() -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", constraints, re.MULTILINE))
    names = ("confluent-kafka", "aiokafka", "kafka-python")
    assert {name: told()[name] for name in names} == {name: pins[name] for name in names}


def test_kafkajs() -> None:
    package = json.loads((HERE / "kafkajs" / "package.json").read_text())
    assert told()["KafkaJS"] == package["dependencies"]["kafkajs"]


def test_java() -> None:
    pom = (HERE / "java" / "pom.xml").read_text()
    versions = set(re.findall(r"<artifactId>kafka[\w.-]+</artifactId>\s*<version>(\S+)<", pom))
    assert versions == {told()["kafka-clients"]} == {told()["Kafka's command-line tools"]}


def test_every_tool_is_named() -> None:
    assert [name for name in MAIN_CLASSES if f"`{name}" not in PAGE] == []


async def test_which_clients_wait_for_the_store_by_default() -> None:
    """What is acknowledged from memory is lost with the process, so the page names those."""
    aiokafka = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    assert (aiokafka._sender._acks, KafkaProducer.DEFAULT_CONFIG["acks"]) == (1, -1)
    await aiokafka.stop()
    advice = PAGE[PAGE.index("**Acknowledgements.**") : PAGE.index("## First steps")]
    default_all, default_one = advice.split("acks=1 is the default of")
    assert "kafka-python since 3" in default_all
    assert default_one.startswith(" aiokafka, of older kafka-python and of sarama")
    assert "lost if the process ends" in default_all
    assert "metadata.recovery.strategy=rebootstrap" in advice
