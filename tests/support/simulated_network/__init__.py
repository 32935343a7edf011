"""A network in memory under the virtual event loop: hosts, links, and their faults.

Whole brokers and clients run on it, with asyncio's own transports and streams; a seed replays
every packet. `simulate` runs a scenario; `Network` and `Host` have the faults.
"""

from support.simulated_network.host import Host, KilledError
from support.simulated_network.network import Link, Network, simulate
from support.simulated_network.store import RemoteStore

__all__ = ["Host", "KilledError", "Link", "Network", "RemoteStore", "simulate"]
