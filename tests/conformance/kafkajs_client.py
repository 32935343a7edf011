"""KafkaJS, in a Node of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance import installs
from conformance.driver import DrivenClient, Driver


class KafkaJsClient(DrivenClient):
    eager = ("roundrobin",)
    cooperative = ()
    unknown_topic = "UNKNOWN_TOPIC_OR_PARTITION"
    too_large = "MESSAGE_TOO_LARGE"
    sends_null_headers = False
    long_waits = {"maxWaitTimeInMs": 20_000}  # noqa: RUF012
    small_fetches = {"maxBytes": 1_000, "maxBytesPerPartition": 1_000}  # noqa: RUF012
    frequent_looks = {"metadataMaxAge": 500}  # noqa: RUF012
    small_batches = {"send_bytes": 4_000}  # noqa: RUF012
    commits_by_itself = {"autoCommit": True}  # noqa: RUF012
    short_patience = {"retry": {"retries": 2}}  # noqa: RUF012

    def admin(self, name: str, argument: Any = None, **named: Any) -> Any:
        """A function of KafkaJS' admin client, by its own name, with its one argument."""
        return self.driver.call("admin", name=name, argument=named or argument)


def start_kafkajs_client(bootstrap: str, log: Path) -> KafkaJsClient:
    node = installs.command("node")
    modules = installs.kafkajs_modules()
    script = installs.HERE / "kafkajs" / "driver.js"
    return KafkaJsClient(Driver([node, script, bootstrap], log, NODE_PATH=str(modules)))
