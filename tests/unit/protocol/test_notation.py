"""The notation: what a description means, and what is refused with which reason."""

from __future__ import annotations

import pytest

from neve.protocol.errors import NotationError
from neve.protocol.notation import parse
from neve.protocol.schema import NEVER, ApiSchema, Field, Versions


def described(fields: str, heading: str = "Sample 7, versions 1-9, flexible 4+") -> ApiSchema:
    return parse(f"{heading}\nrequest\n{fields}\nresponse")


def only_field(line: str) -> Field:
    (field,) = described(f"  {line}").request.fields
    return field


def test_the_heading_gives_name_key_and_versions() -> None:
    schema = described("", "Sample 7, versions 1-9, flexible 4+")
    assert (schema.name, schema.key) == ("Sample", 7)
    assert (schema.versions, schema.flexible_from) == (Versions(1, 9), 4)
    assert schema.request.fields == schema.response.fields == ()


def test_an_api_may_never_be_flexible() -> None:
    assert described("", "Sample 7, versions 3, flexible none").flexible_from == NEVER


@pytest.mark.parametrize(
    ("line", "versions"),
    [
        ("size int32", (1, 9)),
        ("size int32 4+", (4, 9)),
        ("size int32 2-7", (2, 7)),
        ("size int32 3", (3, 3)),
        ("size int32 0-3", (1, 3)),
    ],
)
def test_versions_of_a_field(line: str, versions: tuple[int, int]) -> None:
    assert only_field(line).versions == Versions(*versions)


def test_a_field_within_a_struct_has_its_versions_at_most() -> None:
    outer, inner = described("  rows []Row 3-8\n    size int32 0-5").request.fields[0], None
    assert outer.struct is not None
    (inner,) = outer.struct.fields
    assert (outer.array, outer.struct.name, inner.versions) == (True, "Row", Versions(3, 5))


def test_nullable_in_all_versions_of_the_field_or_in_some() -> None:
    assert only_field("name string 3+ nullable").nullable == Versions(3, 9)
    assert only_field("name string nullable 5+").nullable == Versions(5, 9)
    assert only_field("name string").nullable.empty


@pytest.mark.parametrize(
    ("line", "default"),
    [
        ("a int32", 0),
        ("a bool", False),
        ("a string", ""),
        ("a bytes", b""),
        ("a uuid", bytes(16)),
        ("a float64", 0.0),
        ("a int32 = -1", -1),
        ("a int32 = 0x7fffffff", 2**31 - 1),
        ("a bool = true", True),
        ("a float64 = 2", 2.0),
        ('a string = "x # y"', "x # y"),
        ("a string nullable", ""),
        ("a string nullable = null", None),
        ("a []int32 nullable = null", None),
        ("a int16 4+ tag 3 = 5 # why", 5),
    ],
)
def test_defaults(line: str, default: object) -> None:
    field = only_field(line)
    assert field.default == default
    assert type(field.default) is type(default)


def test_a_tagged_field() -> None:
    assert only_field("a string 4+ tag 12").tag == 12


def test_comments_and_empty_lines_mean_nothing() -> None:
    schema = described("\n  # first\n  size int32  # the peer's, in bytes\n")
    assert [field.name for field in schema.request.fields] == ["size"]


def test_a_struct_named_again_is_the_same() -> None:
    first, second = described("  a Row\n    size int32\n  b []Row").request.fields
    assert first.struct is second.struct


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("  size", "not `name type"),
        ("  Size int32", "not `name type"),
        ("  size int31", "no type is called int31"),
        ("  size int32 x", "not `name type"),
        ("  size int32 5-3", "ends before it begins"),
        ("  size int32 1..3", "not a range of versions"),
        ("  size int32 12+", "no version of"),
        ("  size int32 nullable", "int32 cannot be null"),
        ("  name string 2-3 nullable 5+", "no version of"),
        ("  name string = null", "not nullable"),
        ("  size int32 = true", "cannot be the default of this type"),
        ("  size int32 = 1x", "is not a value"),
        ('  name string = "x', "not `name type"),
        ("  size int8 = 200", "does not fit"),
        ("  rows []int32 = 3", "empty by default, or null"),
        ("  row Row", "Row has no fields, here or above"),
        ("  size int32\n    more int32", "int32 has no fields of its own"),
        ("  row Row\n      size int32", "more than one level"),
        ("   size int32", "two spaces"),
        ("  size int32\n  size int64", "described twice"),
        ("  a int8 4+ tag 1\n  b int8 4+ tag 1", "tag 1 is taken"),
        ("  a int8 tag 1", "flexible only in later ones"),
        ("  a records 4+ tag 1", "records cannot be tagged"),
        ("  a Row 4+ tag 1\n    b records", "records cannot be tagged"),
        ("  a Row\n    b int8\n  c Row\n    d int8", "name of another struct"),
        ("  a Request\n    b int8", "name of another struct"),
        ("  a []Row 1-3\n    b Row", "no fields, here or above"),
    ],
)
def test_what_does_not_follow_the_notation_is_refused(fields: str, reason: str) -> None:
    with pytest.raises(NotationError, match=reason):
        described(fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing is described"),
        ("Sample", "begin with"),
        ("sample 1, versions 0-1, flexible 1+\nrequest\nresponse", "begin with"),
        ("Sample 1, versions 0+, flexible 1+\nrequest\nresponse", "greatest version"),
        ("Sample 1, versions 0-1, flexible 1+\nrequest", "`response` is missing"),
        ("Sample 1, versions 0-1, flexible 1+\nrequest\nrequest\nresponse", "once each"),
        ("Sample 1, versions 0-1, flexible 1+\nquestion\nresponse", "expected `request`"),
        ("Sample 1, versions 0-1, flexible 1+\n  a int8\nrequest\nresponse", "stands below"),
    ],
)
def test_a_description_without_its_frame_is_refused(text: str, reason: str) -> None:
    with pytest.raises(NotationError, match=reason):
        parse(text)


def test_the_error_names_the_line() -> None:
    with pytest.raises(NotationError, match=r"line 4, 'b int31'") as raised:
        described("  a int32\n  b int31")
    assert raised.value.line_number == 4
