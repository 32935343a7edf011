"""The probe against real S3 servers, bare and through the stack."""

from __future__ import annotations

import pytest

from neve.store.probe import probe
from neve.store.url import connect, open_store
from support.servers import S3Server


@pytest.fixture(params=["moto_s3", "seaweed_s3"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


async def test_both_servers_keep_the_rules_and_are_left_clean(server: S3Server) -> None:
    url = f"s3://{server.new_bucket()}/somewhere"
    bare = open_store(url, server.settings())
    assert all(report.ok for report in await probe(bare))
    wrapped = connect(url, server.settings())
    assert all(report.ok for report in await probe(wrapped.store))
    assert list(await bare.list("")) == []
    await wrapped.close()
    await bare.close()


async def test_folder_markers_are_not_listed(server: S3Server) -> None:
    bucket = server.new_bucket()
    client = server.client()
    for key in ("top/", "top/folder/", "top/folder/object"):
        client.put_object(Bucket=bucket, Key=key, Body=b"x" if key.endswith("object") else b"")
    client.close()
    store = open_store(f"s3://{bucket}", server.settings())
    for prefix in ("", "top", "top/", "top/folder", "top/folder/"):
        assert [row.key for row in await store.list(prefix)] == ["top/folder/object"], prefix
