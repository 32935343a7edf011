"""Bytes between brokers are counted once, at the end that opened the connection."""

from __future__ import annotations

from functools import partial

from neve.broker.broker import Broker
from neve.broker.metrics.peer_view import peer_view
from neve.serving.pages import scrape
from support.two_brokers import two_running_brokers

SECONDS = 10


def registration(broker: Broker, of: Broker) -> object:
    return broker.node.cluster.state.brokers[of.node.incarnation]


def traffic_of(one: Broker, two: Broker) -> tuple[int, int, int, int]:
    """What both sent and received as peers, each beside what broker 2 counted as a server."""
    peers = (one.peers.traffic, two.peers.traffic)
    return (
        sum(each.sent_bytes for each in peers),
        two.metrics.bytes_in,
        sum(each.received_bytes for each in peers),
        two.metrics.bytes_out,
    )


async def test_what_brokers_send_is_what_the_others_receive() -> None:
    async with two_running_brokers() as (one, two):
        for broker in (one, two):  # no ping but those of the test
            await broker.membership.close()
        before = traffic_of(one, two)
        for _ in range(3):
            await one.peers.ping(registration(one, two), SECONDS)
        # Asked whether broker 2 refuses connections, broker 2 pings itself.
        await one.peers.probe(registration(one, two), registration(one, two), SECONDS)
        sent, taken, received, answered = (
            after - start for after, start in zip(traffic_of(one, two), before, strict=True)
        )
        assert sent == taken > 0
        assert received == answered > 0
        shown = (await scrape([partial(peer_view, one.peers.traffic)])).decode()
        assert f"neve_peer_sent_bytes_total {one.peers.traffic.sent_bytes}" in shown
