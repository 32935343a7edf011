"""kafka-python across the places where records lie, and across restarts of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.kafka_python_client import KafkaNetSocket, KafkaPythonClient
from conformance.lasting_broker import LastingBroker
from conformance.lasting_scenarios import LastingScenarios


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingBroker]:
    made = LastingBroker(tmp_path_factory.mktemp("lasting"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def all_sockets() -> Iterator[None]:
    """Closes what the client forgets: a socket whose connection was refused."""
    opened = []
    open_one = KafkaNetSocket.socket

    def opening(*arguments: Any) -> Any:
        opened.append(open_one(*arguments))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "socket", opening)
        yield
    for each in opened:
        each.close()


@pytest.fixture(scope="module")
def client(all_sockets: None, lasting: LastingBroker) -> Iterator[KafkaPythonClient]:
    made = KafkaPythonClient(lasting.bootstrap)
    yield made
    made.close()


class TestLasting(LastingScenarios):
    pass
