"""Buckets of S3, Google Cloud Storage, Azure and compatible servers.

The only module that uses obstore. Credentials come from each cloud's standard variables, or from
the machine's or pod's role; obstore renews the latter before they expire. obstore's own retries are
off, so that the gate and the counters see every request. obstore references the buffer that it
uploads until the upload has ended.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from neve.errors import ClosedError, InvalidError, NeveError, NotFoundError
from neve.settings import StoreSettings, check_endpoint
from neve.store.cloud_errors import RANGE_NOT_SATISFIABLE, status_of, translated
from neve.store.key import checked_key, checked_range, checked_size, is_key
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo
from neve.store.ranges import get_by_parts
from neve.store.url import EXPRESS_SUFFIX

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, S3CredentialProvider

LIST_PAGE_KEYS = 1000
S3_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
S3_REGION_DEFAULT = "us-east-1"
S3_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class CloudStore:
    """The store port over an obstore store."""

    def __init__(self, remote: ObjectStore) -> None:
        self._remote = remote
        self._closed = False

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        async with self._call(key):
            found = await obstore.get_async(self._remote, checked_key(key))
            checked_size(key, found.meta["size"], bytes_max)
            return memoryview(await found.bytes_async())

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        checked_range(key, start, end)
        if start == end:
            return memoryview(b"")
        async with self._call(key):
            asked = obstore.get_range_async(self._remote, checked_key(key), start=start, end=end)
            return await _clamped(asked)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return await get_by_parts(self.get_range, key, ranges)

    async def put(self, key: str, data: Buffer) -> None:
        async with self._call(key):
            await obstore.put_async(self._remote, checked_key(key), data, use_multipart=False)

    async def create(self, key: str, data: Buffer) -> None:
        async with self._call(key):
            # One PUT with If-None-Match: *, or the cloud's equivalent.
            await obstore.put_async(
                self._remote, checked_key(key), data, mode="create", use_multipart=False
            )

    async def delete(self, key: str) -> None:
        try:
            async with self._call(key):
                await obstore.delete_async(self._remote, checked_key(key))
        except NotFoundError:
            return  # S3 responds with 204, the others with 404

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        offset = _offset(folder, after)
        found: list[ObjectInfo] = []
        async with self._call(prefix):
            pages = obstore.list(
                self._remote,
                prefix=checked_key(folder) if folder else None,
                offset=offset,
                chunk_size=LIST_PAGE_KEYS,
            )
            async for page in pages:
                found += [ObjectInfo(row["path"], row["size"], _milliseconds(row)) for row in page]
        wanted = {row.key: row for row in found if row.key.startswith(prefix) and row.key > after}
        return _without_markers([wanted[key] for key in sorted(wanted)])

    async def close(self) -> None:
        self._closed = True

    @asynccontextmanager
    async def _call(self, key: str) -> AsyncIterator[None]:
        if self._closed:
            raise ClosedError("the store is closed")
        try:
            yield
        except NeveError:
            raise
        except Exception as error:  # also obstore's RustPanic, which it does not export
            raise translated(key, error) from error


async def _clamped(asked: Awaitable[obstore.Bytes]) -> memoryview:
    try:
        return memoryview(await asked)
    except Exception as error:
        if status_of(error) == RANGE_NOT_SATISFIABLE:
            return memoryview(b"")  # the object ends before the range starts
        raise


def _offset(folder: str, after: str) -> str | None:
    """Return the key that the server may start after, to save pages; None to list all.

    The caller filters the result. Servers that list folder by folder (SeaweedFS) order `a/b` before
    `a-b`, and would omit keys that sort above `after` by their bytes. Both orders agree just below
    a name directly in the folder whose characters all sort above the slash, such as the numbers of
    a series.
    """
    start = f"{folder}/" if folder else ""
    name = after.removeprefix(start)
    agreed = name.isascii() and all(letter > "/" for letter in name)
    if not after.startswith(start) or not is_key(after) or not agreed:
        return None
    below = name[:-1] if name[-1] == "0" else name[:-1] + chr(ord(name[-1]) - 1)
    return start + below if below else None


def _milliseconds(row: Any) -> int:
    return int(row["last_modified"].timestamp() * 1000)


def _without_markers(rows: Sequence[ObjectInfo]) -> Sequence[ObjectInfo]:
    """Drop the empty objects that cloud consoles create for folders: obstore lists `a/` as `a`."""
    folders = {row.key.rpartition("/")[0] for row in rows}
    return [row for row in rows if row.size or row.key not in folders]


def s3_endpoint(settings: StoreSettings, environment: Mapping[str, str]) -> str:
    """Return the endpoint of an S3-compatible server; empty for S3 itself."""
    if settings.endpoint:
        return settings.endpoint
    name = next((name for name in S3_ENDPOINT_VARIABLES if environment.get(name)), "")
    check_endpoint(name, environment.get(name, ""))
    return environment.get(name, "")


def s3_region(settings: StoreSettings, environment: Mapping[str, str]) -> str:
    """Return the bucket's region; empty if none is set and S3 itself determines it."""
    if settings.region or not s3_endpoint(settings, environment):
        return settings.region
    # Other servers have no regions and accept any in a signature.
    return _first_of(S3_REGION_VARIABLES, environment) or S3_REGION_DEFAULT


