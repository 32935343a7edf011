"""How brokers know each other: a key pair for each process, a session for each connection.

A process makes an X25519 key pair when it starts, and its registration in the cluster log carries
the public key. Two processes therefore share a secret that no message carries. A connection begins
with a handshake, in which both ends choose a nonce. The secret and both nonces give the connection
a key of its own, and each frame in it carries a MAC under that key.

The MAC covers the whole frame, its direction, and the number of the request in its connection. So a
frame is valid once: in its place, on its connection, in its direction, between these two processes.
docs/decisions/broker-authentication.md says what that does and does not protect against.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.state import BrokerRegistration
from neve.errors import NeveError

KEY_BYTES = 32
NONCE_BYTES = 16
MAC_BYTES = 32
REFRESH_PAUSE_SECONDS = 1.0
"""How often messages of unknown senders may have the cluster log read, all together."""
REFRESH_BURST = 8
"""That many reads may come at once after a quiet time: brokers may start together."""
REFRESH_SECONDS_MAX = 2.0

_REQUEST, _RESPONSE = b"\x00", b"\x01"
_NUMBER = struct.Struct(">Q")
_PARTIES = struct.Struct(">qq")
_SIZE = struct.Struct(">i")
_CONTEXT = b"neve broker session 1\x00"


class PeerAuthenticationError(NeveError):
    """A message is not proven to be of the broker that it names. `cause` names the kind."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class KeyPair:
    """The key pair of one process. The private key never leaves it."""

    def __init__(self, private_key: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private_key)
        self.public_key = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> KeyPair:
        return cls(runtime.token(KEY_BYTES))

    def shared_secret(self, public_key: bytes) -> bytes:
        """Return the secret shared with the process of this key. Raises ValueError if it is bad."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(public_key))


class Session:
    """The frames of one connection after its handshake. One end seals what the other opens.

    Requests are answered one by one, and both ends count them. A frame is given with its length.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal_request(self, frame: bytes) -> bytes:
        """Return the next request with its MAC."""
        self._number += 1
        return self._sealed(_REQUEST, frame)

    def open_request(self, content: memoryview) -> memoryview:
        """Return the next request, received without its length, without its MAC."""
        self._number += 1
        return self._opened(_REQUEST, content)

    def seal_response(self, frame: bytes) -> bytes:
        """Return the response to the request that was opened last, with its MAC."""
        return self._sealed(_RESPONSE, frame)

    def open_response(self, content: memoryview) -> memoryview:
        """Return the response to the request that was sealed last, without its MAC."""
        return self._opened(_RESPONSE, content)

    def _sealed(self, direction: bytes, frame: bytes) -> bytes:
        content = frame[_SIZE.size :]
        size = _SIZE.pack(len(content) + MAC_BYTES)
        return b"".join((size, content, self._mac(direction, content)))

    def _opened(self, direction: bytes, content: memoryview) -> memoryview:
        body, mac = content[:-MAC_BYTES], content[-MAC_BYTES:]
        if not hmac.compare_digest(self._mac(direction, body), mac):
            raise PeerAuthenticationError("wrong MAC", "a message of a broker has a wrong MAC")
        return body

    def _mac(self, direction: bytes, content: bytes | memoryview) -> bytes:
        mac = hmac.new(self._key, direction, hashlib.sha256)
        mac.update(_NUMBER.pack(self._number))
        mac.update(content)
        return mac.digest()


class PeerAuthentication:
    """The sessions of one process with others, whose public keys the cluster log has."""

    def __init__(self, cluster: ClusterLog, incarnation: int, key_pair: KeyPair) -> None:
        self._cluster = cluster
        self._incarnation = incarnation
        self._key_pair = key_pair
        self._secrets: dict[int, bytes] = {}  # of live processes
        self._refreshing = asyncio.Lock()
        self._refreshes_begun = 0
        self._refreshes = float(REFRESH_BURST)  # that may begin, as of the time below
        self._refreshed_at = runtime.monotonic()

    def is_meant(self, cluster_id: str, incarnation: int) -> bool:
        """Whether a message of this cluster for this incarnation is meant for this process."""
        own = (self._cluster.state.cluster_id, self._incarnation)
        return (cluster_id, incarnation) == own

    def is_live(self, incarnation: int) -> bool:
        """Whether a process is live in the newest state that this one has read."""
        return self._live(incarnation) is not None

    def session_to(self, target: BrokerRegistration, own_nonce: bytes, nonce: bytes) -> Session:
        """Return the session of a connection that this process has opened."""
        _check_nonce(nonce)
        return self._session(
            target, sender=self._incarnation, target=target.incarnation, nonces=own_nonce + nonce
        )

    async def session_of(self, sender: int, nonce: bytes, own_nonce: bytes) -> Session:
        """Return the session of a connection that another process has opened.

        Reads the cluster log if that may have its registration by now. Raises
        PeerAuthenticationError if the process is not live.
        """
        _check_nonce(nonce)
        if sender >= self._cluster.view.position:  # an incarnation is the number of its record
            await self._refresh()
        broker = self._live(sender)
        if broker is None:
            raise PeerAuthenticationError(
                "unknown sender", f"a message names incarnation {sender}, which is not live"
            )
        return self._session(
            broker, sender=sender, target=self._incarnation, nonces=nonce + own_nonce
        )

    async def _refresh(self) -> None:
        """Read the cluster log, unless that was done too often: any client can cause this."""
        begun = self._refreshes_begun
        async with self._refreshing:
            # A read that began after the message came serves it too.
            if self._refreshes_begun > begun or not self._may_refresh():
                return
            self._refreshes_begun += 1
            with contextlib.suppress(NeveError, TimeoutError):
                async with runtime.deadline(REFRESH_SECONDS_MAX):
                    await self._cluster.refresh()

    def _may_refresh(self) -> bool:
        now = runtime.monotonic()
        more = (now - self._refreshed_at) / REFRESH_PAUSE_SECONDS
        self._refreshes, self._refreshed_at = min(REFRESH_BURST, self._refreshes + more), now
        if self._refreshes < 1:
            return False
        self._refreshes -= 1
        return True

    def _live(self, incarnation: int) -> BrokerRegistration | None:
        broker = self._cluster.state.brokers.get(incarnation)
        return broker if broker is not None and broker.live else None

    def _session(
        self, peer: BrokerRegistration, *, sender: int, target: int, nonces: bytes
    ) -> Session:
        context = _CONTEXT + _PARTIES.pack(sender, target) + self._cluster.state.cluster_id.encode()
        derived = HKDF(hashes.SHA256(), KEY_BYTES, salt=nonces, info=context)
        return Session(derived.derive(self._secret(peer)))

    def _secret(self, peer: BrokerRegistration) -> bytes:
        """Return the secret shared with a live process, computed once."""
        secret = self._secrets.get(peer.incarnation)
        if secret is None:
            try:
                secret = self._key_pair.shared_secret(peer.public_key)
            except ValueError as error:
                raise PeerAuthenticationError(
                    "bad public key",
                    f"incarnation {peer.incarnation} has registered no valid public key",
                ) from error
            self._secrets = {key: kept for key, kept in self._secrets.items() if self.is_live(key)}
            self._secrets[peer.incarnation] = secret
        return secret


def _check_nonce(nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise PeerAuthenticationError(
            "bad nonce", f"a handshake has a nonce of {len(nonce)} bytes, not {NONCE_BYTES}"
        )
