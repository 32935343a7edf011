"""A range is in the table once, whoever commits it, whatever fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from neve.errors import InvalidError
from neve.lake.tables import (
    BusyTableError,
    CommitKind,
    CommitUnknownError,
    TopicProgress,
    commit,
    read_progress,
)
from neve.lake.tables import commit_outcome as commit_outcome_module
from neve.lake.tables import commits as commits_module
from neve.lake.tables.progress import RangeState, range_state
from unit.lake.tables.table_scene import (
    TOPIC_ID,
    at,
    catalog_in,
    foreign_append,
    held,
    once,
    rows,
    table_in,
    written,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as opened:
        yield opened


def test_a_range_and_its_offsets_come_together(catalog: Catalog) -> None:
    table = table_in(catalog)
    assert read_progress(table) == {}
    outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.COMMITTED
    assert read_progress(table_in(catalog)) == outcome.progress == at(10)
    assert held(table) == once(0, 10)


def test_the_second_of_two_pipelines_drops_the_same_range(catalog: Catalog) -> None:
    first, second = table_in(catalog), table_in(catalog)
    files = [written(each, rows(0, 10)) for each in (first, second)]
    assert commit(first, files[0], {}, at(10)).kind is CommitKind.COMMITTED
    outcome = commit(second, files[1], {}, at(10))
    assert outcome.kind is CommitKind.ALREADY
    assert outcome.in_table
    assert held(second) == once(0, 10)


@pytest.mark.parametrize(("first_end", "second_end"), [(7, 10), (10, 7)])
def test_overlapping_ranges_are_never_doubled_nor_skipped(
    catalog: Catalog, first_end: int, second_end: int
) -> None:
    first, second = table_in(catalog), table_in(catalog)
    late = written(second, rows(0, second_end))
    commit(first, written(first, rows(0, first_end)), {}, at(first_end))
    outcome = commit(second, late, {}, at(second_end))
    assert outcome.in_table == (second_end <= first_end)
    assert outcome.progress == at(first_end)
    assert held(second) == once(0, first_end)
    # Planned anew from what the outcome says, it goes on without a gap.
    again = written(second, rows(first_end, 15))
    assert commit(second, again, outcome.progress, at(15)).kind is CommitKind.COMMITTED
    assert held(second) == once(0, 15)


def test_a_range_of_several_partitions_is_taken_whole_or_not(catalog: Catalog) -> None:
    first, second = table_in(catalog), table_in(catalog)
    both = written(second, rows(0, 5, 0), rows(0, 5, 1))
    commit(first, written(first, rows(0, 5, 0)), {}, at(5))
    assert commit(second, both, {}, at(5, 5)).kind is CommitKind.STALE
    assert held(second) == once(0, 5)


def test_pipelines_of_other_partitions_and_topics_go_on_with_the_same_files(
    catalog: Catalog,
) -> None:
    first, second = table_in(catalog), table_in(catalog)
    late = written(second, rows(0, 5, 1))
    commit(first, written(first, rows(0, 5, 0)), {}, at(5))
    assert commit(second, late, {}, at(None, 5)).kind is CommitKind.COMMITTED
    assert read_progress(second) == at(5, 5)
    other = {"b" * 32: TopicProgress("other", {0: 3})}
    assert commit(first, [], {}, other).kind is CommitKind.COMMITTED
    assert read_progress(first) == {**at(5, 5), **other}


def test_a_topic_made_anew_starts_in_the_same_table(catalog: Catalog) -> None:
    table = table_in(catalog)
    commit(table, written(table, rows(0, 5)), {}, at(5))
    new = at(3, topic_id="b" * 32)
    assert commit(table, written(table, rows(0, 3)), {}, new).kind is CommitKind.COMMITTED
    assert read_progress(table) == {**at(5), **new}
    assert held(table) == once(0, 5) + once(0, 3)


def test_a_commit_cannot_go_back(catalog: Catalog) -> None:
    table = table_in(catalog)
    with pytest.raises(InvalidError, match="cannot go back from offset 5 to 3"):
        commit(table, [], at(5), at(3))


def test_an_empty_range_moves_the_offsets(catalog: Catalog) -> None:
    table = table_in(catalog)
    assert commit(table, [], {}, at(4)).kind is CommitKind.COMMITTED
    assert read_progress(table) == at(4)


# --- a catalog that answers late, wrongly or not at all


class Interfered:
    """Runs `before` ahead of a catalog's next commit, and `after` behind it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        catalog: Catalog,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        times: int = 1,
    ) -> None:
        real: Any = catalog.commit_table
        self.calls = 0

        def commit_table(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls > times:
                return real(*arguments)
            before()
            answer = real(*arguments)
            after()
            return answer

        monkeypatch.setattr(catalog, "commit_table", commit_table)


def raises(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_a_foreign_commit_between_does_not_disturb(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = table_in(catalog)
    with catalog_in(tmp_path) as other:
        foreign = table_in(other)
        Interfered(monkeypatch, catalog, before=lambda: foreign_append(foreign, rows(50, 52)))
        files = written(table, rows(0, 10))
        assert commit(table, files, {}, at(10)).kind is CommitKind.COMMITTED
    assert held(table) == once(0, 10) + once(50, 52)


def test_retries_that_the_table_allows_are_not_made(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Somebody commits the same range in between, and a blind retry would double it."""
    table = table_in(catalog)
    table.transaction().set_properties({"commit.retry.num-retries": "5"}).commit_transaction()
    with catalog_in(tmp_path) as other:
        rival = table_in(other)
        theirs = written(rival, rows(0, 10))
        Interfered(monkeypatch, catalog, before=lambda: commit(rival, theirs, {}, at(10)) and None)
        outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.ALREADY
    assert held(table) == once(0, 10)


def test_a_commit_whose_answer_was_lost_is_found_in_the_table(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog)
    Interfered(monkeypatch, catalog, after=raises(TimeoutError("no answer")))
    outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.COMMITTED
    assert held(table) == once(0, 10)


def test_a_conflict_that_was_none_destroys_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that a proxy repeats meets its own first landing, and is told of a conflict."""
    table = table_in(catalog)
    Interfered(monkeypatch, catalog, after=raises(CommitFailedException("branch has changed")))
    outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.COMMITTED
    assert held(table) == once(0, 10)


def test_a_commit_that_did_not_arrive_is_told_and_may_be_repeated(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog)
    files = written(table, rows(0, 10))
    Interfered(monkeypatch, catalog, before=raises(ConnectionError("refused")))
    with pytest.raises(CommitUnknownError, match="call again, which is safe"):
        commit(table, files, {}, at(10))
    assert commit(table, files, {}, at(10)).kind is CommitKind.COMMITTED
    assert held(table) == once(0, 10)


def test_a_commit_that_arrives_late_and_its_repetition_are_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog)
    files = written(table, rows(0, 10))
    real: Any = catalog.commit_table
    delayed: list[Any] = []

    def keep_for_later(*arguments: Any) -> Any:
        delayed.append(arguments)
        raise TimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "commit_table", keep_for_later)
        with pytest.raises(CommitUnknownError):
            commit(table, files, {}, at(10))
    Interfered(monkeypatch, catalog, before=lambda: real(*delayed[0]) and None)
    assert commit(table, files, {}, at(10)).in_table
    assert held(table) == once(0, 10)
    # Had the files been deleted as a loser's, the table could not be read at all.


def test_who_always_comes_second_gives_up_for_now(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog)
    lost = raises(CommitFailedException("lost"))
    seen = Interfered(monkeypatch, catalog, before=lost, times=1000)
    with pytest.raises(BusyTableError, match="try later"):
        commit(table, [], {}, at(10))
    assert seen.calls == 10


# --- files that no longer fit


def test_files_of_another_partitioning_are_refused(catalog: Catalog) -> None:
    table = table_in(catalog)
    files = written(table, rows(0, 10))
    with table.update_spec() as update:
        update.add_identity("number")
    outcome = commit(table, files, {}, at(10))
    assert outcome.kind is CommitKind.STALE
    assert "partitioning" in outcome.reason


def test_files_that_may_be_orphans_are_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(catalog)
    files = written(table, rows(0, 10))
    later_ms = files[0].written_ms + commit_outcome_module.FILE_AGE_MAX_MS + 1
    monkeypatch.setattr("neve.lake.tables.commit_outcome.runtime.now_ms", lambda: later_ms)
    assert commit(table, files, {}, at(10)).kind is CommitKind.STALE


# --- planted bugs are seen


def test_offsets_not_checked_after_a_refused_commit_would_double_rows(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = table_in(catalog)
    looks = 0

    def looked_once(*arguments: Any) -> RangeState:
        nonlocal looks
        looks += 1
        return range_state(*arguments) if looks == 1 else RangeState.OPEN

    with catalog_in(tmp_path) as other:
        rival = table_in(other)
        theirs = written(rival, rows(0, 10))

        def race() -> None:
            with monkeypatch.context() as honest:
                honest.setattr(commits_module, "range_state", range_state)
                commit(rival, theirs, {}, at(10))

        monkeypatch.setattr(commits_module, "range_state", looked_once)
        Interfered(monkeypatch, catalog, before=race)
        commit(table, written(table, rows(0, 10)), {}, at(10))
    assert held(table) == once(0, 10) + once(0, 10)


def test_progress_is_kept_by_topic_id() -> None:
    assert set(at(1)) == {TOPIC_ID}
