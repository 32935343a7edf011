"""What a topic's settings mean for the start of its logs: retention by age and by size."""

from __future__ import annotations

from collections.abc import Mapping

from neve import runtime
from neve.errors import InvalidError
from neve.log.partition import PartitionLog
from neve.log.retention import move_start, start_by_age, start_by_size

# Kafka's defaults: a week, and any size. -1 turns either off.
RETENTION_MS_DEFAULT = 7 * 24 * 3600 * 1000
RETENTION_BYTES_DEFAULT = -1


async def retain(log: PartitionLog, configs: Mapping[str, str]) -> None:
    """Drop the oldest segments of one partition that its topic's settings no longer keep."""
    age_ms = _number(configs, "retention.ms", RETENTION_MS_DEFAULT)
    size = _number(configs, "retention.bytes", RETENTION_BYTES_DEFAULT)
    await log.manifest.refresh()
    segments = await log.manifest.segments()
    start = log.manifest.state.start
    if age_ms >= 0:
        start = start_by_age(segments, runtime.now_ms() - age_ms, start)
    if size >= 0:
        start = start_by_size(segments, size, log.tail_bytes, start)
    if start > log.manifest.state.start:
        await move_start(log.manifest, start, end=log.high_watermark)


def _number(configs: Mapping[str, str], name: str, default: int) -> int:
    text = configs.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise InvalidError(f"{name} = {text!r} is not a whole number") from None