def _first_of(variables: Sequence[str], environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in variables if environment.get(name)), "")


def open_s3(
    bucket: str,
    prefix: str,
    settings: StoreSettings,
    environment: Mapping[str, str] | None = None,
) -> CloudStore:
    """Open a bucket of S3 or of an S3-compatible server."""
    given = os.environ if environment is None else environment
    endpoint = s3_endpoint(settings, given)
    config: dict[str, Any] = {
        "conditional_put": "etag",
        "disable_bulk_delete": True,  # not every server has it, and Neve deletes keys one by one
        "unsigned_payload": settings.unsigned_payload,
        "virtual_hosted_style_request": not (endpoint and settings.path_style),
    }
    if endpoint:
        config["endpoint"] = endpoint if settings.path_style else _with_host(endpoint, bucket)
    if settings.region:
        config["region"] = settings.region
    if bucket.endswith(EXPRESS_SUFFIX):
        config["s3_express"] = True
    return CloudStore(
        S3Store(
            bucket,
            prefix=prefix or None,
            config=config,  # type: ignore[arg-type]
            client_options=_client(settings, endpoint),
            retry_config={"max_retries": 0},
            credential_provider=_profile_credentials(given),
        )
    )


def open_gcs(bucket: str, prefix: str, settings: StoreSettings) -> CloudStore:
    """Open a bucket of Google Cloud Storage."""
    return CloudStore(
        GCSStore(
            bucket,
            prefix=prefix or None,
            config={"base_url": settings.endpoint} if settings.endpoint else None,
            client_options=_client(settings, settings.endpoint),
            retry_config={"max_retries": 0},
        )
    )


def open_azure(container: str, prefix: str, settings: StoreSettings) -> CloudStore:
    """Open a container of Azure Blob Storage. The environment gives the account."""
    return CloudStore(
        AzureStore(
            container,
            prefix=prefix or None,
            config={"endpoint": settings.endpoint} if settings.endpoint else None,
            client_options=_client(settings, settings.endpoint),
            retry_config={"max_retries": 0},
        )
    )


def _client(settings: StoreSettings, endpoint: str) -> ClientConfig:
    client: ClientConfig = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(milliseconds=settings.connect_timeout_ms),
        "timeout": timedelta(milliseconds=settings.request_timeout_ms),
        "user_agent": "neve",
    }
    if settings.concurrency_max:
        client["pool_max_idle_per_host"] = str(settings.concurrency_max)
    return client


def _with_host(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _profile_credentials(environment: Mapping[str, str]) -> S3CredentialProvider | None:
    """Return boto3's credentials for AWS_PROFILE, which obstore does not read."""
    profile = environment.get("AWS_PROFILE")
    if not profile or environment.get("AWS_ACCESS_KEY_ID"):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise InvalidError(
            f"AWS_PROFILE is {profile!r}, and profiles need boto3: install it, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    try:
        return Boto3CredentialProvider()  # takes the profile from the environment
    except Exception as error:
        raise InvalidError(f"AWS_PROFILE is {profile!r}: {error}") from error
