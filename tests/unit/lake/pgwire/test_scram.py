"""Passwords: who is let in, and what those learn who are not."""

from __future__ import annotations

import base64

import pytest
from scramp import ScramClient

from neve.errors import InvalidError
from neve.lake.pgwire import ServeOptions
from neve.lake.pgwire.scram import Exchange, Passwords, make_verifier
from neve.lake.pgwire.sqlstate import SqlError
from unit.lake.pgwire.wire_client import WireClient, running, startup


def stored(password: str) -> str:
    salt, stored_key, server_key, iterations = make_verifier(password)
    encoded = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def log_in(passwords: Passwords, user: str, password: str, name: str = "*") -> None:
    client = ScramClient(["SCRAM-SHA-256"], name, password)
    exchange = Exchange(passwords, user, None)
    client.set_server_first(
        exchange.first("SCRAM-SHA-256", client.get_client_first().encode()).decode()
    )
    client.set_server_final(exchange.final(client.get_client_final().encode()).decode())


def test_a_password_and_a_stored_verifier_let_in() -> None:
    passwords = Passwords({"a": "secret", "b": stored("other")})
    log_in(passwords, "a", "secret")
    log_in(passwords, "b", "other")
    with pytest.raises(SqlError, match="28P01"):
        log_in(passwords, "a", "other")
    with pytest.raises(SqlError, match="28P01"):
        log_in(passwords, "b", stored("other"))


def test_an_empty_name_is_signed_as_it_was_sent() -> None:
    """libpq sends none: the proof covers the text with the empty name."""
    passwords = Passwords({"a": "secret"})
    client = ScramClient(["SCRAM-SHA-256"], "x", "secret")
    first = client.get_client_first().replace("n=x,", "n=,")
    client.client_first_bare = first.removeprefix("n,,")
    exchange = Exchange(passwords, "a", None)
    client.set_server_first(exchange.first("SCRAM-SHA-256", first.encode()).decode())
    final = exchange.final(client.get_client_final().encode()).decode()
    assert final.startswith("v=")
    client.set_server_final(final)


def test_a_user_who_does_not_exist_looks_like_one_with_another_password() -> None:
    passwords = Passwords({"a": "secret"})

    def first(user: str) -> str:
        return Exchange(passwords, user, None).first("SCRAM-SHA-256", b"n,,n=*,r=abc").decode()

    salts = [first(user).split(",")[1] for user in ("nobody", "nobody", "somebody", "a", "a")]
    assert salts[0] == salts[1]
    assert salts[3] == salts[4]
    assert len(set(salts)) == 3
    assert {len(salt) for salt in salts} == {len(salts[0])}
    with pytest.raises(SqlError) as unknown:
        log_in(passwords, "nobody", "secret")
    with pytest.raises(SqlError) as known:
        log_in(passwords, "a", "wrong")
    assert str(unknown.value).replace("nobody", "a") == str(known.value)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"n,,", b"p=tls-unique,,n=*,r=a", b"n,,n=*,r=", b"n,,m=1,n=*,r=a"]
)
def test_a_first_message_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(SqlError):
        Exchange(Passwords({"a": "b"}), "a", None).first("SCRAM-SHA-256", data)


def test_a_client_that_was_not_shown_our_offer_of_binding_is_refused() -> None:
    exchange = Exchange(Passwords({"a": "b"}), "a", "a certificate")
    assert exchange.mechanisms == ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]
    with pytest.raises(SqlError, match="altered in transit"):
        exchange.first("SCRAM-SHA-256", b"y,,n=*,r=abc")
    with pytest.raises(SqlError, match="invalid SASL authentication mechanism"):
        Exchange(Passwords({"a": "b"}), "a", None).first("SCRAM-SHA-256-PLUS", b"")


@pytest.mark.parametrize(
    "given",
    ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:c2FsdA==$a:b", "SCRAM-SHA-256$1:YQ==$YQ==:YQ=="],
)
def test_passwords_that_cannot_be_are_refused_by_name(given: str) -> None:
    with pytest.raises(InvalidError, match="anna"):
        Passwords({"anna": given})


def test_a_server_without_users_is_refused() -> None:
    with pytest.raises(InvalidError, match="no client could log in"):
        ServeOptions()


async def test_the_server_refuses_wrong_passwords_and_unknown_users() -> None:
    async with running() as server:
        for user, password in (("reader", "wrong"), ("nobody", "påss word")):
            client = await WireClient.connect(server)
            client.send(startup(user=user))
            assert await client.log_in(password) == "28P01"
            assert await client.is_closed()
        client = await WireClient.connect(server)
        client.send(startup(user="reader"), b"Q\0\0\0\x0dSELECT 1\0")
        await client.read()
        kind, _ = await client.read()
        assert kind == b"E", "no query before the password"
