"""A bundle made of its segment alone, and of what was known before it.

Producer state, epoch history and an internal partition's table at a segment's end are those before
it with its batches taken in. So a lost or damaged bundle, or one that KafScale wrote, is replaced
without asking anyone.
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
    """The new bundle, the segment's facts, and what holds at its end."""

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
    """Check a whole segment, every batch included, and index it.

    The arguments are the state before the segment; `state` is None unless the topic is internal.
    """
    history = History(key, producers, epochs, state)
    segment = kfs.check(data, key, observe=history.observe)
    return Rebuilt(bundle_of(segment, history, interval), segment.facts, history)


def bundle_of(segment: kfs.Segment, history: History, interval: int) -> bytes:
    """The bundle of a segment whose batches `history` has just taken in."""
    return build_bundle(
        segment,
        interval,
        producers=history.producers.entries(),
        epochs=history.epochs.starts,
        transactions=history.aborted,
        state=None if history.state is None else history.state.rows(),
    )
