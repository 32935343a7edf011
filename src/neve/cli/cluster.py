"""`neve cluster …`: the brokers of a bucket, through the cluster log in the bucket itself.

The commands need no running broker. A change is made once its record is in the cluster log; brokers
act on it within moments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import output
from neve.cli.output import DEFAULT_FLAGS, SettingsFlags, UsageError, reading_settings
from neve.settings import Settings

if TYPE_CHECKING:
    from neve.cluster.log import ClusterLog
    from neve.cluster.state import BrokerRegistration, ClusterState

app = App(name="cluster", help="Show the brokers of a bucket; drain, balance and remove brokers.")

StoreFlag = Annotated[
    str | None, Parameter(help="The bucket: a URL or a folder. Default: ./neve-data.")
]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]
NodeArgument = Annotated[int, Parameter(help="The node id of a broker.")]
POLL_SECONDS = 0.5


@app.command
def status(
    *, store: StoreFlag = None, json: JsonFlag = False, settings: SettingsFlags = DEFAULT_FLAGS
) -> int:
    """Show every broker: its node id, address, rack, feature level, state and led partitions.

    Exit code 1 if a partition has no leader.
    """
    return runtime.run(_status(store, settings.load(), as_json=json))


@app.command
def drain(
    node_id: NodeArgument,
    /,
    *,
    wait: Annotated[float, Parameter(help="Seconds to wait until it leads nothing.")] = 60.0,
    store: StoreFlag = None,
    json: JsonFlag = False,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Move all partitions of a broker to the others, and give it no new ones.

    The broker goes on serving its clients. It stays drained when it is started again, until `neve
    cluster undrain`. Exit code 1 if it still leads partitions after `--wait`.
    """
    work = _drain(store, settings.load(), node_id, wait_seconds=wait, as_json=json)
    return runtime.run(work)


