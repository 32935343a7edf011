"""A client of a schema registry, with a cache of schemas by id.

An id that the registry does not know makes the rows that name it bad. If the registry does not
respond, UnavailableError is raised, and the task can be retried. Responses that mean a wrong
address or wrong credentials raise InvalidError or DeniedError: they stop the job rather than make
rows bad.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import json
import os
import ssl
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from neve import runtime
from neve.errors import DeniedError, InvalidError, UnavailableError

CREDENTIALS_VARIABLE = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
"""Its value is `user:password`; Confluent's own tools read the same variable."""

SCHEMAS_MAX = 1000
RESPONSE_BYTES_MAX = 8 * 1024 * 1024
TIMEOUT_SECONDS = 10.0
ATTEMPTS = 2
UNKNOWN_SECONDS = 30.0
"""How long an unknown id is not requested again; a schema may be registered after its records."""

_REGISTRIES_MAX = 16
_REFERENCES_MAX = 100
# Error codes of the registry: unknown subject, unknown version, unknown schema.
_NOT_FOUND = (40401, 40402, 40403)


class UnknownSchemaError(Exception):
    """The registry has no usable Avro schema with this id: the rows that name it are bad."""


@dataclass(frozen=True)
class RegistryRef:
    """The address of a registry and credentials, which `repr` omits. Picklable."""

    url: str
    credentials: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: object) -> RegistryRef:
        """Parse a URL. Credentials come from it, or else from the environment of this process."""
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidError(f"registry: {_without_password(url)!r} must be an http or https URL")
        if parts.query or parts.fragment:
            raise InvalidError("registry: the URL must end with its path")
        credentials = os.environ.get(CREDENTIALS_VARIABLE, "")
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        place = parts.netloc.rpartition("@")[2]
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", credentials)


def _without_password(url: object) -> object:
    return f"…@{url.rpartition('@')[2]}" if isinstance(url, str) and "@" in url else url


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as JSON text, and those that it refers to, directly or not, by full name."""

    text: str
    referenced: tuple[tuple[str, str], ...] = ()


@functools.lru_cache(maxsize=_REGISTRIES_MAX)
def registry_of(ref: RegistryRef) -> Registry:
    """Return this process's client for a registry, which keeps its cache between calls."""
    return Registry(ref)


class Registry:
    """Caches at most `SCHEMAS_MAX` schemas, those used last, and as many unknown ids."""

    def __init__(self, ref: RegistryRef, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._ref = ref
        self._timeout_seconds = timeout_seconds
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()

    def avro_schema(self, schema_id: int) -> RegisteredSchema:
        """Return a schema with those that it refers to. Raises UnknownSchemaError.

        The schema of an id never changes, so cached schemas do not expire.
        """
        if schema_id not in self._schemas:
            self._refuse_known_unknown(schema_id)
            try:
                schema = self._fetch(schema_id)
            except UnknownSchemaError as error:
                _keep(self._unknown, schema_id, (runtime.monotonic(), str(error)))
                raise
            _keep(self._schemas, schema_id, schema)
        self._schemas.move_to_end(schema_id)
        return self._schemas[schema_id]

    def _refuse_known_unknown(self, schema_id: int) -> None:
        found = self._unknown.get(schema_id)
        if found is not None and runtime.monotonic() - found[0] < UNKNOWN_SECONDS:
            raise UnknownSchemaError(found[1])

    def _fetch(self, schema_id: int) -> RegisteredSchema:
        response = self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
        kind = response.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise UnknownSchemaError(f"schema {schema_id} is {kind}, not AVRO")
        named: dict[str, str] = {}
        self._gather(response.get("references") or [], named, f"schema {schema_id}")
        return RegisteredSchema(_schema_in(response, f"schema {schema_id}"), tuple(named.items()))

    def _gather(self, references: list[Any], named: dict[str, str], what: str) -> None:
        """Add the schemas that a schema refers to, directly or not, to `named` by full name."""
        for each in references:
            try:
                name, version = str(each["name"]), int(each["version"])
                subject = quote(each["subject"], safe="")
            except (KeyError, TypeError, ValueError):
                raise UnknownSchemaError(f"{what} has a reference {each!r}") from None
            if name in named:
                continue
            if len(named) >= _REFERENCES_MAX:
                raise UnknownSchemaError(f"{what} refers to more than {_REFERENCES_MAX} schemas")
            referred = f"what {what} refers to ({each['subject']}, version {version})"
            response = self._get(f"/subjects/{subject}/versions/{version}", referred)
            named[name] = _schema_in(response, what)
            self._gather(response.get("references") or [], named, what)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        for attempt in range(ATTEMPTS):
            try:
                status, body = self._ask(path)
                if status < 500 and status != 429:
                    return self._understood(status, body, path, what)
                reason = f"it answered {status}"
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
            if attempt + 1 == ATTEMPTS:
                break
        raise UnavailableError(
            self._ref.url, f"the schema registry did not give {what}: {reason}; run the task again"
        )

    def _ask(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(self._ref.url)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._ref.credentials:
            encoded = base64.b64encode(self._ref.credentials.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        with self._connection(parts.scheme, parts.hostname or "", parts.port) as connection:
            connection.request("GET", f"{parts.path}{path}", headers=headers)
            response = connection.getresponse()
            return response.status, response.read(RESPONSE_BYTES_MAX + 1)

    @contextlib.contextmanager
    def _connection(
        self, scheme: str, host: str, port: int | None
    ) -> Iterator[http.client.HTTPConnection]:
        if scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_seconds, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)
        try:
            yield connection
        finally:
            connection.close()

    def _understood(self, status: int, body: bytes, path: str, what: str) -> dict[str, Any]:
        url = f"{self._ref.url}{path}"
        if status in (401, 403):
            raise DeniedError(
                url, f"the schema registry refused the credentials; set {CREDENTIALS_VARIABLE}"
            )
        try:
            response = json.loads(body) if len(body) <= RESPONSE_BYTES_MAX else None
        except ValueError:
            response = None
        if isinstance(response, dict):
            if status == 200:
                return response
            if status == 404 and response.get("error_code") in _NOT_FOUND:
                raise UnknownSchemaError(f"{what} is not in the registry")
        raise InvalidError(f"{url} answered {status} and not like a schema registry: check the URL")


def _keep(kept: OrderedDict[int, Any], key: int, value: Any) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > SCHEMAS_MAX:
        kept.popitem(last=False)


def _schema_in(response: dict[str, Any], what: str) -> str:
    """Return a schema as JSON text in one form, so that equal schemas share a decoder."""
    try:
        return json.dumps(json.loads(response["schema"]))
    except (KeyError, TypeError, ValueError):
        raise UnknownSchemaError(f"{what} is not JSON text in the registry") from None
