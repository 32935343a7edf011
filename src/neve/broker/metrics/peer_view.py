"""What brokers of a cluster send each other."""

from __future__ import annotations

from collections.abc import Iterator

from neve.broker.peers import PeerTraffic
from neve.serving.text import one


def peer_view(traffic: PeerTraffic) -> Iterator[str]:
    yield one("neve_peer_sent_bytes_total", traffic.sent_bytes)
    yield one("neve_peer_received_bytes_total", traffic.received_bytes)
