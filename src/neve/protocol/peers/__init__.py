"""The messages that brokers send each other, in Kafka's framing on the broker port.

Clients do not see them: ApiVersions does not list them. Their keys are far above Kafka's. Each
connection begins with a handshake, and every other message in it is followed by a MAC
(`neve.cluster.peer_auth`), which says between which two processes it is.
"""

from neve.protocol.compiler import AnyApi
from neve.protocol.peers.handshake import HANDSHAKE
from neve.protocol.peers.notify import NOTIFY
from neve.protocol.peers.ping import PING
from neve.protocol.peers.probe import PROBE
from neve.protocol.peers.pull import PULL
from neve.protocol.peers.release import RELEASE

PEER_APIS: tuple[AnyApi, ...] = (HANDSHAKE, PING, PROBE, RELEASE, PULL, NOTIFY)