@app.command
def undrain(
    node_id: NodeArgument,
    /,
    *,
    store: StoreFlag = None,
    json: JsonFlag = False,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Let a drained broker lead partitions again."""
    return runtime.run(_undrain(store, settings.load(), node_id, as_json=json))


@app.command
def rebalance(
    *,
    wait: Annotated[
        float, Parameter(help="Seconds to wait until every broker leads what it should.")
    ] = 60.0,
    store: StoreFlag = None,
    json: JsonFlag = False,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Let every broker take over now what it should lead.

    Brokers do so by themselves once no broker has come or gone for `cluster.rebalance.delay.ms`.
    Exit code 1 if partitions are still to be moved after `--wait`.
    """
    return runtime.run(_rebalance(store, settings.load(), wait_seconds=wait, as_json=json))


@app.command
def remove(
    node_id: NodeArgument,
    /,
    *,
    force: Annotated[
        bool,
        Parameter(negative="", help="Declare a broker dead that the others still take for live."),
    ] = False,
    store: StoreFlag = None,
    json: JsonFlag = False,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Forget a broker that has ended and is not coming back, with all that was set for it.

    A live broker is refused: stop it first. With `--force` it is declared dead without waiting for
    the others to notice, and its partitions move to them. A broker that is running all the same is
    fenced: it loses no record, and joins again by itself.
    """
    work = _remove(store, settings.load(), node_id, force=force, as_json=json)
    return runtime.run(work)


@app.command
def abandon_wal(
    *,
    store_name: Annotated[str, Parameter(help="The name of the WAL store, as in wal.store.")],
    accept_loss: Annotated[
        bool, Parameter(negative="", help="Confirm that what lies only there is lost for ever.")
    ] = False,
    dry_run: Annotated[
        bool, Parameter(negative="", help="List what would be lost. Change nothing.")
    ] = False,
    store: StoreFlag = None,
    json: JsonFlag = False,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Give up a WAL store that is gone for good, so that its partitions are available again.

    Lists for each partition which records are lost: those that lay in that store and in no segment.
    Brokers that write there are ended, and need another wal.store to start again.
    """
    from neve.cli.abandon_wal import abandon

    work = abandon(
        store, settings.load(), store_name, accept_loss=accept_loss, dry_run=dry_run, as_json=json
    )
    return runtime.run(work)


@app.command
def demo() -> int:
    """Show three brokers that share a bucket: failover, draining, balancing."""
    from neve.cli.demo_cluster import demo_cluster

    return demo_cluster()


@asynccontextmanager
async def _cluster(store: str | None, settings: Settings) -> AsyncIterator[ClusterLog]:
    from neve.cluster.log import ClusterLog
    from neve.log.wal.stores import connect_bucket

    url = settings.broker.store if store is None else store
    with reading_settings():
        stack = connect_bucket(url, settings)
    try:
        cluster = ClusterLog(stack.store, settings.cluster)
        with output.naming(url):
            await cluster.must_exist()
        yield cluster
    finally:
        await stack.close()


async def _status(store: str | None, settings: Settings, *, as_json: bool) -> int:
    async with _cluster(store, settings) as cluster:
        found = _document(cluster.state)
    if as_json:
        output.write_json(found)
    else:
        _print(found)
    return 1 if found["partitions_without_leader"] else 0


async def _drain(
    store: str | None, settings: Settings, node_id: int, *, wait_seconds: float, as_json: bool
) -> int:
    async with _cluster(store, settings) as cluster:
        _check_known(cluster.state, node_id)
        await cluster.set_draining(node_id, draining=True)
        others = [row for row in _live(cluster.state) if row.node_id not in cluster.state.draining]
        if not others:
            output.complain(
                "every live broker is draining, so none can take over: start another broker, or "
                "undrain one"
            )
        total = left = _led_by_node(cluster.state)[node_id]
        ends_at = runtime.monotonic() + wait_seconds
        with output.progress("partitions moved", hidden=as_json) as bar:
            while left and others and runtime.monotonic() < ends_at:
                await runtime.sleep(POLL_SECONDS)
                left = _led_by_node(await cluster.refresh())[node_id]
                bar.show(total - left, total)
    if as_json:
        output.write_json({"node_id": node_id, "draining": True, "partitions_left": left})
    elif left:
        output.complain(f"node {node_id} still leads {left} partitions; they go on moving")
    else:
        print(f"node {node_id} is drained: it leads nothing and can be stopped")
    return 1 if left else 0


async def _undrain(store: str | None, settings: Settings, node_id: int, *, as_json: bool) -> int:
    async with _cluster(store, settings) as cluster:
        _check_known(cluster.state, node_id)
        await cluster.set_draining(node_id, draining=False)
    if as_json:
        output.write_json({"node_id": node_id, "draining": False})
    else:
        print(f"node {node_id} may lead partitions again")
    return 0


async def _rebalance(
    store: str | None, settings: Settings, *, wait_seconds: float, as_json: bool
) -> int:
    async with _cluster(store, settings) as cluster:
        if not _live(cluster.state):
            output.complain("no broker is live: partitions move when brokers run")
        total = left = _partitions_to_move(cluster.state)
        await cluster.rebalance()
        ends_at = runtime.monotonic() + wait_seconds
        with output.progress("partitions moved", hidden=as_json) as bar:
            while left and runtime.monotonic() < ends_at:
                await runtime.sleep(POLL_SECONDS)
                left = _partitions_to_move(await cluster.refresh())
                total = max(total, left)
                bar.show(total - left, total)
    if as_json:
        output.write_json({"partitions_moved": total - left, "partitions_left": left})
    elif left:
        output.complain(
            f"{left} partitions are not yet led where they should be; they go on moving"
        )
    else:
        print(f"every broker leads what it should: {total} partitions were moved")
    return 1 if left else 0


async def _remove(
    store: str | None, settings: Settings, node_id: int, *, force: bool, as_json: bool
) -> int:
    from neve.cluster.log import NoNodeError

    async with _cluster(store, settings) as cluster:
        _check_known(cluster.state, node_id)
        live = [row for row in _live(cluster.state) if row.node_id == node_id]
        if live and not force:
            raise UsageError(
                f"node {node_id} is live: stop it first, or declare it dead with --force"
            )
        for row in live:
            await cluster.expire(row.incarnation)
        with suppress(NoNodeError):  # nothing has referred to it since it has ended
            await cluster.forget_node(node_id)
    if as_json:
        output.write_json({"node_id": node_id, "was_live": bool(live)})
    else:
        print(f"node {node_id} is removed" + (" and was declared dead" if live else ""))
    return 0


def _live(state: ClusterState) -> list[BrokerRegistration]:
    return [row for row in state.brokers.values() if row.live]


def _check_known(state: ClusterState, node_id: int) -> None:
    known = {row.node_id for row in state.brokers.values() if not row.forgotten}
    known.update(state.draining)
    if node_id not in known:
        raise UsageError(
            f"node {node_id} is not in this cluster; its nodes: "
            + (", ".join(map(str, sorted(known))) or "none")
        )


def _partitions_to_move(state: ClusterState) -> int:
    """How many partitions another broker leads than the one that should."""
    from neve.cluster.balance import target_leaders

    return sum(
        leader != state.topics[topic_id].partitions[number].leader
        for (topic_id, number), leader in target_leaders(state).items()
    )


def _led_by_node(state: ClusterState) -> Counter[int]:
    counts: Counter[int] = Counter()
    for topic in state.topics.values():
        for partition in topic.partitions:
            owner = state.brokers.get(partition.leader)
            if owner is not None:
                counts[owner.node_id] += 1
    return counts


def _document(state: ClusterState) -> dict[str, Any]:
    led = _led_by_node(state)
    rows = (row for _, row in sorted(state.brokers.items()) if not row.forgotten)
    newest = {row.node_id: row for row in rows}
    return {
        "cluster_id": state.cluster_id,
        "feature_level": state.feature_level,
        "brokers": [
            {
                "node_id": node_id,
                "incarnation": row.incarnation,
                "address": f"{row.host}:{row.port}" if row.port else None,
                "rack": row.rack or None,
                "level": row.level,
                "state": _state_of(state, row),
                "partitions": led[node_id],
            }
            for node_id, row in sorted(newest.items())
        ],
        "topics": len(state.topics),
        "partitions": state.partition_count,
        "partitions_without_leader": state.partition_count - sum(led.values()),
        "partitions_to_move": _partitions_to_move(state),
    }


def _state_of(state: ClusterState, row: BrokerRegistration) -> str:
    if not row.live:
        return "ended"
    return "draining" if row.node_id in state.draining else "live"


def _print(found: dict[str, Any]) -> None:
    print(
        f"cluster {found['cluster_id']}, feature level {found['feature_level']}: "
        f"{found['topics']} topics, {found['partitions']} partitions"
    )
    print()
    output.print_table(
        ("node", "incarnation", "address", "rack", "level", "state", "partitions"),
        [
            (
                row["node_id"],
                row["incarnation"],
                row["address"] or "-",
                row["rack"] or "-",
                row["level"],
                row["state"],
                row["partitions"],
            )
            for row in found["brokers"]
        ],
    )
    if found["partitions_to_move"]:
        print()
        print(f"{found['partitions_to_move']} partitions are not led where they should be")
    if found["partitions_without_leader"]:
        print()
        output.complain(f"{found['partitions_without_leader']} partitions have no leader")
