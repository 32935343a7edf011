"""Generate the encoder of one message in one version, as straight-line Python.

The generated function takes an instance and returns its parts. One `pack` writes consecutive
fields of fixed width, with lengths and empty tag sections between them. Records are not copied:
they are parts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from typing import Any

from neve.protocol import wire
from neve.protocol.schema import FIXED_WIDTHS, Field, Struct
from neve.protocol.source import FORMATS, Source


class EncoderGenerator:
    """Generates the encoder of `message` in `version`."""

    def __init__(
        self, message: Struct, version: int, flexible: bool, classes: Mapping[str, Any]
    ) -> None:
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
        for name, made in classes.items():
            self._source.bind(name, made)
        self._in_parts = any(
            field.type == "records" for struct in message.walk() for field in struct.fields
        )

    def generate(self) -> Source:
        source = self._source
        with source.block("def encode(value):"):
            source.line("out = bytearray()")
            if self._in_parts:
                source.line("parts = []")
            self._struct(self._message, "value")
            self._flush()
            if self._in_parts:
                with source.block("if out:"):
                    source.line("parts.append(out)")
            source.line("return parts" if self._in_parts else "return [out]")
        return source

    # --- runs of fixed width

    def _put(self, code: str, value: str | None = None) -> None:
        """Write one value of fixed width, in one call with its neighbours."""
        self._codes += code
        if value is not None:
            self._values.append(value)

    def _flush(self) -> None:
        """Write the call that packs all values put since the last flush."""
        if self._codes:
            self._source.line(self._packed(self._codes, self._values))
        self._codes, self._values = "", []

    def _packed(self, codes: str, values: list[str]) -> str:
        if codes in ("x", "B"):
            return f"{self._out}.append({values[0] if values else 0})"
        packer = self._source.structure("pack", codes)
        return f"{self._out} += {packer}({', '.join(values)})"

    def _varint(self, value: str) -> None:
        """Write a varint that ends a run. Most varints have one byte."""
        codes, values = self._codes, self._values
        with self._source.block(f"if {value} < 128:"):
            self._source.line(self._packed(codes + "B", [*values, value]))
        with self._source.block("else:"):
            if codes:
                self._source.line(self._packed(codes, values))
            self._source.line(f"{self._out} += uvarint({value})")
        self._codes, self._values = "", []

    def _length(self, field: Field, count: str) -> None:
        """Write a length or a count that is already in the encoding of this version."""
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
        """Compute a length in the encoding of this version. Null has its own value."""
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
            pieces = f"sum(map(len, {content})) if type({content}) is list"
            count = self._count(field, content, f"({pieces} else records_bytes({content}))")
        else:
            encode = f"{content} = {content}.encode()" if field.type == "string" else ""
            count = self._count(field, content, f"len({content})", encode)
        self._length(field, count)
        with source.block(self._is_present(count)):
            if field.type == "records":
                source.line("parts.append(out)")
                with source.block(f"if type({content}) is list:"):
                    source.line(f"parts += {content}")
                with source.block("else:"):
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
        """Write the tagged fields that differ from their defaults, sorted by tag."""
        tagged = struct.tagged_in(self._version)
        if not tagged:
            self._put("x")
            return
        source, codes, values = self._source, self._codes, list(self._values)
        contents = {}
        for field in tagged:
            contents[field.name] = source.fresh(field.name)
            source.line(f"{contents[field.name]} = {value}.{field.name}")
        conditions = [self._differs(field, contents[field.name]) for field in tagged]
        with source.block(f"if {' or '.join(f'({each})' for each in conditions)}:"):
            self._flush()
            self._section(tagged, contents)
        with source.block("else:"):
            source.line(self._packed(codes + "x", values))

    def _section(self, tagged: list[Field], contents: dict[str, str]) -> None:
        """Write a section with at least one tagged field."""
        source, outer = self._source, self._out
        count, section = source.fresh("tags"), source.fresh("section")
        source.line(f"{count} = 0")
        source.line(f"{section} = bytearray()")
        for field in tagged:
            body, content = source.fresh("body"), contents[field.name]
            with source.block(f"if {self._differs(field, content)}:"):
                source.line(f"{body} = bytearray()")
                self._out = body
                self._field(field, content)
                self._flush()
                self._out = outer
                source.line(f"{count} += 1")
                head = f"uvarint({field.tag}) + uvarint(len({body}))"
                source.line(f"{section} += {head} + {body}")
        source.line(f"{outer} += uvarint({count}) + {section}")

    def _differs(self, field: Field, content: str) -> str:
        """Return the condition under which a tagged field must be written."""
        if field.null_by_default:
            return f"{content} is not None"
        if field.array:
            return f"{content} is None or len({content})"
        if field.struct is None:
            return f"{content} != {field.default!r}"
        present = [each for each in field.struct.fields if self._version in each.versions]
        inner = [f"({self._differs(each, f'{content}.{each.name}')})" for each in present]
        differs = " or ".join(inner) or "False"
        if self._version in field.nullable:
            return f"{content} is None or {differs}"
        if field.shared_default:
            return f"{content} is not {field.struct.shared_name} and ({differs})"
        return differs
