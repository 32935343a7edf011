"""A scripted store and the WAL stream on it, for every test of this folder."""

from __future__ import annotations

import pytest

from support.scripted_store import ScriptedStore
from support.wal_streams import WalStream


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def stream(store: ScriptedStore) -> WalStream:
    return WalStream(store)
