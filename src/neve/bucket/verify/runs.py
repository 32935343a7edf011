"""Checks a manifest's runs: the objects that list up to a thousand segments each."""

from __future__ import annotations

import itertools

from neve.bucket.verify.context import VerifyContext
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.downloads import fetch_checked
from neve.log.envelope import ENVELOPE_BYTES_MAX, Kind, decode_payload, open_envelope
from neve.log.keys import SeriesKeys
from neve.log.manifest.records import Run, RunBody


async def check_run(context: VerifyContext, keys: SeriesKeys, run: Run) -> str:
    """Return why a run is unusable or contradicts its manifest; an empty string if it is sound."""

    def decode(data: memoryview) -> RunBody:
        envelope = open_envelope(data, Kind.MANIFEST_RUN, keys.prefix, 0, run.key)
        body: RunBody = decode_payload(envelope, RunBody, run.key)
        return body

    try:
        rows = (await fetch_checked(context.store, run.key, ENVELOPE_BYTES_MAX, decode)).segments
    except NotFoundError:
        return "it is listed but missing"
    except (DamagedError, UnsupportedError) as error:
        return getattr(error, "reason", str(error))
    context.report.read("runs", 0)
    ordered = all(row.last < after.base for row, after in itertools.pairwise(rows))
    if not rows or not ordered:
        return "its segments are not in their order"
    found = (rows[0].base, rows[-1].last, len(rows), sum(row.bytes for row in rows))
    if found != (run.base, run.last, run.segments, run.bytes):
        return (
            f"it has {found[2]} segments of {found[3]} bytes from {found[0]} to {found[1]}, its "
            f"manifest states {run.segments} of {run.bytes} from {run.base} to {run.last}"
        )
    return ""
