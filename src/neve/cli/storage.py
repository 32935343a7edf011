"""`neve storage …`: inspect a bucket without a broker."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import dump as dumping
from neve.cli import listing
from neve.cli import verify as verifying
from neve.cli.output import DEFAULT_FLAGS, SettingsFlags, UsageError

Url = Annotated[
    str, Parameter(help="The bucket: s3://, gs://, az://, file://, memory:// or a plain path.")
]
LayoutFlag = Annotated[
    Literal["neve", "kafscale"], Parameter(help="The system that wrote the files.")
]

app = App(name="storage", help="Inspect, verify and repair a bucket without a broker.")
app.command(verifying.verify)
app.command(verifying.skip)


@app.command
def ls(
    url: Url,
    /,
    *,
    json: Annotated[bool, Parameter(negative="", help="Print JSON.")] = False,
    layout: LayoutFlag = "neve",
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """List topics, partitions with their offsets, segments and tails, and WAL streams."""
    return runtime.run(listing.list_bucket(url, layout, settings.load(), as_json=json))


@app.command
def dump(
    url: Url,
    /,
    *,
    topic: Annotated[str | None, Parameter(help="Only this topic. Default: all topics.")] = None,
    partition: Annotated[
        list[int] | None, Parameter(negative="", help="Only this partition. Repeatable.")
    ] = None,
    from_offset: Annotated[
        int | None, Parameter(name="--from", help="First offset. Default: the start of the log.")
    ] = None,
    to_offset: Annotated[
        int | None,
        Parameter(name="--to", help="Stop before this offset. Default: the end of the log."),
    ] = None,
    from_time: Annotated[
        str | None,
        Parameter(help="Only records at or after this time: ISO 8601, or ms since 1970."),
    ] = None,
    to_time: Annotated[str | None, Parameter(help="Only records before this time.")] = None,
    follow: Annotated[
        bool, Parameter(negative="", help="Continue with new records as they are committed.")
    ] = False,
    encoding: Annotated[
        Literal["text", "base64"], Parameter(help="Encoding of keys and values.")
    ] = "text",
    layout: LayoutFlag = "neve",
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:
    """Write records, one JSON object per line.

    Its fields are topic, partition, offset, timestamp (milliseconds since 1970), key, value and
    headers. As text, bytes that are not UTF-8 are written as {"base64": "..."}; null stays null.
    """
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic")
    if follow and (from_time is not None or to_time is not None):
        raise UsageError("--follow cannot be combined with --from-time or --to-time")
    wanted = dumping.DumpSelection(
        topic=topic,
        partitions=partition,
        from_offset=_offset("--from", from_offset),
        to_offset=_offset("--to", to_offset),
        from_timestamp=_milliseconds("--from-time", from_time),
        to_timestamp=_milliseconds("--to-time", to_time),
        follow=follow,
    )
    _in_order("--from", wanted.from_offset, "--to", wanted.to_offset)
    _in_order("--from-time", wanted.from_timestamp, "--to-time", wanted.to_timestamp)
    work = dumping.dump_bucket(url, layout, settings.load(), wanted, encoding=encoding)
    return runtime.run(work)


def _offset(flag: str, given: int | None) -> int | None:
    if given is not None and given < 0:
        raise UsageError(f"{flag} {given}: must be >= 0")
    return given


def _in_order(first_flag: str, first: int | None, end_flag: str, end: int | None) -> None:
    if first is not None and end is not None and first > end:
        raise UsageError(f"{first_flag} {first} is above {end_flag} {end}: the range is empty")


def _milliseconds(flag: str, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return int(given)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(
            f"{flag} {given}: must be like 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        raise UsageError(f"{flag} {given}: add the time zone, such as Z for UTC")
    return runtime.ms_from_wall(moment)
