"""Turn descriptions of APIs into classes with codecs: `define`.

A description is parsed when its module is imported, so that an error in it shows at once. The
encoder and the decoder of a version are generated when they are first used: there are a few
hundred, and a broker with one kind of client uses a dozen. For mypy, `make protocol` writes stubs
of the classes beside the descriptions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

import msgspec

from neve.errors import InvalidError, UnsupportedError
from neve.protocol.decoder import DecoderGenerator
from neve.protocol.encoder import EncoderGenerator
from neve.protocol.errors import MalformedError
from neve.protocol.notation import parse
from neve.protocol.schema import ApiSchema, Field, Struct
from neve.protocol.wire import Buffer

Codec = Callable[..., Any]


class Message(msgspec.Struct, kw_only=True):
    """Base class of all requests and responses. `define` gives each class its own codecs."""

    @classmethod
    def decode(cls, data: memoryview, version: int, position: int = 0) -> Self:
        """Decode the message that begins at `position`.

        Bytes after the message are ignored. Raises MalformedError if there is no such message, and
        UnsupportedError if the API does not have this version.
        """
        raise NotImplementedError

    def encode(self, version: int) -> list[Buffer]:
        """Encode into parts, to be sent one after the other.

        Raises InvalidError if a value does not fit its field, and UnsupportedError if the API does
        not have this version.
        """
        raise NotImplementedError


RequestT_co = TypeVar("RequestT_co", bound=Message, covariant=True)
ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)


@dataclass(frozen=True, slots=True, repr=False)
class Api(Generic[RequestT_co, ResponseT_co]):
    """One API: its name, its versions, and the classes of its messages.

    Versions from `flexible_from` on have varints and tagged fields.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    Request: type[RequestT_co]
    Response: type[ResponseT_co]
    schema: ApiSchema

    def __repr__(self) -> str:
        return f"<Api {self.name} {self.key}, versions {self.schema.versions}>"


class _Codecs(dict[int, Codec]):
    """The codecs of one message by version, each generated at its first use."""

    def __init__(self, api: ApiSchema, make: Callable[[int], Codec]) -> None:
        super().__init__()
        self._api = api
        self._make = make

    def __missing__(self, version: int) -> Codec:
        if version not in self._api.versions:
            raise UnsupportedError(
                f"{self._api.name} has versions {self._api.versions}, not {version}"
            )
        made = self[version] = self._make(version)
        return made


AnyApi: TypeAlias = Api[Message, Message]


def define(text: str) -> AnyApi:
    """Make the API that `text` describes in the notation of docs/contributors/protocol.md."""
    schema = parse(text)
    return Api(
        key=schema.key,
        name=schema.name,
        min_version=schema.versions.first,
        max_version=schema.versions.last,
        flexible_from=schema.flexible_from,
        Request=_message(schema, schema.request),
        Response=_message(schema, schema.response),
        schema=schema,
    )


def _message(api: ApiSchema, message: Struct) -> type[Message]:
    """Make the class of a message. The classes of its structs are attributes."""
    known: dict[str, Any] = {}
    for field in message.fields:
        _build_below(api, field, known)
    namespace = {
        **{name: made for name, made in known.items() if isinstance(made, type)},
        "decode": staticmethod(_decode_function(api, message, known)),
        "encode": _encode_function(api, message, known),
    }
    made: type[Message] = _struct_class(api, message, known, namespace, base=Message)
    known[message.name] = made
    return made


def _build_below(api: ApiSchema, field: Field, known: dict[str, Any]) -> None:
    """Make the class of a field's struct, and its shared default instance if it has one."""
    struct = field.struct
    if struct is None or struct.name in known:
        return
    for each in struct.fields:
        _build_below(api, each, known)
    made = _struct_class(api, struct, known, {}, frozen=field.shared_default)
    known[struct.name] = made
    if field.shared_default:
        known[struct.shared_name] = made()


def _struct_class(
    api: ApiSchema,
    struct: Struct,
    known: dict[str, Any],
    namespace: dict[str, Any],
    *,
    frozen: bool = False,
    base: type[Message] | None = None,
) -> Any:
    return msgspec.defstruct(
        f"{api.name}{struct.name}",
        [(field.name, Any, _default_of(field, known)) for field in struct.fields],
        namespace={**namespace, "__doc__": f"{struct.name} of {api.name}."},
        module="neve.protocol.messages",
        bases=None if base is None else (base,),
        kw_only=True,
        frozen=frozen,
    )


def _default_of(field: Field, known: dict[str, Any]) -> Any:
    if field.null_by_default:
        return None
    if field.array:
        return msgspec.field(default_factory=list)
    if field.struct is not None and field.shared_default:
        return known[field.struct.shared_name]
    if field.struct is not None:
        return msgspec.field(default_factory=known[field.struct.name])
    return field.default


def _decode_function(api: ApiSchema, message: Struct, known: dict[str, Any]) -> Codec:
    def make(version: int) -> Codec:
        flexible = version >= api.flexible_from
        bounded = message is api.request
        source = DecoderGenerator(message, version, flexible, known, bounded=bounded).generate()
        return source.compiled("decode", f"{api.name} {message.name} {version} decoder")

    decoders = _Codecs(api, make)

    def decode(data: memoryview, version: int, position: int = 0) -> Any:
        """Decode the message that begins at `position`. Raises MalformedError."""
        try:
            return decoders[version](data, position)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedError(f"{api.name} {message.name} version {version}: {error}") from error

    return decode


def _encode_function(api: ApiSchema, message: Struct, known: dict[str, Any]) -> Codec:
    def make(version: int) -> Codec:
        flexible = version >= api.flexible_from
        source = EncoderGenerator(message, version, flexible, known).generate()
        return source.compiled("encode", f"{api.name} {message.name} {version} encoder")

    encoders = _Codecs(api, make)

    def encode(value: Any, version: int) -> list[Buffer]:
        """Return the parts of the message, to be sent in this order."""
        try:
            parts: list[Buffer] = encoders[version](value)
        except (struct.error, UnicodeEncodeError) as error:
            raise InvalidError(
                f"{api.name} {message.name} version {version} cannot be encoded: {error}"
            ) from error
        return parts

    return encode
