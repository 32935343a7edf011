"""The messages that brokers send each other, in Kafka's framing on the broker port.

Clients do not see them: ApiVersions does not list them. Their keys are far above Kafka's.
"""

from neve.protocol.compiler import AnyApi
from neve.protocol.peers.notify import NOTIFY
from neve.protocol.peers.ping import PING
from neve.protocol.peers.probe import PROBE
from neve.protocol.peers.release import RELEASE

PEER_APIS: tuple[AnyApi, ...] = (PING, PROBE, RELEASE, NOTIFY)
