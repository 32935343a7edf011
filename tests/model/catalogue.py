"""Which models are explored at which bounds, and which harm each dropped rule leads to.

The tests, `python -m tests.model` and the tables of docs/contributors/models.md use these lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import (
    manifest_model,
    membership_model,
    release_model,
    rollup_model,
    run_model,
    series_model,
    wal_model,
)
from .manifest_model import ManifestModel
from .membership_fold import Rules as MembershipRules
from .membership_model import MembershipModel
from .release_model import ReleaseModel
from .rollup_model import RollUpModel
from .run_model import RunModel
from .search import Model
from .series_model import SeriesModel
from .wal_model import WalModel


@dataclass(frozen=True)
class Exploration:
    """A model with rules that suffice, at bounds at which all of it is visited."""

    name: str
    model: Model[Any]
    mark: str = ""  # the pytest marker of what takes longer: "slow" or "soak"


@dataclass(frozen=True)
class Dropped:
    """A model without one of its rules, and the harm that follows."""

    name: str
    model: Model[Any]
    harm: str


MODELS: dict[str, Any] = {
    "series": SeriesModel,
    "wal": WalModel,
    "roll-up": RollUpModel,
    "manifest": ManifestModel,
    "run": RunModel,
    "release": ReleaseModel,
    "membership": MembershipModel,
}


EXPLORATIONS = (
    Exploration("series: 3 numbers, 2 changes each", SeriesModel(with_reader=False)),
    Exploration("series: 3 numbers, 1 change each, reader", SeriesModel(changes=1)),
    Exploration("wal: 3 numbers, window 2, 2 sealers, reader", WalModel(), mark="slow"),
    Exploration("wal: 3 numbers, window 3, 2 sealers", WalModel(window=3, with_reader=False)),
    Exploration(
        "wal: 3 numbers, window 2, 1 sealer, leadership check",
        WalModel(sealers=1, with_reader=False, with_request=True),
    ),
    Exploration(
        "roll-up: 2 numbers, owner twice, 1 janitor", RollUpModel(janitors=1, with_reader=False)
    ),
    Exploration(
        "roll-up: 2 numbers, owner once, 1 janitor, reader",
        RollUpModel(owner_rounds=1),
        mark="slow",
    ),
    Exploration(
        "manifest: leader and repair, 3 numbers, 2 tries", ManifestModel("LR"), mark="slow"
    ),
    Exploration("manifest: two leaders, 3 numbers, 2 tries", ManifestModel("LL")),
    Exploration("manifest: leader and merge, 3 numbers, 1 try", ManifestModel("LM", tries=1)),
    Exploration("manifest: two merges, 3 numbers, 1 try", ManifestModel("MM", tries=1)),
    Exploration("manifest: merge and repair, 3 numbers, 1 try", ManifestModel("MR", tries=1)),
    Exploration("run: 4 numbers, 2 rounds each", RunModel(numbers=4)),
    Exploration("release: 3 numbers, window 2", ReleaseModel(), mark="slow"),
    Exploration(
        "membership: 1 number, no restart, 3 cluster-log numbers", MembershipModel(rejoins=False)
    ),
    Exploration(
        "membership: 1 number, restart, 2 cluster-log numbers",
        MembershipModel(log_numbers=2),
        mark="slow",
    ),
    Exploration(
        "membership: 2 numbers, window 2, no restart, 4 cluster-log numbers",
        MembershipModel(2, log_numbers=4, rejoins=False),
        mark="slow",
    ),
    Exploration(
        "membership: 1 number, no restart, 3 cluster-log numbers, a fold that trusts successors",
        MembershipModel(rejoins=False, rules=MembershipRules(fold_refuses_the_dead=False)),
    ),
    Exploration(
        "membership: 1 number, no restart, 3 cluster-log numbers, a fold that trusts epochs",
        MembershipModel(rejoins=False, rules=MembershipRules(fold_checks_epochs=False)),
    ),
    Exploration(
        "membership: 1 number, no restart, processes leave, 3 cluster-log numbers",
        MembershipModel(rejoins=False, leaves=True),
        mark="slow",
    ),
    Exploration("series: 2 numbers, 2 changes each, reader", SeriesModel(numbers=2), mark="soak"),
    Exploration("series: 3 numbers, 2 changes each, reader", SeriesModel(), mark="soak"),
    Exploration("wal: 4 numbers, window 2, 2 sealers", WalModel(4, with_reader=False), mark="soak"),
    Exploration(
        "wal: 4 numbers, window 2, 1 sealer, leadership check",
        WalModel(4, sealers=1, with_reader=False, with_request=True),
        mark="soak",
    ),
    Exploration(
        "wal: 4 numbers, window 3, 1 sealer, reader", WalModel(4, window=3, sealers=1), mark="soak"
    ),
    Exploration("wal: 4 numbers, window 2, 2 sealers, reader", WalModel(4), mark="soak"),
    Exploration(
        "roll-up: 2 numbers, owner once, 2 janitors",
        RollUpModel(owner_rounds=1, janitors=2, with_reader=False),
        mark="soak",
    ),
    Exploration(
        "roll-up: 3 numbers, owner twice, 1 janitor", RollUpModel(3, with_reader=False), mark="soak"
    ),
    Exploration(
        "roll-up: 2 numbers, owner once, 1 janitor, reader, no next offset",
        RollUpModel(owner_rounds=1, rules=rollup_model.Rules(next_offset_checked=False)),
        mark="soak",
    ),
    Exploration(
        "roll-up: 2 numbers, owner once, 1 janitor, reader, manifest first",
        RollUpModel(
            owner_rounds=1,
            leaves_list=False,
            rules=rollup_model.Rules(tail_before_manifest=False),
        ),
        mark="soak",
    ),
    Exploration(
        "manifest: leader and repair, 4 numbers, 2 tries", ManifestModel("LR", 4), mark="soak"
    ),
    Exploration(
        "manifest: two leaders and repair, 3 numbers, 1 try",
        ManifestModel("LLR", tries=1),
        mark="soak",
    ),
    Exploration("release: 4 numbers, window 3", ReleaseModel(4, 3), mark="soak"),
    Exploration(
        "membership: 1 number, restart, 3 cluster-log numbers", MembershipModel(), mark="soak"
    ),
    Exploration(
        "membership: 2 numbers, window 2, no restart, 5 cluster-log numbers",
        MembershipModel(2, log_numbers=5, rejoins=False),
        mark="soak",
    ),
    Exploration(
        "membership: 1 number, restart, processes leave, 2 cluster-log numbers",
        MembershipModel(log_numbers=2, leaves=True),
        mark="soak",
    ),
    Exploration(
        "membership: 1 number, no restart, processes leave, 4 cluster-log numbers",
        MembershipModel(rejoins=False, leaves=True, log_numbers=4),
        mark="soak",
    ),
    Exploration(
        "membership: 3 numbers, window 2, no restart, 4 cluster-log numbers",
        MembershipModel(3, log_numbers=4, rejoins=False),
        mark="soak",
    ),
)


def _without(model: Model[Any], *rules: str) -> Any:
    kept: Any = model
    return replace(kept, rules=replace(kept.rules, **dict.fromkeys(rules, False)))


def _dropped(kind: str, rule: str, harm: str, **bounds: Any) -> Dropped:
    return Dropped(f"{kind}: {rule}", _without(MODELS[kind](**bounds), rule), harm)


LEADING: dict[str, Any] = {"sealers": 1, "with_reader": False, "with_request": True}
ROLLING: dict[str, Any] = {"with_reader": False}
TWO_PROCESSES: dict[str, Any] = {"rejoins": False}

DROPPED = (
    _dropped("series", "look_after_winning", series_model.FALSE_WIN),
    _dropped("series", "look_after_reading", series_model.FALSE_READ),
    _dropped("series", "look_after_missing", series_model.SHORT_READ),
    _dropped("series", "own_record_is_success", series_model.MADE_TWICE),
    _dropped("series", "loser_starts_over", series_model.STALE_RECORD),
    _dropped("series", "create_never_overwrites", series_model.FALSE_READ),
    _dropped("series", "trim_only_below_checkpoint", series_model.SHORT_READ),
    _dropped("series", "greatest_checkpoint_kept", series_model.SHORT_READ),
    _dropped("wal", "commit_in_order", wal_model.ACKED_BEYOND_END),
    _dropped("wal", "sealer_serves_at_first_seal_in_order", wal_model.TWO_ENDS),
    _dropped("wal", "sealer_looks_after_reading_the_end", wal_model.ACKED_BEYOND_END),
    _dropped("wal", "reader_stops_at_missing", wal_model.READER_PASSED),
    _dropped("wal", "missing_number_closes_nothing", wal_model.ACKED_BEYOND_CLOSED),
    _dropped("wal", "seal_above_missing_closes_nothing", wal_model.READER_DISAGREES),
    _dropped("wal", "reader_looks_after_reading_the_end", wal_model.ACKED_BEYOND_CLOSED),
    _dropped("wal", "checkpoint_never_above_end", wal_model.TWO_ENDS),
    _dropped("wal", "end_seal_kept", wal_model.ACKED_BEYOND_END),
    _dropped("wal", "greatest_checkpoint_kept", wal_model.READER_DISAGREES),
    _dropped("wal", "check_at_lowest_uncommitted", wal_model.FALSE_LEADER, **LEADING),
    _dropped("wal", "check_looks_at_checkpoint", wal_model.FALSE_LEADER, **LEADING),
    _dropped(
        "wal",
        "commit_proves_only_requests_before_its_create",
        wal_model.FALSE_LEADER,
        **LEADING,
    ),
    _dropped("wal", "only_commit_in_order_proves", wal_model.FALSE_LEADER, **LEADING),
    _dropped("roll-up", "checkpoint_never_overwritten", rollup_model.LOST, **ROLLING),
    _dropped("roll-up", "named_only_by_own_checkpoint", rollup_model.LOST, numbers=3, **ROLLING),
    _dropped(
        "roll-up", "deleted_only_once_its_checkpoint_is_decided", rollup_model.LOST, **ROLLING
    ),
    _dropped("roll-up", "only_won_tiering_is_left_out", rollup_model.LOST, **ROLLING),
    _dropped("roll-up", "tail_before_manifest", rollup_model.SHORT_END),
    Dropped(
        "roll-up: tail_before_manifest and next_offset_checked",
        # The stream stays listed here: what deceives the reader is tiering and trimming alone.
        _without(RollUpModel(leaves_list=False), "tail_before_manifest", "next_offset_checked"),
        rollup_model.SHORT_END,
    ),
    _dropped("manifest", "doom_before_delete", manifest_model.LISTED_BUT_DELETED),
    _dropped("manifest", "base_before_first_upload", manifest_model.LISTED_BUT_DELETED),
    _dropped("manifest", "abandon_when_checkpoint_passes", manifest_model.LISTED_BUT_DELETED),
    _dropped("manifest", "lists_no_doomed_key", manifest_model.LISTED_BUT_DELETED),
    _dropped("manifest", "collector_looks_at_checkpoint", manifest_model.LISTED_BUT_DELETED),
    _dropped("manifest", "committer_looks_at_checkpoint", manifest_model.FALSE_COMMIT),
    _dropped("manifest", "loser_starts_over", manifest_model.LISTED_BUT_DELETED),
    Dropped(
        "manifest: loser_starts_over (two leaders)",
        _without(ManifestModel("LL"), "loser_starts_over"),
        manifest_model.LISTED_TWICE,
    ),
    Dropped(
        "manifest: loser_starts_over (two merges)",
        _without(ManifestModel("MM"), "loser_starts_over"),
        manifest_model.LISTED_TWICE,
    ),
    _dropped("run", "runs_decided_by_numbers", run_model.CHECKPOINT_BROKEN),
    _dropped("run", "replaced_run_kept_until_checkpoint_above", run_model.CHECKPOINT_BROKEN),
    _dropped("release", "waits_until_committed", release_model.HOLE),
    _dropped("release", "stays_stopped_while_undecided", release_model.STILL_LEADING),
    _dropped("release", "loser_starts_over", release_model.TWO_SUCCESSORS),
    _dropped("release", "take_over_leaves_what_was_released", release_model.TWO_SUCCESSORS),
    _dropped("release", "stopped_owner_is_silent", release_model.FALSE_ANSWER),
    _dropped("membership", "ended_leads_nothing", membership_model.DEAD_LEADER),
    _dropped("membership", "records_move_what_they_orphan", membership_model.LEADERLESS),
    Dropped(
        "membership: records_move_what_they_orphan (a process leaves)",
        _without(MembershipModel(rejoins=False, leaves=True), "records_move_what_they_orphan"),
        membership_model.LEADERLESS,
    ),
    _dropped("membership", "loser_starts_over", membership_model.LEADERLESS, **TWO_PROCESSES),
    Dropped(
        "membership: loser_starts_over and fold_refuses_the_dead",
        _without(MembershipModel(), "loser_starts_over", "fold_refuses_the_dead"),
        membership_model.DEAD_LEADER,
    ),
    Dropped(
        "membership: loser_starts_over and fold_checks_epochs",
        _without(MembershipModel(rejoins=False), "loser_starts_over", "fold_checks_epochs"),
        membership_model.ACKED_BEYOND,
    ),
    _dropped("membership", "seals_before_serving", membership_model.ACKED_BEYOND, **TWO_PROCESSES),
    _dropped(
        "membership", "waits_until_committed", membership_model.HOLE, numbers=2, **TWO_PROCESSES
    ),
    _dropped(
        "membership",
        "stays_stopped_while_undecided",
        membership_model.ACKED_BEYOND,
        **TWO_PROCESSES,
    ),
    _dropped(
        "membership", "stopped_owner_is_silent", membership_model.FALSE_ANSWER, **TWO_PROCESSES
    ),
    _dropped("membership", "answers_after_a_look", membership_model.FALSE_ANSWER, **TWO_PROCESSES),
)

# Kept by the design as a second line: alone each may go, as explorations above show. The next
# offset makes up for the wrong order as long as the stream stays listed. The checks of the fold
# make up for a proposer that lost its number and sends the same record again.
SECOND_LINE = frozenset(
    {
        "roll-up: next_offset_checked",
        "membership: fold_refuses_the_dead",
        "membership: fold_checks_epochs",
    }
)
