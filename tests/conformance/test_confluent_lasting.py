"""confluent-kafka across the places where records lie, and across restarts of the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.confluent_client import ConfluentClient
from conformance.lasting_broker import LastingBroker
from conformance.lasting_scenarios import LastingScenarios


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingBroker]:
    made = LastingBroker(tmp_path_factory.mktemp("lasting"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(lasting: LastingBroker) -> Iterator[ConfluentClient]:
    made = ConfluentClient(lasting.bootstrap)
    yield made
    made.close()


class TestLasting(LastingScenarios):
    pass
