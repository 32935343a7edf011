"""The syntax of wal.store, and which of its stores a broker writes to."""

from __future__ import annotations

import pytest

from neve.errors import InvalidError
from neve.settings import load
from neve.settings.wal_stores import STORES_MAX, own_wal_store, parse_wal_stores

RACKS = {"rack-a": "s3://a/neve", "rack-b": "s3://b"}


@pytest.mark.parametrize(
    ("text", "stores"),
    [
        ("", {}),
        ("  ", {}),
        ("s3://fast/neve", {"wal": "s3://fast/neve"}),
        ("/srv/wal", {"wal": "/srv/wal"}),
        ("./with=sign", {"wal": "./with=sign"}),
        ("rack-a=/srv/a", {"rack-a": "/srv/a"}),
        ("rack-a=s3://a/neve,rack-b=s3://b", RACKS),
        (" rack-a = s3://a/neve , rack-b = s3://b ", RACKS),
    ],
)
def test_stores_are_named(text: str, stores: dict[str, str]) -> None:
    assert parse_wal_stores(text) == stores
    assert load(flags={"wal.store": text}).wal.stores == stores


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3://a,s3://b", "'s3://a' is not NAME=URL"),
        ("a=s3://a,", "'' is not NAME=URL"),
        ("a=", "'a=' is not NAME=URL"),
        ("-a=s3://a,b=s3://b", "'-a=s3://a' is not NAME=URL"),
        ("a=s3://a,a=s3://b", "names 'a' twice"),
        ("a=s3://a,b=s3://a", "has s3://a twice"),
        ("main=s3://a", "'main' is the name of the bucket itself"),
        (",".join(f"r{at}=s3://s{at}" for at in range(STORES_MAX + 1)), "at most 64"),
        ("s3://user:secret@a,s3://b", r"s3://\*\*\*@a"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        load(flags={"wal.store": text})


@pytest.mark.parametrize(
    ("stores", "chosen", "rack", "own"),
    [
        ({}, "", "rack-a", None),
        ({}, "main", "", None),
        ({"wal": "s3://a"}, "", "", "wal"),
        ({"wal": "s3://a"}, "", "rack-a", "wal"),
        ({"wal": "s3://a"}, "main", "rack-a", None),
        (RACKS, "", "rack-b", "rack-b"),
        (RACKS, "rack-a", "rack-b", "rack-a"),
        (RACKS, "main", "rack-b", None),
    ],
)
def test_a_broker_writes_to_one_of_them(
    stores: dict[str, str], chosen: str, rack: str, own: str | None
) -> None:
    assert own_wal_store(stores, chosen, rack) == own


def test_a_broker_that_no_store_is_meant_for_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"broker\.rack is 'rack-c': set broker\.rack"):
        own_wal_store(RACKS, "", "rack-c")
    with pytest.raises(InvalidError, match=r"wal\.own\.store is 'rack-c', and wal\.store names"):
        own_wal_store(RACKS, "rack-c", "rack-a")
    with pytest.raises(InvalidError, match=r"wal\.store names none"):
        own_wal_store({}, "rack-c", "")
