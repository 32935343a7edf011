"""Neve: a Kafka-compatible streaming log whose only durable state is a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.bucket.async_bucket import AsyncBucket, GivenSettings, LayoutName, Url
    from neve.bucket.sync_bucket import Bucket

__version__ = "0.1.0"
__all__ = ["__version__", "open", "open_async"]


def open(  # noqa: A001 (neve.open reads like gzip.open)
    url: Url, *, layout: LayoutName = "neve", settings: GivenSettings = None
) -> Bucket:
    """Open the bucket at a URL or path for reading; no broker takes part.

    `layout="kafscale"` reads a KafScale bucket in place. `settings` are names and values over those
    of the environment. docs/users/reader.md has the rest.
    """
    from neve.bucket.sync_bucket import open_bucket

    return open_bucket(url, layout=layout, settings=settings)


async def open_async(
    url: Url, *, layout: LayoutName = "neve", settings: GivenSettings = None
) -> AsyncBucket:
    """The same for asynchronous programs."""
    from neve.bucket.async_bucket import AsyncBucket

    return await AsyncBucket.connect(url, layout=layout, settings=settings)
