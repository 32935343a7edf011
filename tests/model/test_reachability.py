"""The models are not empty: what the promises speak of does happen in them, under all rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from . import manifest_model, rollup_model, series_model, wal_model
from .manifest_model import ManifestModel
from .membership_model import MembershipModel
from .release_model import ReleaseModel
from .rollup_model import RollUpModel
from .run_model import RunModel
from .search import Model, reachable
from .series_model import SeriesModel
from .wal_model import ABSENT, DATA, SEAL, WalModel

LEADING = WalModel(sealers=1, with_reader=False, with_request=True)


def _put_came_back(state: series_model.State) -> bool:
    """A number below the checkpoint holds another record than the one that was decided."""
    below = range(state.checkpoint)
    return any(state.numbers[n] not in (None, state.decided[n]) for n in below)


def _false_seal_below_checkpoint(state: wal_model.State) -> bool:
    return SEAL in state.numbers[: state.checkpoint]


def _acked_and_taken_over(state: wal_model.State) -> bool:
    return state.committed > 0 and bool(state.ends)


def _owner_durable_beyond_the_end(state: wal_model.State) -> bool:
    return bool(state.ends) and state.durable.bit_length() > min(state.ends)


def _trimmed_to_the_end(state: wal_model.State) -> bool:
    ends = state.ends
    return bool(ends) and state.checkpoint == ends[0] > 0 and DATA not in state.numbers


def _reader_overtaken(state: wal_model.State) -> bool:
    reader = state.reader
    return (
        reader is not None
        and reader.position < state.checkpoint
        and (state.numbers[reader.position] == ABSENT)
    )


def _doomed_under_its_committer(state: manifest_model.State) -> bool:
    doomed = manifest_model.fold(state.decided).doomed
    return any(me.uploaded and doomed >> me.key & 1 for me in state.committers)


def _loser_checkpoint_in_flight(state: rollup_model.State) -> bool:
    targets = [n for n, _ in state.puts]
    return len(targets) > len(set(targets))


REACHED: tuple[tuple[str, Model[Any], Callable[[Any], bool]], ...] = (
    ("both proposers win", SeriesModel(), lambda s: len({r.proposer for r in s.decided}) == 2),
    ("a put comes back below the checkpoint", SeriesModel(), _put_came_back),
    (
        "a reader lags below the checkpoint",
        SeriesModel(),
        lambda s: s.reader.phase == "get" and s.reader.position + 2 <= s.checkpoint,
    ),
    ("a record is acknowledged and a successor serves", WalModel(), _acked_and_taken_over),
    (
        "two successors serve the same end behind a record",
        WalModel(),
        lambda s: len(s.ends) == 2 and s.ends[0] > 0,
    ),
    ("a seal lands below the checkpoint", WalModel(), _false_seal_below_checkpoint),
    ("an upload lands beyond the end", WalModel(), _owner_durable_beyond_the_end),
    ("a sealed stream is trimmed to its end", WalModel(), _trimmed_to_the_end),
    ("a reader is overtaken by trimming", WalModel(), _reader_overtaken),
    (
        "a reader closes behind a record",
        WalModel(),
        lambda s: s.reader.phase == "closed" and s.reader.position > 0,
    ),
    ("a leadership check passes", LEADING, lambda s: s.request.phase == "passed"),
    ("a request meets a stale leader", LEADING, lambda s: s.request.stale and s.tried > 0),
    (
        "a roll-up outlives its numbers",
        RollUpModel(),
        lambda s: s.greatest == 2 and s.numbers == 0 and s.tiered == 0 and s.rollups,
    ),
    ("two checkpoints race for one number", RollUpModel(), _loser_checkpoint_in_flight),
    (
        "a reader resolves the end after all was tiered and trimmed",
        RollUpModel(owner_rounds=1),
        lambda s: s.reader.phase == "done" and s.tiered == 2 and s.numbers == 0,
    ),
    ("a segment is doomed under its committer", ManifestModel("LR"), _doomed_under_its_committer),
    (
        "a leader lists a second segment after it lost its first",
        ManifestModel("LR"),
        lambda s: manifest_model.Operation("add", 3) in s.decided,
    ),
    (
        "merge and leader both commit",
        ManifestModel("LM", tries=1),
        lambda s: {op.kind for op in s.decided} == {"add", "merge"},
    ),
    (
        "a replaced run is deleted",
        RunModel(),
        lambda s: "r" not in s.objects,
    ),
    (
        "a checkpoint lands below the greatest",
        RunModel(),
        lambda s: s.greatest == 2 and any(n == 1 for n, _ in s.checkpoint_puts),
    ),
    (
        "S serves records of a stream that was sealed meanwhile",
        ReleaseModel(),
        lambda s: s.s_serves > 0 and s.fenced,
    ),
    (
        "X serves what O had acknowledged",
        ReleaseModel(),
        lambda s: s.x_serves > 0 and s.offsets_below(s.committed) > 0,
    ),
    (
        "O's release is refused and O is deposed",
        ReleaseModel(),
        lambda s: s.owner.phase == "deposed" and not s.fenced and len(s.log) > 1,
    ),
    (
        "p comes back to the process that released it",
        MembershipModel(rejoins=False),
        lambda s: any(term.epoch == 2 and term.process == 0 for term in s.terms),
    ),
    (
        "a restarted process serves what its earlier one had acknowledged",
        MembershipModel(log_numbers=2),
        lambda s: any(term.process == 2 and term.start > 0 for term in s.terms),
    ),
    (
        "a process that acknowledged a record learns that it was expired",
        MembershipModel(rejoins=False),
        lambda s: s.processes[0].phase == "over" and s.streams[0].committed > 0,
    ),
)


@pytest.mark.parametrize(
    ("model", "wanted"), [pytest.param(m, w, id=name) for name, m, w in REACHED]
)
def test_it_happens(model: Model[Any], wanted: Callable[[Any], bool]) -> None:
    trace = reachable(model, wanted)
    print(trace)
    assert trace is not None
