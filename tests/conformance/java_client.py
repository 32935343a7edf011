"""Kafka's Java client, and Kafka's command-line tools, in one Java machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from conformance import installs
from conformance.driver import DrivenClient, Driver

# Short-lived: a quick start is worth more than quick code.
_MACHINE = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx384m",
    "-Dfile.encoding=UTF-8",
]


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
    return [java, *_MACHINE, "-cp", path, *arguments]


def start_java_client(bootstrap: str, log: Path) -> JavaClient:
    return JavaClient(Driver(java_command("Driver", bootstrap), log))
