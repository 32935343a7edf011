"""Generates the encoder of one message in one version, as straight-line Python.

The function that comes out takes an instance and returns its parts. Fields of fixed width that
follow one another, lengths and empty tag sections among them, are one `pack`. Records are never
copied: what stands before them is closed as a part, and they are parts of their own.
"""

from __future__ import annotations

from struct import pack

from neve.protocol import wire
from neve.protocol.schema import FIXED_WIDTHS, Field, Struct
from neve.protocol.source import FORMATS, Source


class EncoderGenerator:
    """Writes the encoder of `message` in `version`."""

    def __init__(self, message: Struct, version: int, flexible: bool) -> None:
        self._message = message
        self._version = version
        self._flexible = flexible
        self._out = "out"
        self._codes = ""
        self._values: list[str] = []
        self._source = Source()
        for helper in (wire.uvarint, wire.records_bytes, wire.add_records):
            self._source.bind(helper.__name__, helper)
        self._source.bind("pack", pack)

    def generate(self) -> Source:
        source = self._source
        with source.block("def encode(value):"):
            source.line("out = bytearray()")
            source.line("parts = []")
            self._struct(self._message, "value")
            self._flush()
            with source.block("if out:"):
                source.line("parts.append(out)")
            source.line("return parts")
        return source

    # --- runs of fixed width

    def _put(self, code: str, value: str | None = None) -> None:
        """Writes one value of fixed width, together with its neighbours."""
        self._codes += code
        if value is not None:
            self._values.append(value)

    def _flush(self) -> None:
        """Writes the code for what was put since the last time."""
        if self._codes:
            self._source.line(self._packed(self._codes, self._values))
        self._codes, self._values = "", []

    def _packed(self, codes: str, values: list[str]) -> str:
        if codes in ("x", "B"):
            return f"{self._out}.append({values[0] if values else 0})"
        packer = self._source.structure("pack", codes)
        return f"{self._out} += {packer}({', '.join(values)})"

    def _varint(self, value: str) -> None:
        """A varint that ends a run: one byte nearly always."""
        codes, values = self._codes, self._values
        with self._source.block(f"if {value} < 128:"):
            self._source.line(self._packed(codes + "B", [*values, value]))
        with self._source.block("else:"):
            if codes:
                self._source.line(self._packed(codes, values))
            self._source.line(f"{self._out} += uvarint({value})")
        self._codes, self._values = "", []

    def _length(self, field: Field, count: str) -> None:
        """Writes a length or a count, given as on the wire of this version."""
        if self._flexible:
            self._varint(count)
        else:
            self._put("h" if field.type == "string" and not field.array else "i", count)
            self._flush()

    # --- structs and fields

    def _struct(self, struct: Struct, value: str) -> None:
        for field in struct.fields_in(self._version):
            self._field(field, f"{value}.{field.name}")
        if self._flexible:
            self._tags(struct, value)

    def _field(self, field: Field, value: str) -> None:
        if field.fixed:
            self._put(FORMATS[field.type], value)
            return
        if field.struct is not None and not field.array and self._version not in field.nullable:
            self._struct(field.struct, value)
            return
        content = self._source.fresh(field.name)
        self._source.line(f"{content} = {value}")
        if field.struct is not None and not field.array:
            self._nullable_struct(field.struct, content)
        elif field.array:
            self._array(field, content)
        else:
            self._sized(field, content)

    def _count(self, field: Field, content: str, measured: str, before: str = "") -> str:
        """Computes a length as on the wire of this version; null has its own."""
        source, count = self._source, self._source.fresh("n")
        present = f"{count} = {measured}" + (" + 1" if self._flexible else "")
        if self._version not in field.nullable:
            if before:
                source.line(before)
            source.line(present)
            return count
        with source.block(f"if {content} is None:"):
            source.line(f"{count} = {0 if self._flexible else -1}")
        with source.block("else:"):
            if before:
                source.line(before)
            source.line(present)
        return count

    def _is_present(self, count: str) -> str:
        return f"if {count} > {1 if self._flexible else 0}:"

    def _sized(self, field: Field, content: str) -> None:
        source = self._source
        if field.type == "records":
            count = self._count(field, content, f"records_bytes({content})")
        else:
            encode = f"{content} = {content}.encode()" if field.type == "string" else ""
            count = self._count(field, content, f"len({content})", encode)
        self._length(field, count)
        with source.block(self._is_present(count)):
            if field.type == "records":
                source.line("parts.append(out)")
                source.line(f"add_records(parts, {content})")
                source.line("out = bytearray()")
            else:
                source.line(f"{self._out} += {content}")

    def _array(self, field: Field, content: str) -> None:
        source = self._source
        count = self._count(field, content, f"len({content})")
        self._length(field, count)
        with source.block(self._is_present(count)):
            if field.type in FIXED_WIDTHS and field.type != "uuid":
                codes = f'f">{{len({content})}}{FORMATS[field.type]}"'
                source.line(f"{self._out} += pack({codes}, *{content})")
                return
            element = source.fresh("each")
            with source.block(f"for {element} in {content}:"):
                if field.struct is not None:
                    self._struct(field.struct, element)
                elif field.type == "uuid":
                    self._put("16s", element)
                else:
                    inside = Field(field.name, field.type, None, False, field.versions)
                    self._sized(inside, element)
                self._flush()

    def _nullable_struct(self, struct: Struct, content: str) -> None:
        source = self._source
        self._flush()
        with source.block(f"if {content} is None:"):
            source.line(f"{self._out}.append(255)")
        with source.block("else:"):
            source.line(f"{self._out}.append(1)")
            self._struct(struct, content)
            self._flush()

    # --- tagged fields

    def _tags(self, struct: Struct, value: str) -> None:
        """Writes the tagged fields that differ from their defaults, in the order of their tags."""
        tagged = struct.tagged_in(self._version)
        if not tagged:
            self._put("x")
            return
        self._flush()
        source, outer = self._source, self._out
        count, section = source.fresh("tags"), source.fresh("section")
        source.line(f"{count} = 0")
        for field in tagged:
            content, body = source.fresh(field.name), source.fresh("body")
            source.line(f"{content} = {value}.{field.name}")
            with source.block(f"if {self._differs(field, content)}:"):
                source.line(f"{body} = bytearray()")
                self._out = body
                self._field(field, content)
                self._flush()
                self._out = outer
                with source.block(f"if not {count}:"):
                    source.line(f"{section} = bytearray()")
                source.line(f"{count} += 1")
                head = f"uvarint({field.tag}) + uvarint(len({body}))"
                source.line(f"{section} += {head} + {body}")
        self._varint(count)
        with source.block(f"if {count}:"):
            source.line(f"{outer} += {section}")

    def _differs(self, field: Field, content: str) -> str:
        """The condition under which a tagged field has to be written."""
        if field.null_by_default:
            return f"{content} is not None"
        if field.array:
            return f"{content} is None or len({content})"
        if field.struct is None:
            return f"{content} != {field.default!r}"
        inner = (
            self._differs(each, f"{content}.{each.name}")
            for each in field.struct.fields
            if self._version in each.versions
        )
        written = " or ".join(inner)
        return f"{content} is None or {written}" if self._version in field.nullable else written
