"""Every reader against every way in which a segment, its index or another listed object can fail.

The result is right, or a clear error names the object; and partitions that have nothing to do with
it are read as if nothing were.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

import neve
from neve import runtime
from neve.bucket import follow
from neve.bucket.async_bucket import AsyncBucket
from neve.cli import main
from neve.errors import DamagedError, LostRangeError, NeveError, NotFoundError
from neve.log.index_cache import IndexCache
from neve.log.remote import BucketRemoteStorage
from support import bucket_samples as samples
from support.bucket_samples import ONE_AT_A_TIME, QUICK, Writer, expected, shown
from support.node_world import take_over

END = 80
"""Records in each partition: two segments of 20, a roll-up of 20, and 20 in plain WAL objects."""


class Scene:
    """Two topics on streams of their own: `hurt`, and `well` that nothing is done to."""

    def __init__(self, url: str, first: Writer, second: Writer) -> None:
        self.url, self.first, self.second = url, first, second
        self.harmed = ""

    @classmethod
    async def set_up(cls) -> Scene:
        url = samples.fresh_url()
        first, second = await Writer.start(url, 1), await Writer.start(url, 2)
        await samples.layered(first, "hurt")
        await samples.layered(second, "well")
        return cls(url, first, second)

    async def segment_key(self) -> str:
        return (await self.first.segments("hurt", 0))[1].key

    async def index_key(self) -> str:
        return (await self.first.segments("hurt", 0))[1].index_key or ""

    def under_stream(self, part: str) -> str:
        prefix = self.first.node.writer.keys.prefix
        keys = [key for key in samples.objects(self.url).keys if key.startswith(prefix)]
        return next(key for key in keys if part in key[len(prefix) :])


async def index_missing(scene: Scene) -> None:
    samples.remove(scene.url, await scene.index_key())


async def index_damaged(scene: Scene) -> None:
    samples.damage(scene.url, await scene.index_key())


async def index_of_another(scene: Scene) -> None:
    """Sound in itself, and of the same size: only the segment contradicts it."""
    first, second = await scene.first.segments("hurt", 0)
    store = samples.objects(scene.url)
    store.write(second.index_key or "", store.objects[first.index_key or ""][0])


async def segment_missing(scene: Scene) -> None:
    scene.harmed = await scene.segment_key()
    samples.remove(scene.url, scene.harmed)


async def segment_damaged(scene: Scene) -> None:
    scene.harmed = await scene.segment_key()
    samples.damage(scene.url, scene.harmed)


async def both_damaged(scene: Scene) -> None:
    await segment_damaged(scene)
    await index_damaged(scene)


async def rollup_gone(scene: Scene) -> None:
    scene.harmed = scene.under_stream("rollup/")
    samples.remove(scene.url, scene.harmed)


async def rollup_damaged(scene: Scene) -> None:
    scene.harmed = scene.under_stream("rollup/")
    samples.damage(scene.url, scene.harmed)


async def wal_object_damaged(scene: Scene) -> None:
    position = (await scene.first.node.cluster.refresh(), scene.first.node.writer.committed_end)[1]
    scene.harmed = scene.first.node.writer.keys.number(position - 1)
    samples.damage(scene.url, scene.harmed)


HARMLESS = [index_missing, index_damaged, index_of_another]
OF_SEGMENTS = [segment_missing, segment_damaged, both_damaged]
OF_STREAMS = [rollup_gone, rollup_damaged, wal_object_damaged]
Harm = Callable[[Scene], Awaitable[None]]


async def scene_with(harm: Harm) -> Scene:
    scene = await Scene.set_up()
    await harm(scene)
    await scene.first.close()
    await scene.second.close()
    return scene


def read_by_open(url: str) -> tuple[list[tuple[str, int]], NeveError | None]:
    """Topics and offsets in the order they came, and the error at the end."""
    rows: list[tuple[str, int]] = []
    with neve.open(url, settings=QUICK) as bucket:
        try:
            for record in bucket.read():
                assert record.value == samples.value_of(record.topic, 0, record.offset)
                rows.append((record.topic, record.offset))
        except NeveError as error:
            return rows, error
    return rows, None


def read_by_arrow(url: str) -> tuple[list[tuple[str, int]], NeveError | None]:
    rows: list[tuple[str, int]] = []
    with neve.open(url, settings=QUICK) as bucket:
        try:
            for batch in bucket.arrow():
                for row in batch.to_pylist():
                    assert row["value"] == samples.value_of(row["topic"], 0, row["offset"])
                    rows.append((row["topic"], row["offset"]))
        except NeveError as error:
            return rows, error
    return rows, None


def offsets(rows: list[tuple[str, int]], topic: str) -> list[int]:
    return [offset for name, offset in rows if name == topic]


# --- neve.open


@pytest.mark.parametrize("read", [read_by_open, read_by_arrow])
@pytest.mark.parametrize("harm", HARMLESS)
def test_open_reads_on_without_an_index(harm: Harm, read: Callable[..., object]) -> None:
    scene = runtime.run(scene_with(harm))
    rows, error = read(scene.url)  # type: ignore[misc]
    assert error is None
    assert offsets(rows, "hurt") == offsets(rows, "well") == list(range(END))


@pytest.mark.parametrize("read", [read_by_open, read_by_arrow])
@pytest.mark.parametrize("harm", OF_SEGMENTS)
def test_open_names_the_segment_and_reads_the_rest(harm: Harm, read: Callable[..., object]) -> None:
    scene = runtime.run(scene_with(harm))
    rows, error = read(scene.url)  # type: ignore[misc]
    assert isinstance(error, DamagedError)
    assert error.key == scene.harmed
    assert "neve storage skip" in str(error)
    found = offsets(rows, "hurt")
    assert found == list(range(len(found)))
    assert 20 <= len(found) < 40
    assert offsets(rows, "well") == list(range(END))


@pytest.mark.parametrize("harm", OF_STREAMS)
def test_open_names_the_stream_s_object_and_reads_what_is_tiered(harm: Harm) -> None:
    scene = runtime.run(scene_with(harm))
    rows, error = read_by_open(scene.url)
    assert isinstance(error, DamagedError)
    assert error.key == scene.harmed
    found = offsets(rows, "hurt")
    assert found == list(range(len(found)))
    assert len(found) >= 40
    assert offsets(rows, "well") == list(range(END))


# --- dump


def dumped(capfdbinary: pytest.CaptureFixture[bytes], url: str) -> tuple[int, list[dict], str]:
    flags = [f"--set={name}={value}" for name, value in QUICK.items()]
    code = main(["storage", "dump", url, *flags])
    out, err = capfdbinary.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err.decode()


@pytest.mark.parametrize("harm", [*HARMLESS, *OF_SEGMENTS, *OF_STREAMS])
def test_dump_writes_what_is_right_and_tells_the_rest(
    harm: Harm, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    scene = runtime.run(scene_with(harm))
    code, rows, told = dumped(capfdbinary, scene.url)
    found = [row["offset"] for row in rows if row["topic"] == "hurt"]
    assert found == list(range(len(found)))
    assert [row["offset"] for row in rows if row["topic"] == "well"] == list(range(END))
    if harm in HARMLESS:
        assert (code, len(found), told) == (0, END, "")
    else:
        assert code == 1
        assert scene.harmed in told
        assert len(told.splitlines()) == 1


# --- recovery


async def recover(scene: Scene, topic: str) -> Writer:
    successor = await Writer.start(scene.url, 3)
    try:
        await take_over(successor.node, [topic])
    except BaseException:
        await successor.abort()
        raise
    return successor


@pytest.mark.parametrize("harm", [*HARMLESS, segment_missing, segment_damaged])
async def test_recovery_does_not_need_what_is_tiered(harm: Harm) -> None:
    scene = await Scene.set_up()
    await harm(scene)
    await scene.first.abort()
    successor = await recover(scene, "hurt")
    assert successor.node.leader("hurt", 0).log.next_offset == END
    await successor.append("hurt", 0, 5)
    await successor.close()
    await scene.second.close()
    rows, error = await read_async(scene.url)
    if harm in HARMLESS:
        assert error is None
        assert offsets(rows, "hurt") == list(range(END + 5))
    else:
        assert isinstance(error, DamagedError)
        assert error.key == scene.harmed
    assert offsets(rows, "well") == list(range(END))


@pytest.mark.parametrize("harm", [both_damaged, *OF_STREAMS])
async def test_recovery_is_right_or_names_what_it_cannot_do_without(harm: Harm) -> None:
    scene = await Scene.set_up()
    await harm(scene)
    await scene.first.abort()
    await scene.second.abort()
    refused: str | None = None
    try:
        successor = await recover(scene, "hurt")
        assert successor.node.leader("hurt", 0).log.next_offset == END
        await successor.close()
    except DamagedError as error:
        refused = error.key
    assert refused in (None, scene.harmed)
    rows, error = await read_async(scene.url)
    assert isinstance(error, DamagedError)
    assert error.key == scene.harmed
    assert offsets(rows, "hurt") == list(range(len(offsets(rows, "hurt"))))
    assert offsets(rows, "well") == list(range(END))
    successor = await recover(scene, "well")
    assert successor.node.leader("well", 0).log.next_offset == END
    await successor.close()


# --- cached index read


@pytest.mark.parametrize("harm", [*HARMLESS, *OF_SEGMENTS])
async def test_a_cached_index_is_right_or_an_error_names_it(harm: Harm) -> None:
    scene = await Scene.set_up()
    await harm(scene)
    first, second = await scene.first.segments("hurt", 0)
    remote = BucketRemoteStorage(scene.first.stack.store)
    async with await IndexCache.open(remote, scene.first.chosen.cache) as cache:
        assert (await cache.get(first)).last_offset == first.last
        if harm in (index_missing, index_damaged, both_damaged):
            with pytest.raises((NotFoundError, DamagedError)) as caught:
                await cache.get(second)
            assert caught.value.key == second.index_key
        elif harm is not index_of_another:
            assert (await cache.get(second)).last_offset == second.last
    await scene.first.abort()
    await scene.second.abort()


# --- objects that move under the reader


async def read_async(url: str) -> tuple[list[tuple[str, int]], NeveError | None]:
    rows: list[tuple[str, int]] = []
    async with await samples.opened(url) as bucket:
        try:
            async for record in bucket.read():
                rows.append((record.topic, record.offset))
        except NeveError as error:
            return rows, error
    return rows, None


@pytest.fixture
def _object_by_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that these logs hold would be read before a caller gets the first record."""
    monkeypatch.setattr(follow, "GROUP_BYTES", 1)


