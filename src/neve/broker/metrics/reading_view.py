"""The sources of fetched records, and the cost of catch-up reads."""

from __future__ import annotations

from collections.abc import Iterator

from neve.log.index_cache import IndexCache
from neve.log.reading.leader.reader import LogReader
from neve.serving.text import one, several


def reading_view(reader: LogReader, indexes: IndexCache) -> Iterator[str]:
    cold, blocks = reader.cold.counters, reader.cold.blocks.counters
    reads = (("memory", reader.memory_reads), ("ahead", cold.ahead_hits), ("store", cold.reads))
    yield several("neve_reads_total", [((source,), count) for source, count in reads])
    yield one("neve_catchup_downloads_total", blocks.downloads)
    yield one("neve_catchup_bytes_total", blocks.bytes)
    yield one("neve_catchup_pauses_total", reader.cold.throttle.pauses)
    found = indexes.counters
    asked = (("memory", found.memory_hits), ("file", found.file_hits), ("store", found.loads))
    yield several("neve_index_cache_requests_total", [((where,), count) for where, count in asked])
    yield one("neve_index_cache_failures_total", found.load_failures)
