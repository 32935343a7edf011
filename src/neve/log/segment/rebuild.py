"""Rebuilds a bundle from its segment and the history before it.

The producers, epochs and (for an internal partition) table at a segment's end follow from those
before it and its batches. So a lost or damaged bundle, or an index that KafScale wrote, can be
replaced without further information.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neve.log.segment import kfs
from neve.log.segment.bundle import build_bundle
from neve.log.segment.history import History
from neve.log.segment.sections import EpochStart, ProducerEntry, StateRow
from neve.records.batch import Buffer


class Rebuilt(NamedTuple):
    """The new bundle, the segment's facts, and the history at its end."""

    bundle: bytes
    facts: kfs.SegmentFacts
    history: History


def rebuild(
    data: Buffer,
    key: str,
    interval: int,
    *,
    producers: Iterable[ProducerEntry],
    epochs: Iterable[EpochStart],
    state: Iterable[StateRow] | None = None,
) -> Rebuilt:
    """Check a whole segment, including every batch, and build its bundle.

    `producers`, `epochs` and `state` are those before the segment; `state` is None unless the topic
    is internal.
    """
    history = History(key, producers, epochs, state)
    segment = kfs.check(data, key, observe=history.observe)
    return Rebuilt(bundle_of(segment, history, interval), segment.facts, history)


def bundle_of(segment: kfs.Segment, history: History, interval: int) -> bytes:
    """Encode the bundle of a segment. `history` must be the history at the segment's end."""
    return build_bundle(
        segment,
        interval,
        producers=history.producers.entries(),
        epochs=history.epochs.starts,
        transactions=history.aborted,
        state=None if history.state is None else history.state.rows(),
    )
