"""`neve.open` over real stores: a synced folder and an S3 server, while a node writes to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import neve
from neve import runtime
from neve.settings import load
from support import bucket_samples as samples
from support.bucket_samples import QUICK, Writer, expected, shown
from support.node_world import take_over
from support.servers import S3Server, moto_s3  # noqa: F401 (a fixture)


@pytest.fixture(params=["folder", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, dict[str, object]]]:
    if request.param == "folder":
        yield str(tmp_path / "bucket"), dict(QUICK)
        return
    server: S3Server = request.getfixturevalue("moto_s3")
    chosen = server.settings()
    given = {**QUICK, "store.endpoint": chosen.endpoint, "store.region": chosen.region}
    yield f"s3://{server.new_bucket()}/some/prefix", given


async def written(url: str, given: dict[str, object]) -> None:
    writer = await Writer.start(url, chosen=load(flags=given))
    await samples.layered(writer, "t", 2)
    await writer.close()


async def appended(url: str, given: dict[str, object]) -> None:
    """A second node takes over and goes on."""
    writer = await Writer.start(url, 2, chosen=load(flags=given))
    await take_over(writer.node)
    await writer.append("t", 0, 10)
    await writer.close()


def test_a_bucket_is_read_and_followed(place: tuple[str, dict[str, object]]) -> None:
    url, given = place
    runtime.run(written(url, given))
    with neve.open(url, settings=given) as bucket:
        assert [(topic.name, topic.partitions) for topic in bucket.topics()] == [("t", (0, 1))]
        assert bucket.offsets("t", 0) == (0, 80)
        everything = expected("t", 0, 0, 80) + expected("t", 1, 0, 80)
        assert shown(list(bucket.read("t"))) == everything
        found = bucket.read("t", 1, from_offset=17, to_offset=63)
        assert shown(list(found)) == expected("t", 1, 17, 63)
        assert sum(batch.num_rows for batch in bucket.arrow("t", from_timestamp=1060)) == 40
        tail = bucket.follow("t", 0)
        runtime.run(appended(url, given))
        assert shown([next(tail) for _ in range(10)]) == expected("t", 0, 80, 90)
        tail.close()  # type: ignore[attr-defined]
