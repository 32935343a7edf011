"""A partition's manifest: leaders that tier, merges, repair, the collector, trimming.

Segments x and y (offsets 0 and 1) are listed from the start. A leader uploads a segment for offset
2 and lists it; a merge replaces x and y by one segment; repair dooms objects that nothing lists;
the collector deletes what was doomed. Uploads and creates of numbers may land at any later time,
for ever, again after a delete. A committer lists only a key whose upload was acknowledged to it.

`decided` is the truth the model keeps beside the store: the operation that first took each number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from .search import Model

LISTED_BUT_DELETED = "a listed segment is deleted"
LISTED_TWICE = "an offset is listed twice"
NO_LONGER_LISTED = "a committed offset is no longer listed"
FALSE_COMMIT = "a committer believes its segment listed though no number lists it"


@dataclass(frozen=True)
class Rules:
    """The rules of the manifest as the design has them; a field set to False drops one."""

    doom_before_delete: bool = True
    base_before_first_upload: bool = True
    abandon_when_checkpoint_passes: bool = True
    lists_no_doomed_key: bool = True
    loser_starts_over: bool = True
    committer_looks_at_checkpoint: bool = True
    collector_looks_at_checkpoint: bool = True


class Operation(NamedTuple):
    kind: str  # "add", "merge", "doom"
    key: int


class View(NamedTuple):
    """What a stretch of the manifest amounts to; keys as masks."""

    listed: int
    doomed: int


class Committer(NamedTuple):
    phase: str  # "outside", "walk", "found" and "missed" (both before the look), "end", "done"
    position: int
    view: View
    held: Operation | None
    key: int  # -1: none. For repair, the object it wants doomed
    uploaded: bool
    tries: int
    false: bool


class State(NamedTuple):
    numbers: tuple[Operation | None, ...]
    decided: tuple[Operation, ...]
    checkpoint: int
    objects: int  # mask of segments that exist
    uploads: int  # mask of segments that may land
    creates: tuple[tuple[int, Operation], ...]  # numbers that may land
    committers: tuple[Committer, ...]


Step = tuple[str, State]
Move = tuple[str, Committer, dict[str, Any]]  # a committer's step, and what else it changes

INPUTS = 0b11  # x and y
NOTHING = View(0, 0)
OUTSIDE = Committer("outside", 0, NOTHING, None, -1, False, 0, False)


def apply(view: View, operation: Operation) -> View:
    bit = 1 << operation.key
    if operation.kind == "add":
        return View(view.listed | bit, view.doomed)
    if operation.kind == "merge":
        return View(view.listed & ~INPUTS | bit, view.doomed | INPUTS)
    return View(view.listed, view.doomed | bit)


@lru_cache(maxsize=100_000)
def fold(operations: tuple[Operation, ...]) -> View:
    view = View(INPUTS, 0)
    for operation in operations:
        view = apply(view, operation)
    return view


@dataclass(frozen=True)
class ManifestModel(Model[State]):
    """`committers`: one letter each, L for a leader, M for a merge, R for repair."""

    committers: str = "LR"
    numbers: int = 3
    tries: int = 2
    rules: Rules = Rules()

    def initial(self) -> State:
        absent = (None,) * self.numbers
        return State(absent, (), 0, INPUTS, 0, (), (OUTSIDE,) * len(self.committers))

    def harms(self, state: State) -> tuple[str, ...]:
        listed = fold(state.decided).listed
        found = []
        if listed & ~state.objects:
            found.append(LISTED_BUT_DELETED)
        covered = [offset for key in _keys(listed) for offset in self._offsets(key)]
        if len(covered) != len(set(covered)):
            found.append(LISTED_TWICE)
        if not {0, 1} <= set(covered):
            found.append(NO_LONGER_LISTED)
        if any(committer.false for committer in state.committers):
            found.append(FALSE_COMMIT)
        return tuple(found)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._landings(state)
        yield from self._trim_steps(state)
        yield from self._deletions(state)
        for index, committer in enumerate(state.committers):
            for label, following, changes in self._committer_steps(state, index, committer):
                others = state.committers
                moved = (*others[:index], following, *others[index + 1 :])
                yield f"{self._name(index)} {label}", state._replace(committers=moved, **changes)

    def _landings(self, state: State) -> Iterator[Step]:
        for key in _keys(state.uploads & ~state.objects):
            landed = state._replace(objects=state.objects | 1 << key)
            yield f"the upload of {self._key(key)} lands", landed
        for n, operation in state.creates:
            if state.numbers[n] is None:
                now = (*state.numbers[:n], operation, *state.numbers[n + 1 :])
                decided = state.decided
                if n == len(decided):
                    decided = (*decided, operation)
                label = f"number {n} lands: {self._text(operation)}"
                yield label, state._replace(numbers=now, decided=decided)

    def _trim_steps(self, state: State) -> Iterator[Step]:
        if state.checkpoint < len(state.decided):
            above = state.checkpoint + 1
            yield f"checkpoint/{above} is created", state._replace(checkpoint=above)
        for n in range(state.checkpoint):
            if state.numbers[n] is not None:
                now = (*state.numbers[:n], None, *state.numbers[n + 1 :])
                yield f"number {n} is deleted", state._replace(numbers=now)

    def _deletions(self, state: State) -> Iterator[Step]:
        # Checkpoints carry the dooms not yet carried out, so the collector knows every doom that
        # was decided; what lies below a checkpoint may be a put that came back, and dooms nothing.
        view = fold(state.decided)
        doomed = view.doomed
        if not self.rules.collector_looks_at_checkpoint:
            seen = tuple(operation for operation in state.numbers if operation is not None)
            doomed |= fold(seen).doomed
        for key in _keys(doomed & state.objects):
            gone = state._replace(objects=state.objects & ~(1 << key))
            yield f"the collector deletes {self._key(key)}", gone
        if not self.rules.doom_before_delete:
            for key in _keys(state.objects & ~view.listed & ~doomed):
                gone = state._replace(objects=state.objects & ~(1 << key))
                yield f"repair deletes {self._key(key)}, which nothing lists", gone

    def _committer_steps(self, state: State, index: int, me: Committer) -> Iterator[Move]:
        uploading = self.committers[index] != "R" and me.key >= 0 and not me.uploaded
        if uploading and state.objects >> me.key & 1:
            yield "learns that its upload is there", me._replace(uploaded=True), {}
        if me.phase == "outside":
            yield from self._enter(state, index, me)
        elif me.phase == "walk" and me.position < self.numbers:
            there = state.numbers[me.position]
            if there is None:
                yield f"finds {me.position} missing", me._replace(phase="missed"), {}
            else:
                label = f"reads {me.position}: {self._text(there)}"
                yield label, me._replace(phase="found", held=there), {}
        elif me.phase in ("found", "missed"):
            yield (*self._look(state, me), {})
        elif me.phase == "end":
            yield from self._act(state, index, me)

    def _enter(self, state: State, index: int, me: Committer) -> Iterator[Move]:
        if self.committers[index] != "R" and not self.rules.base_before_first_upload:
            if me.key < 0 and me.tries < self.tries:
                key = self._next_key(index, me)
                yield (
                    f"uploads {self._key(key)} before it reads the manifest",
                    me._replace(key=key, tries=me.tries + 1),
                    {"uploads": state.uploads | 1 << key},
                )
            if not me.uploaded:
                return
        view = View(fold(state.decided[: state.checkpoint]).listed, 0)
        walking = me._replace(phase="walk", position=state.checkpoint, view=view)
        yield f"reads checkpoint/{state.checkpoint} as its base", walking, {}

    def _look(self, state: State, me: Committer) -> tuple[str, Committer]:
        at, above = me.position, state.checkpoint
        if above > at and self.rules.committer_looks_at_checkpoint:
            again = OUTSIDE._replace(tries=me.tries)
            label = f"sees checkpoint/{above} above {at}, starts again"
            if me.key >= 0 and not self.rules.abandon_when_checkpoint_passes:
                again = again._replace(key=me.key, uploaded=me.uploaded)
                label += f" and keeps {self._key(me.key)}"
            return label, again
        if me.phase == "missed":
            return f"believes that {at} is the end", me._replace(phase="end")
        assert me.held is not None
        view = apply(me.view, me.held)
        own = me.held.kind != "doom" and me.held.key == me.key
        false = own and me.held not in state.decided
        return f"believes {at}", me._replace(
            phase="walk", position=at + 1, view=view, held=None, false=false
        )

    def _act(self, state: State, index: int, me: Committer) -> Iterator[Move]:
        kind, view = self.committers[index], me.view
        if self._no_longer_wanted(kind, me):
            yield "finds nothing left to do", OUTSIDE._replace(phase="done", tries=me.tries), {}
        elif me.key >= 0 and view.doomed >> me.key & 1 and self.rules.lists_no_doomed_key:
            dropped = me._replace(phase="walk", key=-1, uploaded=False)
            yield f"finds {self._key(me.key)} doomed, lets go of it", dropped, {}
        elif me.key < 0 and me.tries < self.tries:
            if kind == "R":
                for key in _keys(state.objects & ~view.listed & ~view.doomed):
                    aimed = me._replace(key=key, tries=me.tries + 1)
                    yield f"finds {self._key(key)} unlisted", aimed, {}
            else:
                key = self._next_key(index, me)
                uploading = me._replace(key=key, tries=me.tries + 1)
                uploads = state.uploads | 1 << key
                yield f"uploads {self._key(key)}", uploading, {"uploads": uploads}
        elif me.key >= 0 and (me.uploaded or kind == "R"):
            operation = Operation({"L": "add", "M": "merge", "R": "doom"}[kind], me.key)
            creates = tuple(sorted({*state.creates, (me.position, operation)}))
            label = f"issues a create of {me.position}: {self._text(operation)}"
            yield label, me._replace(phase="walk"), {"creates": creates}

    def _no_longer_wanted(self, kind: str, me: Committer) -> bool:
        """Derived anew at every number: is what it set out to do still to be done?"""
        if me.key >= 0 and not self.rules.loser_starts_over:
            return me.view.listed >> me.key & 1 == 1 and kind != "R"
        if kind == "L":
            return any(2 in self._offsets(key) for key in _keys(me.view.listed))
        if kind == "M":
            return me.view.listed & INPUTS != INPUTS
        return me.key >= 0 and me.view.listed >> me.key & 1 == 1

    def _next_key(self, index: int, me: Committer) -> int:
        return 2 + index * self.tries + me.tries

    def _offsets(self, key: int) -> tuple[int, ...]:
        if key < 2:
            return (key,)
        return (2,) if self.committers[(key - 2) // self.tries] == "L" else (0, 1)

    def _name(self, index: int) -> str:
        return f"{self.committers[index]}{index}"

    def _key(self, key: int) -> str:
        if key < 2:
            return "xy"[key]
        index, attempt = divmod(key - 2, self.tries)
        return f"{self._name(index)}'s segment {attempt}"

    def _text(self, operation: Operation) -> str:
        verb = {"add": "list", "merge": "list, for x and y,", "doom": "doom"}[operation.kind]
        return f"{verb} {self._key(operation.key)}"


def _keys(mask: int) -> Iterator[int]:
    key = 0
    while mask:
        if mask & 1:
            yield key
        mask >>= 1
        key += 1
