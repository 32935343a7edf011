"""A scripted store for every test of this folder."""

from __future__ import annotations

import pytest

from support.scripted_store import ScriptedStore


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()