async def read_while(
    scene: Scene, between: Callable[[], Awaitable[object]], after: int, **bounds: object
) -> tuple[list[tuple[str, int]], NeveError | None]:
    """Read one object at a time, and let something happen after so many records."""
    rows: list[tuple[str, int]] = []
    chosen = samples.settings(**{n.replace(".", "__"): v for n, v in ONE_AT_A_TIME.items()})
    async with await AsyncBucket.connect(scene.url, settings=chosen) as bucket:
        try:
            async for record in bucket.read(**bounds):  # type: ignore[arg-type]
                assert record.value == samples.value_of(record.topic, 0, record.offset)
                rows.append((record.topic, record.offset))
                if len(rows) == after:
                    await between()
        except NeveError as error:
            return rows, error
    return rows, None


async def tiered_and_trimmed(scene: Scene) -> None:
    """The tail becomes segments, and its objects go."""
    node = scene.first.node
    await node.leader("hurt", 0).log.tier()
    await node.rollups.roll_up()


@pytest.mark.usefixtures("_object_by_object")
async def test_what_is_tiered_and_trimmed_under_a_reader_is_read_on() -> None:
    scene = await Scene.set_up()
    rows, error = await read_while(scene, lambda: tiered_and_trimmed(scene), after=3)
    assert error is None
    assert offsets(rows, "hurt") == offsets(rows, "well") == list(range(END))
    await scene.first.close()
    await scene.second.close()


