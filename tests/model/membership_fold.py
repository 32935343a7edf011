"""What the cluster log says of processes and of one partition p: the fold of its records.

The model of membership drops its rules one by one; those of the processes stand here beside those
of the fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

NODE_OF = (0, 1, 0)
NONE = -1


@dataclass(frozen=True)
class Rules:
    """The rules of membership as the design has them; a field set to False drops one."""

    fold_refuses_the_dead: bool = True
    ended_leads_nothing: bool = True
    records_move_what_they_orphan: bool = True
    fold_checks_epochs: bool = True
    loser_starts_over: bool = True
    seals_before_serving: bool = True
    waits_until_committed: bool = True
    stays_stopped_while_undecided: bool = True
    stopped_owner_is_silent: bool = True
    answers_after_a_look: bool = True


class Record(NamedTuple):
    kind: str  # "release", "expire", "register", "deregister"
    process: int  # that releases p, is expired, starts, or leaves
    epoch: int  # the one that the successor would lead under; NONE if p does not move
    successor: int = NONE
    end: int = NONE  # of a release: all records of p in the stream lie before this number


class Part(NamedTuple):
    epoch: int
    process: int
    end: int  # NONE: up to the seal


class Membership(NamedTuple):
    """What the cluster log says."""

    leader: int
    epoch: int
    parts: tuple[Part, ...]
    live: frozenset[int]


@cache
def fold(log: tuple[Record, ...], rules: Rules) -> Membership:
    state = Membership(0, 0, (Part(0, 0, NONE),), frozenset({0, 1}))
    for record in log:
        if record.kind == "release":
            state = _released(state, record, rules)
            continue
        ended = {record.process} & state.live
        if record.kind == "register":
            ended = {each for each in state.live if NODE_OF[each] == NODE_OF[record.process]}
            state = state._replace(live=state.live | {record.process})
        elif not ended:
            continue
        state = state._replace(live=state.live - ended)
        if state.leader not in state.live and rules.ended_leads_nothing:
            state = state._replace(leader=NONE)
        if state.leader == NONE and record.epoch != NONE:
            state = _moved(state, record, rules)
    return state


def _released(state: Membership, record: Record, rules: Rules) -> Membership:
    if state.leader == NONE:
        return state
    *before, last = state.parts
    return _moved(state, record, rules, (*before, last._replace(end=record.end)))


def _moved(
    state: Membership, record: Record, rules: Rules, parts: tuple[Part, ...] | None = None
) -> Membership:
    if rules.fold_refuses_the_dead and record.successor not in state.live:
        return state
    if rules.fold_checks_epochs and record.epoch != state.epoch + 1:
        return state
    epoch = state.epoch + 1
    part = Part(epoch, record.successor, NONE)
    parts = (*(state.parts if parts is None else parts), part)
    return Membership(record.successor, epoch, parts, state.live)
