"""Releases whose record the store takes badly. A stopped partition must not stay stopped."""

from __future__ import annotations

import pytest

from neve.cluster.node import Node
from neve.errors import ConflictError, DeniedError, StoreFailedError, UnavailableError
from neve.log.keys import cluster_log
from support.node_world import send, small_settings, started, topic_of, values_of
from support.scripted_store import ScriptedStore, in_simulation, refuse

KEYS = cluster_log()
FAILURES = (ConflictError, DeniedError, StoreFailedError, UnavailableError)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("lands", [False, True])
def test_a_release_is_decided_whatever_the_store_says(
    failure: type[Exception], lands: bool
) -> None:
    @in_simulation
    async def released() -> None:
        store = ScriptedStore()
        old = await started(store, partitions=2)
        await send(old, ["a"], 0)
        new = await Node.start(store, small_settings(), node_id=2)
        number = KEYS.number(new.cluster.view.position)
        store.when("create", number, refuse(UnavailableError))
        store.when("create", number, refuse(failure, after=lands))
        row = (topic_of(old).topic_id, 0)
        assert await old.releases.release({row: new.incarnation}) == {row}
        await new.cluster.refresh()
        assert await new.takeover.lead_unled([row]) == {}
        assert await send(new, ["b"], 0) == 1
        assert await values_of(store, 0) == ["a", "b"]
        await new.abort()
        await old.abort()

    released()
