"""Kafka's Java client, and Kafka's command-line tools, in one Java machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from conformance import installs
from conformance.driver import DrivenClient, Driver

# Short-lived: a quick start is worth more than quick code.
QUICK_MACHINE = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx384m",
    "-Dfile.encoding=UTF-8",
]

_TOOLS = "org.apache.kafka.tools"
MAIN_CLASSES = {
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-groups": f"{_TOOLS}.GroupsCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}


class Said(NamedTuple):
    """How a tool ended and what it wrote."""

    code: int
    out: str
    err: str


class JavaClient(DrivenClient):
    """Options have Kafka's names; _ stands for a dot in them."""

    eager = ("range", "roundrobin", "sticky")
    cooperative = ("cooperative-sticky",)
    unknown_topic = "UnknownTopicOrPartition"
    too_large = "RecordTooLarge"
    long_waits = {"fetch.max.wait.ms": 20_000}  # noqa: RUF012
    small_fetches = {"fetch.max.bytes": 1_000, "max.partition.fetch.bytes": 1_000}  # noqa: RUF012
    frequent_looks = {"metadata.max.age.ms": 500}  # noqa: RUF012
    small_batches = {"batch.size": 4_000}  # noqa: RUF012
    commits_by_itself = {"enable.auto.commit": True}  # noqa: RUF012
    short_patience = {"max.block.ms": 1_000}  # noqa: RUF012

    def tool(self, name: str, *arguments: str, given: str = "") -> Said:
        """Run a tool by its main class in the client's machine, with this as standard input."""
        said = self.driver.call("tool", name=name, arguments=arguments, input=given)
        return Said(said["code"], said["out"], said["err"])


def java_command(*arguments: str) -> list[str]:
    """A Java machine with Kafka's libraries and the driver, to run a main class."""
    java = installs.command("java")
    libraries = installs.java_libraries()
    classes = installs.java_classes(libraries)
    path = os.pathsep.join([str(classes), str(libraries / "*")])
    return [java, *QUICK_MACHINE, "-cp", path, *arguments]


def start_java_client(bootstrap: str, log: Path) -> JavaClient:
    return JavaClient(Driver(java_command("Driver", bootstrap), log))
