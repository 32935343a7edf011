"""Imports a KafScale bucket's topics in place, by writing manifests for them.

No byte of a segment is copied or changed: the manifests list KafScale's objects under their own
keys, marked as not Neve's to delete. An import runs beside live brokers, and may be killed and run
again. It creates a topic without partitions, so that no broker can lead any. Then it lists each
partition's segments in the first number of its manifest, written once. Only then does one change of
the cluster log add the partitions to the topic, so a reader that sees a partition sees all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from neve import runtime
from neve.bucket.maintain.commit import upload_run
from neve.bucket.maintain.guard import GuardedStore
from neve.bucket.maintain.imported_partition import ImportedPartition, examine_partition
from neve.bucket.maintain.kafscale_files import list_kafscale
from neve.bucket.maintain.same_batches import holds_batches_of
from neve.cluster.log import ClusterLog
from neve.cluster.records import AddPartitions, CreateTopic
from neve.cluster.records import Change as ClusterChange
from neve.cluster.state import ClusterState, Topic
from neve.cluster.topic_rules import (
    NoTopicError,
    TopicExistsError,
    check_new_name,
    check_partition_count,
    check_topic_name,
)
from neve.errors import InvalidError, NeveError
from neve.log.keys import CLUSTER_LOG_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import RUN_SEGMENTS_MAX, Manifest
from neve.log.manifest.records import Add, Change, Runs, Segment, Start
from neve.log.segment.kafscale import ForeignSegment
from neve.log.segment.state_table import is_internal
from neve.settings import Settings
from neve.store.port import Store
from neve.store.probe import probe as probe_store
from neve.store.wrapper import Wrapper

# Imported records are often old: the default retention of a week would delete them at once.
CONFIGS = {"retention.ms": "-1"}
OWN_FOLDERS = tuple(
    prefix.partition("/")[0] for prefix in (CLUSTER_LOG_PREFIX, WAL_PREFIX, TOPICS_PREFIX, "probe/")
)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What to import, and whether to check every segment."""

    namespace: str | None = None
    topics: Sequence[str] | None = None
    trust: bool = False
    skip_damaged: bool = False
    dry_run: bool = False


@dataclass
class ImportedTopic:
    """The result for one topic: `outcome` is "imported", "planned", "there" or "refused"."""

    topic: str
    namespace: str
    outcome: str = "refused"
    reason: str = ""
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    skipped_offsets: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class ImportResult:
    """All topics by name, and the index files without a segment."""

    topics: list[ImportedTopic] = field(default_factory=list)
    half_pairs: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(row.outcome != "refused" for row in self.topics)


