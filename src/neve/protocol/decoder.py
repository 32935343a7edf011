"""Generate the decoder of one message in one version, as straight-line Python.

The generated function takes a memoryview and a position, and returns an instance. One
`unpack_from` reads consecutive fields of fixed width and the length after them. It assumes that a
varint has one byte; a longer one is read again. Nested structs are loops in the same function. A
length is compared with the bytes that are left before anything is allocated for it. The array
elements and tagged fields of a request are bounded together: two bytes on the wire can be two
hundred in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import unpack_from
from typing import Any

from neve.protocol import wire
from neve.protocol.schema import FIXED_WIDTHS, Field, Struct
from neve.protocol.source import FORMATS, Source

_WIDTHS = {"B": 1, **{code: FIXED_WIDTHS[name] for name, code in FORMATS.items()}}

_HELPERS: tuple[Callable[..., Any], ...] = (
    wire.read_uvarint,
    wire.skip_tags,
    wire.cut_short,
    wire.null_refused,
    wire.bad_length,
    wire.bad_tag,
    wire.too_many,
    unpack_from,
)


class DecoderGenerator:
    """Generates the decoder of `message` in `version`. `classes` has the classes of instances.

    With `bounded`, the decoder raises MalformedError for a message of more than
    `REQUEST_ITEMS_MAX` elements and tagged fields.
    """

    def __init__(
        self,
        message: Struct,
        version: int,
        flexible: bool,
        classes: Mapping[str, Any],
        *,
        bounded: bool = False,
    ) -> None:
        self._bounded = bounded
        self._message = message
        self._version = version
        self._flexible = flexible
        self._source = Source()
        self._codes: list[str] = []
        self._targets: list[str] = []
        self._slices = any(
            field.type == "records" for struct in message.walk() for field in struct.fields
        )
        copied = ".tobytes()" if self._slices else ""
        self._conversions = {"string": copied + ".decode()", "bytes": copied, "records": ""}
        for name, made in classes.items():
            self._source.bind(name, made)
        for helper in _HELPERS:
            self._source.bind(helper.__name__, helper)

    def generate(self) -> Source:
        source = self._source
        with source.block("def decode(data, p):"):
            source.line("end = len(data)")
            if self._bounded:
                source.line(f"items = {wire.REQUEST_ITEMS_MAX}")
            if not self._slices:
                # The message has no views of the data, and bytes are read faster than a memoryview.
                source.line("data = bytes(data)")
            made = self._struct(self._message)
            self._flush()
            source.line(f"return {made}")
        return source

    # --- runs of fixed width

    def _take(self, code: str, target: str) -> None:
        """Read one value of fixed width into a variable, in one call with its neighbours."""
        self._codes.append(code)
        self._targets.append(target)

    def _flush(self) -> None:
        """Write the call that reads all values taken since the last flush."""
        if not self._codes:
            return
        source, codes = self._source, "".join(self._codes)
        if codes == "B":
            source.line(f"{self._targets[0]} = data[p]")
        else:
            unpack = source.structure("unpack_from", codes)
            source.line(f"{', '.join(self._targets)}, = {unpack}(data, p)")
        source.line(f"p += {sum(_WIDTHS[code] for code in self._codes)}")
        self._codes.clear()
        self._targets.clear()

    def _length(self, field: Field) -> str:
        """Read a length or a count in the encoding of this version."""
        count = self._source.fresh("n")
        if not self._flexible:
            short = field.type == "string" and not field.array
            self._take("h" if short else "i", count)
            self._flush()
            return count
        self._take("B", count)
        self._flush()
        with self._source.block(f"if {count} > 127:"):
            self._source.line("high = data[p]")
            with self._source.block("if high < 128:"):
                self._source.line("p += 1")
                self._source.line(f"{count} += (high - 1) << 7")
            with self._source.block("else:"):
                self._source.line(f"{count}, p = read_uvarint(data, p - 1)")
        return count

    # --- structs and fields

    def _struct(self, struct: Struct) -> str:
        """Write the code that reads a struct's fields. Returns the expression of the instance."""
        values = {}
        for field in struct.fields_in(self._version):
            values[field.name] = self._field(field)
        if self._flexible:
            values |= self._tags(struct)
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{struct.name}({arguments})"

    def _field(self, field: Field) -> str:
        target = self._source.fresh(field.name)
        if field.fixed:
            self._take(FORMATS[field.type], target)
        elif field.array:
            self._nullable(field, target, self._length(field), self._array)
        elif field.struct is None:
            self._nullable(field, target, self._length(field), self._sized)
        elif self._version in field.nullable:
            self._nullable_struct(field.struct, target)
        else:
            made = self._struct(field.struct)
            self._flush()
            self._source.line(f"{target} = {made}")
        return target

    def _nullable(self, field: Field, target: str, count: str, content: Any) -> None:
        source = self._source
        with source.block(f"if {count}:" if self._flexible else f"if {count} >= 0:"):
            if self._flexible:
                source.line(f"{count} -= 1")
            content(field, target, count)
        with source.block("else:" if self._flexible else f"elif {count} == -1:"):
            if self._version in field.nullable:
                source.line(f"{target} = None")
            else:
                source.line(f"raise null_refused({field.name!r}, p)")
        if not self._flexible:
            with source.block("else:"):
                source.line(f"raise bad_length({field.name!r}, p, {count})")

    def _nullable_struct(self, struct: Struct, target: str) -> None:
        source, present = self._source, self._source.fresh("present")
        self._take("b", present)
        self._flush()
        with source.block(f"if {present} < 0:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            made = self._struct(struct)
            self._flush()
            source.line(f"{target} = {made}")

    def _count(self, name: str, count: str) -> None:
        """Write the check of the number of elements in a request."""
        if self._bounded:
            self._source.line(f"items -= {count}")
            with self._source.block("if items < 0:"):
                self._source.line(f"raise too_many({name!r}, p)")

    def _compare_with_rest(self, field: Field, size: str) -> None:
        with self._source.block(f"if {size} > end - p:"):
            self._source.line(f"raise cut_short({field.name!r}, p, {size}, end)")

    def _sized(self, field: Field, target: str, count: str) -> None:
        source, stop = self._source, self._source.fresh("e")
        source.line(f"{stop} = p + {count}")
        with source.block(f"if {stop} > end:"):
            source.line(f"raise cut_short({field.name!r}, p, {count}, end)")
        source.line(f"{target} = data[p:{stop}]{self._conversions[field.type]}")
        source.line(f"p = {stop}")

    def _array(self, field: Field, target: str, count: str) -> None:
        source = self._source
        least = max(1, field.least_element_bytes(self._version, self._flexible))
        self._compare_with_rest(field, f"{count} * {least}" if least > 1 else count)
        self._count(field.name, count)
        if field.type in FIXED_WIDTHS:
            self._fixed_array(field, target, count)
            return
        source.line(f"{target} = []")
        with source.block(f"while {count}:"):
            source.line(f"{count} -= 1")
            if field.struct is not None:
                element = self._struct(field.struct)
            else:
                element = source.fresh("element")
                inside = Field(field.name, field.type, None, False, field.versions)
                self._nullable(inside, element, self._length(inside), self._sized)
            self._flush()
            source.line(f"{target}.append({element})")

    def _fixed_array(self, field: Field, target: str, count: str) -> None:
        source, width = self._source, FIXED_WIDTHS[field.type]
        if field.type == "uuid":
            places = f"range(p, p + 16 * {count}, 16)"
            source.line(f"{target} = [bytes(data[at:at + 16]) for at in {places}]")
        else:
            codes = f'f">{{{count}}}{FORMATS[field.type]}"'
            source.line(f"{target} = list(unpack_from({codes}, data, p))")
        source.line(f"p += {count} * {width}")

    # --- tagged fields

    def _tags(self, struct: Struct) -> dict[str, str]:
        """Write the code that decodes known tagged fields and skips others."""
        source, left = self._source, self._source.fresh("tags")
        self._take("B", left)
        self._flush()
        known = struct.tagged_in(self._version)
        targets = {field.name: source.fresh(field.name) for field in known}
        for field in known:
            source.line(f"{targets[field.name]} = {self._default(field)}")
        with source.block(f"if {left}:"):
            if not known:
                # An unbounded message cannot have more fields than bytes.
                left_over, items = ("items", "items") if self._bounded else ("_", "end")
                source.line(f"p, {left_over} = skip_tags(data, p - 1, {items})")
            else:
                source.line(f"{left}, p = read_uvarint(data, p - 1)")
                self._count("tagged fields", left)
                with source.block(f"while {left}:"):
                    source.line(f"{left} -= 1")
                    self._tag(known, targets)
        return targets

    def _tag(self, known: list[Field], targets: dict[str, str]) -> None:
        source = self._source
        tag, size, stop = source.fresh("tag"), source.fresh("size"), source.fresh("stop")
        source.line(f"{tag}, p = read_uvarint(data, p)")
        source.line(f"{size}, p = read_uvarint(data, p)")
        source.line(f"{stop} = p + {size}")
        with source.block(f"if {stop} > end:"):
            source.line(f"raise cut_short('a tagged field', p, {size}, end)")
        for field in known:
            with source.block(f"if {tag} == {field.tag}:"):
                made = self._field(field)
                self._flush()
                source.line(f"{targets[field.name]} = {made}")
                with source.block(f"if p != {stop}:"):
                    source.line(f"raise bad_tag({tag}, p, {stop})")
        source.line(f"p = {stop}")

    def _default(self, field: Field) -> str:
        if field.null_by_default:
            return "None"
        if field.array:
            return "[]"
        if field.struct is None:
            return repr(field.default)
        return field.struct.shared_name if field.shared_default else f"{field.struct.name}()"
