"""The type stubs of Kafka's messages are what their descriptions give."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import message_stubs
from neve.protocol.messages import APIS
from neve.protocol.peers import PEER_APIS


@pytest.mark.parametrize("module", message_stubs.modules(), ids=lambda module: module.stem)
def test_the_stub_of_a_message_is_up_to_date(module: Path) -> None:
    written = module.with_suffix(".pyi").read_text(encoding="utf-8")
    assert written == message_stubs.stub(module), "run `make protocol`"


@pytest.mark.parametrize("module", message_stubs.modules(), ids=lambda module: module.stem)
def test_a_module_exports_the_classes_that_its_stub_declares(module: Path) -> None:
    loaded = importlib.import_module(f"neve.protocol.{module.parent.name}.{module.stem}")
    api = getattr(loaded, module.stem.upper())
    assert api is APIS.get(api.key) or api in PEER_APIS
    assert getattr(loaded, f"{api.name}Request") is api.Request
    assert getattr(loaded, f"{api.name}Response") is api.Response


def test_no_stub_is_left_without_its_module() -> None:
    stubs = {stub.stem for folder in message_stubs.FOLDERS for stub in folder.glob("*.pyi")}
    assert stubs == {module.stem for module in message_stubs.modules()}
