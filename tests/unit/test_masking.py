"""Credentials are in nothing that is logged or shown."""

from __future__ import annotations

import io
import logging

import pytest

from neve.cli.output import complain
from neve.errors import NeveError
from neve.lake.pgwire.sqlstate import from_exception
from neve.serving import logs
from neve.settings import LogSettings
from neve.settings.masking import masked
from neve.store.cloud_errors import translated
from neve.store.url import parse

SECRET = "hunter2"
URLS = [
    f"s3://AKIA:{SECRET}@bucket/prefix",
    f"s3://AKIA:a/{SECRET}/b@bucket/prefix",
    f"s3://AKIA:at@{SECRET}@bucket",
    f"https://{SECRET}@host:9000/x",
    f"http://user:{SECRET}@host",
    f"s3://bucket?aws_secret_access_key={SECRET}&region=eu",
    f"https://host/x?X-Amz-Signature={SECRET}",
    f"postgresql+psycopg://user:{SECRET}@host/catalog",
    f"abfss://user:{SECRET}@account/x",
]


@pytest.mark.parametrize("url", URLS)
def test_a_secret_is_masked_wherever_it_stands(url: str) -> None:
    assert SECRET not in masked(url)
    assert SECRET not in masked(f"opening '{url}' failed; {url}: refused")
    assert masked(url).partition("://")[0] == url.partition("://")[0]


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/orders@v1/x",
        "abfss://container@account/x",
        "https://host:9000/path?region=eu-central-1",
        "file:///data/a:b@c",
        "mail a@b.c",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("url", URLS)
def test_no_error_of_a_store_shows_a_secret(url: str) -> None:
    with pytest.raises(NeveError) as raised:
        parse(url)
    assert SECRET not in str(raised.value)
    assert SECRET not in str(translated("key", OSError(f"GET {url} failed")))
    assert SECRET not in from_exception(ValueError(f"{url} does not answer")).message


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_of_a_log_shows_a_secret(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.formatter(LogSettings(format=form)))
    log = logging.getLogger("neve.masking")
    log.propagate = False
    log.addHandler(handler)
    try:
        for url in URLS:
            log.warning("cannot open %s", url)
            logs.event(log, logging.WARNING, "it failed", store=url, more={"endpoint": url})
            complain(f"{url}: gone")
    finally:
        log.removeHandler(handler)
    assert written.getvalue().count("\n") == 2 * len(URLS)
    assert SECRET not in written.getvalue()
    assert SECRET not in capsys.readouterr().err