@pytest.mark.usefixtures("_object_by_object")
async def test_a_range_deleted_under_a_reader_is_an_error_that_names_it() -> None:
    scene = await Scene.set_up()
    await scene.first.node.leader("hurt", 0).log.tier()
    # The next segment is on its way when the first one's records arrive; the third is not.
    third = (await scene.first.segments("hurt", 0))[2]
    rows, error = await read_while(scene, lambda: scene.first.start_at("hurt", 0, END), after=1)
    assert offsets(rows, "hurt") == list(range(third.base))
    assert isinstance(error, LostRangeError)
    assert third.key in str(error)
    assert f"starts at {END} now" in str(error)
    assert offsets(rows, "well") == list(range(END))
    await scene.first.close()
    await scene.second.close()


async def test_a_range_deleted_before_it_is_asked_for_moves_the_earliest() -> None:
    scene = await Scene.set_up()
    await scene.first.start_at("hurt", 0, 40)
    rows, error = await read_async(scene.url)
    assert error is None
    assert offsets(rows, "hurt") == list(range(40, END))
    async with await samples.opened(scene.url) as bucket:
        with pytest.raises(LostRangeError, match="below the log's start at 40"):
            shown([row async for row in bucket.read("hurt", from_offset=39)])
        found = [row async for row in bucket.read("hurt", from_offset=40)]
        assert shown(found) == expected("hurt", 0, 40, END)
    await scene.first.close()
    await scene.second.close()


@pytest.mark.usefixtures("_object_by_object")
async def test_a_topic_deleted_under_a_reader_is_told() -> None:
    scene = await Scene.set_up()
    await scene.first.node.leader("hurt", 0).log.tier()

    async def delete() -> None:
        await scene.first.node.cluster.delete_topic("hurt")
        for key in list(samples.objects(scene.url).keys):
            if key.startswith("topics/hurt."):
                samples.remove(scene.url, key)

    rows, error = await read_while(scene, delete, after=1)
    assert error is not None
    assert "deleted while it was read" in str(error)
    assert offsets(rows, "well") == list(range(END))
    await scene.first.close()
    await scene.second.close()
