"""`neve cluster abandon-wal`: give up a WAL store, and print what is lost with it."""

from __future__ import annotations

from typing import Any

from neve.bucket.abandon import Abandonment, PartitionLoss, abandon_wal, plan_abandonment
from neve.cli import output
from neve.cli.output import reading_settings
from neve.log.wal.stores import connect_bucket
from neve.settings import Settings


async def abandon(
    store: str | None,
    settings: Settings,
    name: str,
    *,
    accept_loss: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Give up a WAL store, or only list what would be lost. Returns the exit code."""
    url = settings.broker.store if store is None else store
    with reading_settings():
        stack = connect_bucket(url, settings)
    try:
        with output.naming(url):
            if dry_run:
                found = await plan_abandonment(stack.store, name)
            else:
                found = await abandon_wal(stack.store, name, accept_loss=accept_loss)
    finally:
        await stack.close()
    if as_json:
        output.write_json(document(found))
    else:
        print_abandonment(found)
    return 0


def document(found: Abandonment) -> dict[str, Any]:
    """Return what is lost, for JSON.

    `end` is null where the end of the loss is not known; the log continues at `continues_at` then.
    """
    return {
        "store_name": found.store.name,
        "store_url": found.store.url,
        "abandoned": found.done,
        "streams": list(found.streams),
        "live_nodes": list(found.live_nodes),
        "partitions": [
            {
                "topic": loss.topic,
                "partition": loss.partition,
                "lost": [
                    *({"first": first, "end": end} for first, end in loss.ranges),
                    *_open_loss(loss),
                ],
            }
            for loss in found.losses
        ],
    }


def _open_loss(loss: PartitionLoss) -> list[dict[str, int | None]]:
    if loss.open_from is None:
        return []
    return [{"first": loss.open_from, "end": None, "continues_at": loss.continues_at}]


def print_abandonment(found: Abandonment) -> None:
    """Print what is lost, partition by partition."""
    said = "is abandoned" if found.done else "would be abandoned"
    print(
        f"WAL store {found.store.name!r} ({found.store.url}) {said}: {len(found.streams)} streams, "
        f"{len(found.losses)} partitions"
    )
    for node_id in found.live_nodes:
        print(f"node {node_id} writes there: it is ended and needs another wal.store")
    if not found.losses:
        return
    print()
    output.print_table(
        ("topic", "partition", "lost"),
        [(loss.topic, loss.partition, _lost(loss)) for loss in found.losses],
    )


def _lost(loss: PartitionLoss) -> str:
    rows = [f"offsets {first} to {end - 1}" for first, end in loss.ranges]
    if loss.open_from is not None:
        rows.append(
            f"from offset {loss.open_from} on, end not known; the log continues at "
            f"{loss.continues_at}"
        )
    return ", ".join(rows) or "nothing"
