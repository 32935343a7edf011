"""Addresses: how they are written, what clients are told, why one cannot be had."""

from __future__ import annotations

import errno
import socket

import pytest

from neve.errors import InvalidError
from neve.serving.addresses import Address, advertised_address, parse_address, refused


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        (" broker-1.local:0 ", "broker-1.local", 0),
        ("[::1]:65535", "::1", 65535),
        (":9092", "", 9092),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    address = parse_address("broker.listen", text)
    assert address == (host, port)
    assert parse_address("broker.listen", str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "9092", "localhost", "localhost:", "localhost:http", "h:-1", "h:65536", "::1:9092",
             "a b:1", "h:٣"]
)  # fmt: skip
def test_what_is_none_is_refused_with_the_setting(text: str) -> None:
    with pytest.raises(InvalidError, match=r"^http\.listen = "):
        parse_address("http.listen", text)


@pytest.mark.parametrize(
    ("advertise", "bound", "told"),
    [
        ("", ("127.0.0.1", 9092), ("127.0.0.1", 9092)),
        ("", ("0.0.0.0", 9092), ("box", 9092)),
        ("", ("::", 9092), ("box", 9092)),
        ("", ("", 9092), ("box", 9092)),
        ("kafka.example:29092", ("0.0.0.0", 9092), ("kafka.example", 29092)),
        ("kafka.example:0", ("0.0.0.0", 41234), ("kafka.example", 41234)),
    ],
)
def test_clients_are_told_where_they_can_connect(
    advertise: str, bound: tuple[str, int], told: tuple[str, int]
) -> None:
    assert advertised_address(advertise, Address(*bound), lambda: "box") == told


@pytest.mark.parametrize("advertise", ["0.0.0.0:9092", "[::]:9092", ":9092"])
def test_every_address_cannot_be_advertised(advertise: str) -> None:
    with pytest.raises(InvalidError, match=r"broker\.advertise"):
        advertised_address(advertise, Address("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EADDRINUSE, "x"), "the port is in use"),
        (OSError(errno.EACCES, "x"), "needs privileges"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "does not have this address"),
        (socket.gaierror(socket.EAI_NONAME, "x"), "does not have this address"),
        (OSError(errno.ENOBUFS, "x"), "No buffer space"),
    ],
)
def test_why_an_address_cannot_be_had(error: OSError, reason: str) -> None:
    told = str(refused("broker.listen", Address("::1", 9092), error))
    assert told.startswith("cannot listen on [::1]:9092 (broker.listen): ")
    assert reason in told
