"""`neve` as its next version could be: it knows feature level 3. For tests of upgrades.

Level 3 adds a kind of record, `note`, and a field of the cluster's state with all notes. The next
version also adds an optional field to registrations, which every version may ignore. Each broker
writes a note once the cluster has level 3. Run this file in place of `neve`.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Union, get_args

from neve.cluster import fold, log, log_view, records, state
from neve.cluster.log import ClusterLog

LEVEL = 3


class Note(records.ClusterStored, frozen=True, tag="note"):
    """What a broker notes: its incarnation."""

    incarnation: int


class Register(records.Register, frozen=True, kw_only=True, tag="register"):
    """A registration with the build of the process."""

    build: str = ""


class NotedState(state.ClusterState, frozen=True, kw_only=True, dict=True):
    """The state of the cluster with all notes."""

    notes: tuple[int, ...] = ()


_KINDS = [kind for kind in get_args(records.Change) if kind is not records.Register]


class NextRecord(records.ClusterStored, frozen=True):
    """A record of any kind that the next version knows."""

    change: Union[(*_KINDS, Register, Note)]  # type: ignore[valid-type]


def _fold_note(before: NotedState, change: Note) -> NotedState:
    notes = (*before.notes, change.incarnation)
    return fold._with(before, notes=notes)


def _level_of(change: Any) -> int:
    return LEVEL if isinstance(change, Note) else records.level_of(change)


async def _raise_level(cluster: ClusterLog) -> None:
    await _raise_level_before(cluster)
    if cluster.state.feature_level >= LEVEL:
        await cluster.propose(functools.partial(_new_note, cluster.incarnation))


def _new_note(incarnation: int, noted: Any) -> Any:
    return None if incarnation in noted.notes else Note(incarnation)


_raise_level_before = ClusterLog.raise_level


def become_the_next_version() -> None:
    for module in (records, log, log_view):
        module.FEATURE_LEVEL = LEVEL  # type: ignore[attr-defined]
    log.Register = functools.partial(Register, build="next")  # type: ignore[assignment,misc]
    log_view.ClusterRecord = NextRecord  # type: ignore[assignment,misc]
    log_view.ClusterState = NotedState  # type: ignore[misc]
    log_view.level_of = _level_of
    fold.ClusterRules.record_schema = NextRecord  # type: ignore[assignment]
    fold.ClusterRules.state_schema = NotedState
    fold.ClusterRules.empty = lambda _: NotedState()  # type: ignore[method-assign]
    fold._FOLDS[Note] = _fold_note
    ClusterLog.raise_level = _raise_level  # type: ignore[method-assign]


if __name__ == "__main__":
    from neve.cli import main

    become_the_next_version()
    sys.exit(main())
