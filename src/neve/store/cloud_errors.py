"""Translation of obstore's failures into Neve's errors.

obstore's errors contain the server's response as text. Its status and error code decide the kind of
error. A failure without a status got no response and is transient.
"""

from __future__ import annotations

import re

from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    InvalidError,
    NeveError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from neve.settings.masking import masked

RANGE_NOT_SATISFIABLE = 416
REASON_CHARACTERS_MAX = 400

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# A query may contain a signature, which must not be logged.
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S+")
# Sources of credentials: a failure there is not about the requested object.
_CREDENTIAL_SOURCE = re.compile(
    r"://(169\.254\.\d+\.\d+|\[?fd00:ec2::\w+|sts\.|metadata\.google|login\.microsoftonline|oauth2)"
    r"|/latest/(api/token|meta-data/)|token request|AssumeRoleWithWebIdentity",
)
_MISSING_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_BAD_CREDENTIALS = frozenset(
    {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired", "AccessDenied"}
    | {"InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed"}
)
# Responses with a 4xx status for a failed transmission, not for an invalid request.
_PASSING = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "SlowDown", "Throttling"})
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 529})
_WRONG_PLACE_STATUS = frozenset({301, 302, 307, 308})


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the response; None if there was none."""
    found = _STATUS.search(str(error))
    return int(found.group(1)) if found else None


def translated(key: str, error: Exception) -> NeveError:
    """Return the Neve error for an error of obstore."""
    text = masked(str(error).split("\n\nDebug source", 1)[0])
    code_found = _CODE.search(text)
    code = code_found.group(1) if code_found else ""
    status = status_of(error)
    reason = _QUERY.sub(r"\1?…", " ".join(text.split()))[:REASON_CHARACTERS_MAX]
    if code in _MISSING_BUCKET:
        return StoreFailedError(
            key, f"the bucket does not exist: create it, or correct the URL ({reason})"
        )
    if isinstance(error, FileNotFoundError):
        return NotFoundError(key, "the object does not exist")
    if isinstance(error, ValueError):
        return InvalidError(f"{key!r}: {reason}")
    if _CREDENTIAL_SOURCE.search(text):
        return DeniedError(
            key, f"no credentials: set the cloud's variables in the environment ({reason})"
        )
    if status is None or status == 404:
        # A 404 that is not a FileNotFoundError is not about the object.
        return _unanswered(key, reason)
    return _answered(key, status, code, reason)


def _unanswered(key: str, reason: str) -> NeveError:
    if "redirect" in reason:
        return StoreFailedError(
            key, f"the bucket is in another region: set store.region ({reason})"
        )
    return UnavailableError(key, reason)


def _answered(key: str, status: int, code: str, reason: str) -> NeveError:
    if status in {304, 412} or code == "BlobAlreadyExists":
        return ExistsError(key, "the key exists: read it to find its writer")
    if status == 409:
        return ConflictError(key, f"a transient conflict, undecided: read the key ({reason})")
    if status in {401, 403} or code in _BAD_CREDENTIALS:
        return DeniedError(key, f"the store rejected the credentials ({reason})")
    if status in _PASSING_STATUS or code in _PASSING:
        return UnavailableError(key, reason)
    if status in _WRONG_PLACE_STATUS:
        return StoreFailedError(
            key, f"the bucket is in another region: set store.region ({reason})"
        )
    return StoreFailedError(key, f"the store rejected the request ({reason})")
