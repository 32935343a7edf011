"""The probe: tests whether a store keeps the rules that Neve depends on.

It writes a few small objects under its own prefix, checks each rule, and deletes the objects. Neve
rejects a store that breaks a rule, because it could not keep its promises there. The probe works
through all wrappers: if the response to a create was lost, it judges by what it reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from neve import runtime
from neve.errors import (
    ConflictError,
    ExistsError,
    NeveError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")

RACERS = 16
CONFLICT_RETRIES_MAX = 20
CONFLICT_PAUSE_SECONDS = 0.05


class BrokenRuleError(NeveError):
    """The store breaks a rule that Neve depends on. It must not be used."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(
            f"the store breaks the rule {rule!r}: {detail}; Neve would lose records on it, "
            "so use another store"
        )
        self.rule = rule
        self.detail = detail


@dataclass(frozen=True)
class RuleReport:
    """The result of one rule's check."""

    rule: str
    says: str
    ok: bool
    detail: str


class _Broken(Exception):  # noqa: N818 (never leaves this module)
    """The store breaks the rule; the text is the detail."""


class _Noting(Wrapper):
    """Remembers the written keys, for their deletion."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.written: dict[str, None] = {}

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation in {"put", "create"}:
            self.written[call.key] = None
        return await work()


Check = Callable[[Store, str], Awaitable[None]]


async def inspect(store: Store) -> list[RuleReport]:
    """Check every rule and return the results. Raises only if the store cannot be reached."""
    prefix = f"probe/{runtime.token(8).hex()}-"
    reports: list[RuleReport] = []
    noting = _Noting(store)
    try:
        for rule, (says, check) in RULES.items():
            detail = "kept"
            try:
                await check(noting, f"{prefix}{rule}-")
            except _Broken as broken:
                detail = str(broken)
            reports.append(RuleReport(rule, says, detail == "kept", detail))
    finally:
        # Not by listing: the store may list its keys late.
        for key in noting.written:
            with suppress(StoreError):
                await store.delete(key)
    return reports


async def probe(store: Store) -> list[RuleReport]:
    """Check every rule. Raises BrokenRuleError for the first broken one."""
    reports = await inspect(store)
    for report in reports:
        if not report.ok:
            raise BrokenRuleError(report.rule, report.detail)
    return reports


async def _sequential_create(store: Store, prefix: str) -> None:
    key = f"{prefix}key"
    first, second = b"first", b"second"
    if not await _created(store, key, first):
        await _expect(store, key, first, "a create of a new key was refused, and left")
    if await _created(store, key, second):
        raise _Broken("a second create of the same key was not refused")
    await _expect(store, key, first, "after a refused create the key held")


async def _racing_create(store: Store, prefix: str) -> None:
    key = f"{prefix}key"
    bodies = [b"racer %02d" % racer for racer in range(RACERS)]
    won = await runtime.gather(*(_created(store, key, body) for body in bodies))
    winners = [body for body, has_won in zip(bodies, won, strict=True) if has_won]
    held = await _read(store, key)
    if len(winners) > 1:
        raise _Broken(f"{len(winners)} of {RACERS} racing creates of one key succeeded")
    if held not in (winners or bodies):
        raise _Broken(
            f"the winner of {RACERS} racing creates wrote {winners}, the key held {held!r}"
        )


async def _read_after_write(store: Store, prefix: str) -> None:
    key = f"{prefix}key"
    # Read before it is written: a server or proxy may cache the absence.
    await _expect(store, key, None, "a key never written held")
    await _created(store, key, b"created")
    await _expect(store, key, b"created", "right after a create the key held")
    for body in (b"put once", b"put again"):
        await store.put(key, body)
        await _expect(store, key, body, f"right after a put of {body!r} the key held")


async def _list_after_write(store: Store, prefix: str) -> None:
    keys: list[str] = []
    await _expect_listed(store, prefix, keys, "before anything was written")
    for number in range(3):
        keys.append(f"{prefix}{number:020d}")
        await _created(store, keys[-1], b"listed")
        await _expect_listed(store, prefix, keys, "right after a create")
    above = [row.key for row in await store.list(prefix, keys[0])]
    if above != keys[1:]:
        raise _Broken(f"above {keys[0]} the listing showed {above}, not {keys[1:]}")


async def _read_after_delete(store: Store, prefix: str) -> None:
    key = f"{prefix}key"
    await _created(store, key, b"doomed")
    await _expect(store, key, b"doomed", "right after a create the key held")
    await store.delete(key)
    await _expect(store, key, None, "right after a delete the key held")
    await store.delete(key)


async def _list_after_delete(store: Store, prefix: str) -> None:
    keys = [f"{prefix}{number:020d}" for number in range(3)]
    for key in keys:
        await _created(store, key, b"listed")
    await _expect_listed(store, prefix, keys, "right after creates")
    await store.delete(keys[1])
    await _expect_listed(store, prefix, [keys[0], keys[2]], "right after a delete")


async def _ranges(store: Store, prefix: str) -> None:
    key = f"{prefix}key"
    body = bytes(range(256))
    await _created(store, key, body)
    for start, end in ((0, 1), (0, 256), (17, 99), (200, 300), (256, 300), (400, 500)):
        found = bytes(await store.get_range(key, start, end))
        if found != body[start:end]:
            raise _Broken(
                f"bytes {start} to {end} of an object of 256 came back as {len(found)} other bytes"
            )


RULES: dict[str, tuple[str, Check]] = {
    "create-once": ("a key that exists is never created again", _sequential_create),
    "create-race": ("of racing creates of one key exactly one wins", _racing_create),
    "read-after-write": ("a get sees the latest write at once", _read_after_write),
    "list-after-write": ("a listing shows a new key at once", _list_after_write),
    "read-after-delete": ("a deleted key is gone at once", _read_after_delete),
    "list-after-delete": ("a listing leaves out a deleted key at once", _list_after_delete),
    "ranges": ("a ranged get returns exactly its bytes", _ranges),
}


async def _created(store: Store, key: str, body: bytes) -> bool:
    """Return whether the create succeeded. A transient conflict is retried."""
    for _ in range(CONFLICT_RETRIES_MAX):
        try:
            await store.create(key, body)
        except ExistsError:
            return False
        except ConflictError:
            await runtime.sleep(CONFLICT_PAUSE_SECONDS)
        else:
            return True
    raise UnavailableError(
        key, f"{CONFLICT_RETRIES_MAX} consecutive creates had transient conflicts"
    )


async def _read(store: Store, key: str) -> bytes | None:
    try:
        return bytes(await store.get(key))
    except NotFoundError:
        return None


async def _expect(store: Store, key: str, wanted: bytes | None, otherwise: str) -> None:
    held = await _read(store, key)
    if held != wanted:
        shown = "nothing" if held is None else repr(held)
        raise _Broken(f"{otherwise} {shown}")


async def _expect_listed(store: Store, prefix: str, wanted: list[str], when: str) -> None:
    found = [row.key for row in await store.list(prefix)]
    if found != wanted:
        raise _Broken(f"{when} the listing showed {found}, not {wanted}")
