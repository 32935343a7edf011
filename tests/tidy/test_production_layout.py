"""The production layout in docs/operators/deploy.md: its settings load, its limits fit them."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from neve.broker.descriptors import reserved_descriptors
from neve.cli.application import build_app
from neve.cli.serve import EXIT_FENCED, STOP_MARGIN_SECONDS
from neve.settings import MIB, Settings, check_memory, load
from tidy.repository import ROOT

PAGE = (ROOT / "docs" / "operators" / "deploy.md").read_text(encoding="utf-8")
TROUBLESHOOT = (ROOT / "docs" / "operators" / "troubleshoot.md").read_text(encoding="utf-8")
EXIT_USAGE = 2


def block_in(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(found) == 1, language
    return str(found[0])


@pytest.fixture
def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block_in("ini"))
    return unit["Service"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "neve.toml"
    file.write_text(block_in("toml"), encoding="utf-8")
    return load(file=file, environment={}, flags={})


def test_the_settings_load_and_fit_the_memory(settings: Settings) -> None:
    check_memory(settings)
    assert settings.broker.store.startswith("s3://")


def test_the_command_parses_with_its_flags(service: configparser.SectionProxy) -> None:
    program, *tokens = shlex.split(service["ExecStart"])
    assert Path(program).name == "neve"
    command, bound, _ = build_app().parse_args(tokens, print_error=False, exit_on_error=False)
    assert command.__name__ == "serve"
    assert {"node_id", "rack", "settings"} <= set(bound.arguments)


def test_the_limit_on_open_files_covers_all_connections(
    service: configparser.SectionProxy, settings: Settings
) -> None:
    needed = settings.broker.connections_max + reserved_descriptors(settings)
    assert int(service["LimitNOFILE"]) >= needed
    assert f"{needed:,} with the defaults" in PAGE


def test_memory_max_is_a_quarter_above_the_memory_of_the_broker(
    service: configparser.SectionProxy, settings: Settings
) -> None:
    assert service["MemoryMax"].endswith("M")
    assert int(service["MemoryMax"][:-1]) * MIB == settings.broker.memory_bytes * 5 // 4


def test_systemd_waits_for_longer_than_the_broker_takes_to_stop(
    service: configparser.SectionProxy, settings: Settings
) -> None:
    assert f"`broker.stop.grace.ms` + {STOP_MARGIN_SECONDS} s" in PAGE
    stops_within = settings.broker.stop_grace_ms / 1000 + STOP_MARGIN_SECONDS
    assert int(service["TimeoutStopSec"]) > stops_within


def test_a_restart_is_prevented_where_it_does_harm(service: configparser.SectionProxy) -> None:
    prevented = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert prevented == {EXIT_USAGE, EXIT_FENCED}
    assert f"| {EXIT_FENCED} | Another process with this node id" in TROUBLESHOOT


def test_the_cache_is_in_the_folder_that_systemd_creates(
    service: configparser.SectionProxy, settings: Settings
) -> None:
    assert settings.cache.index_folder == f"/var/cache/{service['CacheDirectory']}"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


def test_the_file_of_settings_holds_no_credentials() -> None:
    assert "AWS" not in str(tomllib.loads(block_in("toml")))
    assert "AWS_SECRET_ACCESS_KEY" in block_in("sh")
