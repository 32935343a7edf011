"""KafkaJS across the places where records lie, and across restarts of the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.kafkajs_client import KafkaJsClient, start_kafkajs_client
from conformance.lasting_broker import LastingBroker
from conformance.lasting_scenarios import LastingScenarios

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingBroker]:
    made = LastingBroker(tmp_path_factory.mktemp("lasting"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(
    lasting: LastingBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaJsClient]:
    made = start_kafkajs_client(lasting.bootstrap, tmp_path_factory.mktemp("kafkajs") / "log")
    yield made
    made.close()


class TestLasting(LastingScenarios):
    pass