async def import_kafscale(
    store: Store,
    options: ImportOptions | None = None,
    *,
    settings: Settings | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportResult:
    """Import the requested topics. Reports those that cannot be imported, and imports the rest."""
    chosen = options or ImportOptions()
    found = await list_kafscale(store)
    rows = [row for each in found.partitions.values() for row in each]
    wanted = _wanted(rows, chosen)
    work = _Importing(store, settings or Settings(), chosen, progress)
    await work.begin()
    result = ImportResult(half_pairs=found.half_pairs)
    for (topic, namespace), segments in wanted.items():
        topic_row = ImportedTopic(topic, namespace)
        result.topics.append(topic_row)
        others = sorted(space for name, space in wanted if name == topic and space != namespace)
        try:
            _check_names(topic, namespace, others)
            await work.topic(topic_row, segments)
        except NeveError as error:
            topic_row.reason = str(error)
    return result


def _wanted(
    rows: Sequence[ForeignSegment], options: ImportOptions
) -> dict[tuple[str, str], list[ForeignSegment]]:
    found: dict[tuple[str, str], list[ForeignSegment]] = {}
    for row in sorted(rows):
        name = row.name
        in_namespace = options.namespace in (None, name.namespace)
        if in_namespace and (options.topics is None or name.topic in options.topics):
            found.setdefault((name.topic, name.namespace), []).append(row)
    missing = sorted(set(options.topics or ()) - {topic for topic, _ in found})
    if missing:
        raise NoTopicError(f"the KafScale bucket has no topic {', '.join(map(repr, missing))}")
    return dict(sorted(found.items()))


def _check_names(topic: str, namespace: str, others: Sequence[str]) -> None:
    check_topic_name(topic)
    if is_internal(topic):
        raise InvalidError(f"topic {topic!r} is one of Neve's own: another's cannot take its place")
    if others:
        raise InvalidError(
            f"topic {topic!r} is in the namespaces {', '.join(sorted([namespace, *others]))}: "
            "import one of them with --namespace"
        )
    if namespace.partition("/")[0] in OWN_FOLDERS:
        raise InvalidError(
            f"Neve keeps its own objects under the namespace {namespace!r}: such a topic "
            "cannot be imported in place"
        )


class _Importing:
    """One run of an import."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        options: ImportOptions,
        progress: Callable[[int], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._options = options
        self._progress = progress
        self._cluster = ClusterLog(store, settings.cluster)

    async def begin(self) -> None:
        """Create a cluster in the bucket if it has none, unless this is a dry run."""
        state = await self._cluster.refresh()
        if not state.cluster_id and not self._options.dry_run:
            await probe_store(self._store)
            await self._cluster.init()

    async def topic(self, topic_row: ImportedTopic, segments: Sequence[ForeignSegment]) -> None:
        existing = (await self._cluster.refresh()).topic(topic_row.topic)
        if existing is not None and existing.partitions:
            await self._already_there(topic_row, existing, segments)
            return
        if existing is None:
            check_new_name(self._cluster.state, topic_row.topic)
        total = max(row.name.partition for row in segments) + 1
        check_partition_count(self._cluster.state, self._settings.cluster, topic_row.topic, total)
        examined = await self._examine(segments, total)
        for imported in examined:
            topic_row.segments += len(imported.segments)
            topic_row.bytes += sum(row.bytes for row in imported.segments)
            topic_row.skipped_offsets += sum(row.last - row.first + 1 for row in imported.skips)
            topic_row.notes += imported.notes
        topic_row.partitions = len(examined)
        if self._options.dry_run:
            topic_row.outcome = "planned"
            return
        topic = existing or await self._create(topic_row.topic, len(examined))
        await self._write(topic, examined)
        topic_row.outcome = "imported"

    async def _already_there(
        self, topic_row: ImportedTopic, topic: Topic, segments: Sequence[ForeignSegment]
    ) -> None:
        """Set the outcome to "there" if the existing topic is an earlier import of this one.

        Raises TopicExistsError otherwise.
        """
        prefix = f"{topic_row.namespace}/" if topic_row.namespace else ""
        prefix += f"{topic_row.topic}/"
        for partition in range(len(topic.partitions)):
            manifest = Manifest(self._store, manifest_keys(topic.name, topic.id_bytes, partition))
            await manifest.refresh()
            rows = await manifest.segments()
            theirs = [row for row in segments if row.name.partition == partition]
            if any(row.key.startswith(prefix) for row in rows) or await holds_batches_of(
                self._store, rows, theirs
            ):
                topic_row.outcome, topic_row.partitions = "there", len(topic.partitions)
                return
        raise TopicExistsError(
            f"there is a topic {topic_row.topic!r} already, and none of its batches is in the "
            "KafScale bucket: it is another topic, or what was imported before has been deleted "
            "since by retention. To read both, import from a copy of the KafScale bucket "
            "at another URL"
        )

    async def _examine(
        self, segments: Sequence[ForeignSegment], total: int
    ) -> list[ImportedPartition]:
        by_partition = {
            partition: list(rows)
            for partition, rows in itertools.groupby(segments, key=lambda row: row.name.partition)
        }
        return [
            await examine_partition(
                self._store,
                partition,
                by_partition.get(partition, []),
                trust=self._options.trust,
                skip_damaged=self._options.skip_damaged,
                progress=self._progress,
            )
            for partition in range(total)
        ]

    async def _create(self, name: str, partitions: int) -> Topic:
        """Create the topic without partitions, so that no broker can lead one of them yet."""
        sent: list[str] = []

        def derive(state: ClusterState) -> ClusterChange | None:
            if any(topic_id in state.topics for topic_id in sent):
                return None
            check_new_name(state, name)
            check_partition_count(state, self._settings.cluster, name, partitions)
            sent.append(runtime.token(16).hex())
            return CreateTopic(
                name=name,
                topic_id=sent[-1],
                partitions=0,
                at_ms=runtime.now_ms(),
                configs=dict(CONFIGS),
            )

        await self._cluster.propose(derive)
        topic = self._cluster.state.topic(name)
        if topic is None:
            raise NoTopicError(f"topic {name!r} was created, and deleted at once by another")
        return topic

    async def _write(self, topic: Topic, examined: Sequence[ImportedPartition]) -> None:
        delay_ms = self._settings.cluster.purge_delay_ms
        guarded = GuardedStore(self._store, self._cluster, topic, purge_delay_ms=delay_ms)
        for imported in examined:
            if not await _first_number(guarded, topic, imported):
                await self._check_ended(topic, imported)

        def derive(state: ClusterState) -> ClusterChange | None:
            now = state.topics.get(topic.topic_id)
            if now is None:
                raise NoTopicError(f"topic {topic.name!r} was deleted while it was imported")
            if len(now.partitions) >= len(examined):
                return None
            return AddPartitions(topic.topic_id, len(examined))

        await self._cluster.propose(derive)

    async def _check_ended(self, topic: Topic, imported: ImportedPartition) -> None:
        """Raise InvalidError if an unfinished import listed other segments in this partition.

        If the topic has partitions by now, another import ended, and the log has changed since.
        """
        now = (await self._cluster.refresh()).topics.get(topic.topic_id)
        if now is None or not now.partitions:
            raise InvalidError(
                f"an import of topic {topic.name!r} that was not ended listed other segments in "
                f"partition {imported.partition}, of another namespace or before there were more: "
                "delete the topic, and import it again"
            )


async def _first_number(store: Wrapper, topic: Topic, imported: ImportedPartition) -> bool:
    """List a partition's segments in the first number of its manifest, unless that exists.

    Returns False if the manifest lists other segments.
    """
    keys = manifest_keys(topic.name, topic.id_bytes, imported.partition)
    manifest = Manifest(store, keys)
    await manifest.refresh()
    base = manifest.view
    if base.position == 0:
        await manifest.change_at(base, await _changes(store, manifest, imported))
    left = [row.key for row in await store.list(f"{keys.prefix}run/")]
    if left:
        await manifest.doom(left)  # runs of an unfinished attempt; listed ones are not doomed
    listed = {row.key for row in await manifest.segments()}
    return listed == {row.key for row in imported.segments}


async def _changes(store: Store, manifest: Manifest, imported: ImportedPartition) -> list[Change]:
    if not imported.segments:
        return [Start(0)]  # takes the first number, so that no other import can write it
    changes: list[Change] = [Start(imported.start)] if imported.start else []
    rows = imported.segments
    if len(rows) < RUN_SEGMENTS_MAX:
        changes.append(Add(tuple(rows)))
    else:
        pieces = [rows[at : at + RUN_SEGMENTS_MAX] for at in range(0, len(rows), RUN_SEGMENTS_MAX)]
        runs = [await upload_run(store, manifest, piece) for piece in pieces]
        # One number must list any number of segments: it adds one row that spans all of them,
        # and replaces that row by runs.
        changes += [Add((_spanning(rows),)), Runs(tuple(runs))]
    return [*changes, *imported.skips]


def _spanning(rows: Sequence[Segment]) -> Segment:
    return Segment(
        key=rows[0].key,
        base=rows[0].base,
        last=rows[-1].last,
        bytes=sum(row.bytes for row in rows),
        records=sum(row.records for row in rows),
        min_timestamp=min(row.min_timestamp for row in rows),
        max_timestamp=max(row.max_timestamp for row in rows),
        created_ms=rows[0].created_ms,
        epoch=rows[0].epoch,
        crc=rows[0].crc,
        owned=False,
    )
