"""Jobs that change manifests beside the leader, as maintenance does: repair, merging, retention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from neve import runtime
from neve.cluster.state import Topic
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import new_segment_key, segment_prefix
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Change, Replace, Segment, removal
from neve.log.manifest.state import ManifestState
from neve.log.remote import load_bundle
from neve.log.restore import history_of
from neve.log.segment import kfs
from neve.log.segment.rebuild import bundle_of
from neve.log.segment.upload import upload_pair
from neve.store.port import Store


def manifest_of(store: Store, topic: Topic, partition: int) -> Manifest:
    return Manifest(store, manifest_keys(topic.name, topic.id_bytes, partition))


async def repair(store: Store, topic: Topic, partition: int) -> None:
    """Doom what nobody lists, then delete what is doomed."""
    manifest = manifest_of(store, topic, partition)
    prefix = segment_prefix(topic.name, topic.id_bytes, partition)
    found = [row.key for row in await store.list(prefix)]
    await manifest.doom(found)
    await manifest.collect()


async def merge(store: Store, topic: Topic, partition: int, manifest: Manifest) -> None:
    """Replace two neighbouring segments by one, then delete what is doomed.

    The manifest is kept from one run to the next, so that its view is often old.
    """
    if runtime.chance().random() < 0.5:
        await manifest.refresh()
    base = manifest.view
    loose = base.state.loose
    pairs = [(a, b) for a, b in itertools.pairwise(loose) if b.base == a.last + 1]
    if not pairs:
        return
    pair = runtime.chance().choice(pairs)
    merged = await _upload_merged(store, topic, partition, pair)

    def make(state: ManifestState) -> Sequence[Change]:
        if not set(pair) <= set(state.loose):
            return []
        return [Replace(tuple(map(removal, pair)), (merged,))]

    assert merged.index_key is not None
    await manifest.commit(base, (merged.key, merged.index_key), make)
    await manifest.collect()


async def _upload_merged(
    store: Store, topic: Topic, partition: int, pair: tuple[Segment, Segment]
) -> Segment:
    bodies = []
    for segment in pair:
        data = await store.get(segment.key)
        kfs.check(data, segment.key)
        bodies.append(data[kfs.HEADER_BYTES : -kfs.FOOTER_BYTES])
    built = kfs.build(pair[0].base, runtime.now_ms(), bodies)
    data = b"".join(built.parts)
    at_end = history_of(await load_bundle(store, pair[1]), "merged", internal=False)
    bundle = bundle_of(built, at_end, 10)  # what held at the second one's end holds at its end
    prefix = segment_prefix(topic.name, topic.id_bytes, partition)
    key = new_segment_key(prefix, pair[0].base, 0, "kfs")
    index_key = new_segment_key(prefix, pair[0].base, 0, "index")
    await upload_pair(store, key, data, index_key, bundle)
    return Segment(
        key=key,
        index_key=index_key,
        base=pair[0].base,
        last=pair[1].last,
        bytes=len(data),
        index_bytes=len(bundle),
        records=built.facts.message_count,
        min_timestamp=built.facts.min_base_timestamp,
        max_timestamp=built.facts.max_timestamp,
        created_ms=built.facts.created_ms,
        epoch=pair[1].epoch,
        crc=built.facts.body_crc,
    )
