"""The same promises with every catalog and on a bucket: SQL, REST and Glue, folder and S3."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from neve import runtime
from neve.lake.tables import (
    CommitKind,
    MaintenancePolicy,
    MaintenanceReport,
    catalog_of,
    commit,
    commit_range,
    maintain,
    read_progress,
)
from neve.lake.tables.maintenance.orphan_files import remove_orphans
from support.servers import REGION, S3Server, moto_s3
from unit.lake.tables.rest_catalog import RestServer, rest_server
from unit.lake.tables.table_scene import (
    at,
    held,
    letter_rows,
    letters_held,
    letters_in,
    once,
    rows,
    table_in,
    written,
)

__all__ = ["moto_s3"]
DAY_MS = 86_400_000


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestServer]:
    with rest_server(tmp_path / "rest") as server:
        yield server


@pytest.fixture(scope="module")
def aws(moto_s3: S3Server) -> Iterator[S3Server]:
    """moto once more, without what takes a body's length from its header: pyarrow sends none.

    Both share their buckets, being in one process.
    """
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield dataclasses.replace(moto_s3, endpoint=f"http://{host}:{port}")
    server.stop()


@pytest.fixture(params=["sql on a folder", "sql on s3", "rest", "glue on s3"])
def catalogs(
    request: pytest.FixtureRequest, tmp_path: Path, aws: S3Server
) -> Iterator[list[Catalog]]:
    """Two of the same, as two pipelines would have them."""
    opened = [_open(request, tmp_path, aws) for _ in range(2)]
    yield opened
    # Glue has one catalog for all tests.
    for name in opened[0].list_tables("lake"):
        opened[0].drop_table(name)
    for catalog in opened:
        catalog.close()


def _open(request: pytest.FixtureRequest, folder: Path, server: S3Server) -> Catalog:
    if request.param == "sql on a folder":
        return catalog_of({}, str(folder / "store"))
    if request.param == "rest":
        uri = request.getfixturevalue("rest").uri
        return catalog_of({"type": "rest", "uri": uri}, str(folder))
    if not hasattr(request.node, "bucket"):
        request.node.bucket = server.new_bucket()
    url = f"s3://{request.node.bucket}/here"
    settings = server.settings()
    if request.param == "sql on s3":
        return catalog_of({"folder": str(folder / "catalog")}, url, store=settings)
    glue = {"type": "glue", "glue.endpoint": server.endpoint, "glue.region": REGION}
    return catalog_of(glue, url, store=settings)


def test_two_pipelines_on_one_table(catalogs: list[Catalog]) -> None:
    tables = [table_in(catalog) for catalog in catalogs]
    letters = [letters_in(catalog) for catalog in catalogs]
    files = [written(table, rows(0, 3), rows(4, 120)) for table in tables]
    bad = [written(each, letter_rows([3])) for each in letters]
    kinds = []
    for number in (0, 1):
        outcome = commit_range(
            tables[number],
            files[number],
            {},
            at(120),
            letters=lambda number=number: letters[number],  # type: ignore[misc]
            letter_files=bad[number],
        )
        kinds.append(outcome.kind)
    assert kinds == [CommitKind.COMMITTED, CommitKind.ALREADY]
    stale = tables[0]
    assert commit(tables[1], written(tables[1], rows(120, 130)), at(120), at(130)).in_table
    # This one still holds the table as it was before, and must find that out by itself.
    assert commit(stale, written(stale, rows(120, 125)), at(120), at(125)).in_table
    assert read_progress(stale) == at(130)
    assert held(stale) + once(3, 4) == once(0, 130)
    assert letters_held(letters[1]) == {(0, 3): ["broken"]}


def test_a_commit_made_on_a_stale_table_is_refused_and_looked_at_again(
    catalogs: list[Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = (table_in(catalog) for catalog in catalogs)
    files, rival = written(mine, rows(0, 10)), written(theirs, rows(0, 10))
    real: Any = catalogs[0].commit_table
    raced = False

    def late(*arguments: Any) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            assert commit(theirs, rival, {}, at(10)).kind is CommitKind.COMMITTED
        return real(*arguments)

    monkeypatch.setattr(catalogs[0], "commit_table", late)
    assert commit(mine, files, {}, at(10)).kind is CommitKind.ALREADY
    assert held(mine) == once(0, 10)


def test_upkeep_on_every_catalog(catalogs: list[Catalog], monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_in(catalogs[0])
    for first in range(0, 40, 10):
        commit(table, written(table, rows(first, first + 10)), at(first or None), at(first + 10))
    lost = written(table, rows(0, 5))[0].path
    now_ms = runtime.now_ms() + 6 * DAY_MS
    monkeypatch.setattr("neve.runtime.now_ms", lambda: now_ms)
    policy = MaintenancePolicy(merge_files_least=2, keep_snapshots_least=1)
    report = maintain(table_in(catalogs[1]), policy)
    assert (report.files_merged, report.files_written, report.snapshots_expired) == (4, 1, 4)
    assert report.objects_deleted >= 4
    assert report.orphans_deleted >= 1
    assert not table.io.new_input(lost).exists()
    assert held(table) == once(0, 40)
    assert read_progress(table) == at(40)
    again = MaintenanceReport()
    remove_orphans(table, policy, again)
    assert held(table) == once(0, 40)


def test_an_answer_that_a_rest_catalog_loses(rest: RestServer, tmp_path: Path) -> None:
    catalog = catalog_of({"type": "rest", "uri": rest.uri}, str(tmp_path))
    table = table_in(catalog)
    rest.lose_answers = 1
    outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.COMMITTED
    assert rest.lose_answers == 0
    assert held(table) == once(0, 10)
    catalog.close()
