"""Opening a store by URL, and the standard wrappers around it.

| URL | store |
| --- | --- |
| `memory://` | a new bucket in this process; `memory://name` shares one by name |
| `file:///abs/path`, `file://./relative`, a plain path | a local folder |
| `s3://bucket/prefix`, `gs://…`, `az://container/…` | a bucket, or a prefix of one |

The stack, from the store outwards, and why in this order:

- timeout: below the gate, so that a call that hangs releases its slot, and waiting for a slot is
  not mistaken for a slow store;
- meter: sees every request that is sent, with the time that the store took;
- gate: limits requests, including retries and hedges;
- hedge: above the gate, so that the second request needs a free slot; below retry, so that a pause
  between retries does not trigger a hedge;
- retry: outermost; it holds no slot during its pauses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from neve.errors import InvalidError, NeveError
from neve.settings import StoreSettings
from neve.settings.masking import masked
from neve.store.folder import FolderStore
from neve.store.gate import Gate
from neve.store.hedge import Hedge
from neve.store.key import checked_key
from neve.store.latency import DelayedGets, Timeout
from neve.store.memory import MemoryStore, named_bucket
from neve.store.meter import Meter
from neve.store.port import Store
from neve.store.retry import Retry, RetryBudget

Scheme: TypeAlias = Literal["memory", "file", "s3", "gs", "az"]
SCHEMES: tuple[Scheme, ...] = ("memory", "file", "s3", "gs", "az")
# Directory buckets of S3 Express One Zone are recognised by their name.
EXPRESS_SUFFIX = "--x-s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


@dataclass(frozen=True)
class Location:
    """A parsed store URL. `name` is the name of the bucket, container or shared memory."""

    scheme: Scheme
    name: str = ""
    prefix: str = ""
    folder: Path = Path()

    @property
    def is_local(self) -> bool:
        """Whether the store is in memory or a folder, where a PUT costs no money."""
        return self.scheme in {"memory", "file"}

    @property
    def is_in_one_zone(self) -> bool:
        return self.scheme == "s3" and self.name.endswith(EXPRESS_SUFFIX)


def parse(url: str) -> Location:
    """Parse a store URL. Raises InvalidError with the reason."""
    if not url or "\0" in url:
        raise InvalidError(
            f"{masked(url)!r} is not the URL of a store: use a path, or s3://bucket/prefix"
        )
    scheme, separator, rest = url.partition("://")
    if not separator:
        if re.match(r"(memory|file|s3|gs|az):", url):
            whole = masked(url.replace(":", "://", 1))
            raise InvalidError(f"the URL of the store has no slashes: write {whole}")
        return Location("file", folder=Path(url))
    if scheme not in SCHEMES:
        raise InvalidError(
            f"{masked(url)!r}: unknown scheme {scheme}://; use one of "
            + ", ".join(f"{known}://" for known in SCHEMES)
        )
    if scheme == "file":
        return Location("file", folder=_folder(url, unquote(rest)))
    return _named(url, cast(Scheme, scheme))


def refuse_one_zone(url: str, durability: str) -> None:
    """Raise InvalidError for a store in one zone, unless `wal.durability` is `zone`."""
    if durability != "zone" and parse(url).is_in_one_zone:
        raise InvalidError(
            f"{url} is an S3 Express (directory) bucket, which is in one availability zone: the "
            "loss of the zone loses all records in it; use a regional bucket, or accept this with "
            "--set wal.durability=zone"
        )


def open_store(url: str, settings: StoreSettings) -> Store:
    """Return the store at this URL, without wrappers. Sends no request."""
    where = parse(url)
    if where.scheme == "memory":
        return MemoryStore(named_bucket(where.name) if where.name else None)
    if where.scheme == "file":
        return FolderStore(where.folder, fsync=settings.folder_fsync)
    # Importing obstore takes a while, and a folder does not need it.
    from neve.store import cloud

    openers = {"s3": cloud.open_s3, "gs": cloud.open_gcs, "az": cloud.open_azure}
    try:
        return openers[where.scheme](where.name, where.prefix, settings)
    except NeveError:
        raise
    except Exception as error:
        reason = masked(" ".join(str(error).split("\n\nDebug source", 1)[0].split()))
        raise InvalidError(f"cannot open {masked(url)!r}: {reason}") from error


@dataclass(frozen=True)
class Stack:
    """A store with the standard wrappers."""

    store: Store
    """For all ordinary calls."""
    prefetch: Store
    """For calls that raise NoFreeSlotError instead of delaying others."""
    meter: Meter
    gate: Gate
    hedge: Hedge
    retry: Retry

    async def close(self) -> None:
        await self.store.close()


def stack(raw: Store, settings: StoreSettings) -> Stack:
    """Put the standard wrappers around a store."""
    if settings.get_delay_ms:
        raw = DelayedGets(raw, settings.get_delay_ms)
    meter = Meter(Timeout(raw, settings.request_timeout_ms), settings.slow_ms / 1000)
    gate = Gate(meter, settings.concurrency_max)
    hedge = Hedge(gate, gate.prefetching(), settings)
    budget = RetryBudget(settings.retry_budget_per_second)
    retry = Retry(hedge, settings, budget)
    prefetch = Retry(gate.prefetching(), settings, budget)
    return Stack(retry, prefetch, meter, gate, hedge, retry)


def connect(url: str, settings: StoreSettings) -> Stack:
    """Open the store at this URL with the standard wrappers."""
    raw = open_store(url, settings)
    if parse(url).is_local:
        # A second call would wait for the same disk, and every call would need another task.
        settings = replace(settings, hedge_enabled=False)
    return stack(raw, settings)


def _folder(url: str, rest: str) -> Path:
    if not rest.startswith(("/", "./", "../")) and rest not in {".", ".."}:
        raise InvalidError(
            f"{masked(url)!r} has a host: use file:///absolute/path or file://./relative/path"
        )
    return Path(rest)


def _named(url: str, scheme: Scheme) -> Location:
    try:
        parts = urlsplit(url)
        plain = parts.username is None and parts.port is None
    except ValueError as error:
        raise InvalidError(f"{masked(url)!r} is not a URL") from error
    if not plain or parts.query or parts.fragment:
        raise InvalidError(
            f"{masked(url)!r}: only a name and a prefix are allowed; credentials come from the "
            "environment, other options from the settings"
        )
    prefix = parts.path.strip("/")
    if scheme == "memory":
        if prefix:
            raise InvalidError(f"{masked(url)!r}: a bucket in memory cannot have a prefix")
        return Location("memory", parts.netloc)
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidError(f"{masked(url)!r}: {parts.netloc!r} is not a valid bucket name")
    return Location(scheme, parts.netloc, checked_key(prefix) if prefix else "")
