"""Where settings come from, which wins, and what is refused and how it is said."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from neve.errors import InvalidError
from neve.settings import SettingDefinition, Settings, StoreSettings, declared, load, setting, tree

TREE = Settings()


def value_of(tree: Settings, about: SettingDefinition) -> object:
    return getattr(getattr(tree, about.group), about.field)


def toml(folder: Path, text: str) -> Path:
    file = folder / "neve.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(**sources: object) -> str:
    with pytest.raises(InvalidError) as told:
        load(**sources)  # type: ignore[arg-type]
    return str(told.value)


# --- what is declared


def groups_of_the_tree() -> list[str]:
    """All fields but `given`, which says where values came from and is not a setting."""
    return [group.name for group in dataclasses.fields(Settings) if group.name != "given"]


def test_every_group_of_the_tree_is_declared_and_every_declaration_is_in_the_tree() -> None:
    fields = {
        (group, field.name)
        for group in groups_of_the_tree()
        for field in dataclasses.fields(getattr(TREE, group))
    }
    assert {(about.group, about.field) for about in declared().values()} == fields


@pytest.mark.parametrize("about", declared().values(), ids=lambda about: about.name)
def test_a_declaration_is_whole(about: SettingDefinition) -> None:
    assert about.doc
    assert about.kind in (bool, int, float, str)
    assert about.name == about.name.lower()
    assert value_of(TREE, about) == about.default
    if about.choices:
        assert about.default in about.choices


@pytest.mark.parametrize("about", declared().values(), ids=lambda about: about.name)
def test_a_default_may_be_given_in_words_and_passes_its_own_bounds(
    about: SettingDefinition,
) -> None:
    given = str(about.default).lower() if about.kind is bool else str(about.default)
    assert value_of(load(environment={about.variable: given}), about) == about.default
    assert value_of(load(flags={about.name: about.default}), about) == about.default


def test_no_two_settings_share_a_variable_or_a_name() -> None:
    variables = Counter(about.variable for about in declared().values())
    assert [name for name, times in variables.items() if times > 1] == []
    in_tree = sum(len(dataclasses.fields(getattr(TREE, name))) for name in groups_of_the_tree())
    assert len(declared()) == in_tree


def test_no_setting_is_a_table_of_another() -> None:
    names = sorted(declared())
    assert [(a, b) for a in names for b in names if b.startswith(a + ".")] == []


def test_the_tree_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TREE.wal.linger_ms = 5  # type: ignore[misc]


# --- sources and their order


def test_nothing_given_is_the_defaults() -> None:
    assert load() == Settings()


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "[wal]\nlinger.ms = 1\nobject.bytes = 8192\ninflight.max = 2\n")
    environment = {"NEVE_WAL_LINGER_MS": "2", "NEVE_WAL_OBJECT_BYTES": "16384"}
    given = load(file=file, environment=environment, flags={"wal.linger.ms": 3})
    assert given.wal.linger_ms == 3
    assert given.wal.object_bytes == 16384
    assert given.wal.inflight_max == 2
    assert given.wal.buffer_bytes == TREE.wal.buffer_bytes


def test_an_equal_default_still_wins_from_a_stronger_source(tmp_path: Path) -> None:
    file = toml(tmp_path, "store.concurrency.max = 3")
    given = load(file=file, flags={"store.concurrency.max": TREE.store.concurrency_max})
    assert given.store.concurrency_max == TREE.store.concurrency_max


@pytest.mark.parametrize(
    "text",
    [
        "wal.linger.ms = 7",
        "[wal]\nlinger.ms = 7",
        "[wal.linger]\nms = 7",
        '"wal.linger.ms" = 7',
        "wal = { linger = { ms = 7 } }",
    ],
)
def test_toml_may_nest_names_as_it_likes(tmp_path: Path, text: str) -> None:
    assert load(file=toml(tmp_path, text)).wal.linger_ms == 7


def test_other_variables_are_none_of_our_business() -> None:
    assert load(environment={"HOME": "x", "NEVERMIND": "1", "neve_wal": "2"}) == Settings()
    assert load(environment={"NEVE_BOOTSTRAP": "a flag of commands"}) == Settings()


def test_groups_of_odd_names_are_reached() -> None:
    given = load(flags={"manifest.checkpoint.numbers": 9, "tail.cache.bytes": 0})
    assert given.segment.checkpoint_numbers == 9
    assert given.cache.tail_bytes == 0


# --- values


@pytest.mark.parametrize(
    ("text", "truth"),
    [("true", True), ("YES", True), ("1", True), ("False", False), ("no", False), (" 0 ", False)],
)
def test_words_for_true_and_false(text: str, truth: bool) -> None:
    assert load(environment={"NEVE_STORE_HEDGE_ENABLED": text}).store.hedge_enabled is truth


def test_numbers_in_text() -> None:
    given = load(
        environment={"NEVE_WAL_OBJECT_BYTES": " 1_000_000 ", "NEVE_STORE_RETRY_JITTER": "0.5"}
    )
    assert given.wal.object_bytes == 1_000_000
    assert given.store.retry_jitter == 0.5


def test_a_whole_number_serves_as_a_number() -> None:
    jitter = load(flags={"store.retry.jitter": 1}).store.retry_jitter
    assert jitter == 1.0
    assert isinstance(jitter, float)


def test_text_stays_as_it_is() -> None:
    assert load(environment={"NEVE_STORE_REGION": " eu 1 "}).store.region == " eu 1 "


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("wal.linger.ms", "soon", "an integer >= -1"),
        ("wal.linger.ms", "", "an integer >= -1"),
        ("wal.linger.ms", "1.5", "an integer >= -1"),
        ("wal.linger.ms", 1.5, "an integer >= -1"),
        ("wal.linger.ms", True, "an integer >= -1"),
        ("wal.linger.ms", [1], "an integer >= -1"),
        ("wal.linger.ms", None, "an integer >= -1"),
        ("store.retry.jitter", "much", "a number from 0 to 1"),
        ("store.retry.jitter", True, "a number from 0 to 1"),
        ("store.retry.jitter", "nan", "a number from 0 to 1"),
        ("store.retry.budget.per.second", "inf", "a number >= 0"),
        ("store.retry.budget.per.second", float("nan"), "a number >= 0"),
        ("store.hedge.enabled", "maybe", "true or false"),
        ("store.hedge.enabled", 1, "true or false"),
        ("store.region", 5, "text"),
        ("wal.linger.ms", -2, "an integer >= -1"),
        ("wal.inflight.max", 65, "an integer from 1 to 64"),
        ("segment.bytes", 2**31, "an integer from 1024 to 1073741824"),
        ("store.retry.jitter", 1.01, "a number from 0 to 1"),
    ],
)
def test_a_bad_value_is_refused_by_name_and_source(name: str, value: object, accepted: str) -> None:
    said = refusal(flags={name: value})
    assert said == f"flags: {name} must be {accepted}, not {value!r}"


# Settings that reach a bound of their own only if another is lowered too.
TOGETHER = {
    "prefetch.window": {"prefetch.downloads": 1},
    "cluster.session.ms": {"cluster.heartbeat.ms": 50},
}


def test_the_bounds_themselves_are_good() -> None:
    for about in declared().values():
        for bound in (about.minimum, about.maximum):
            if bound is not None and about.name != "prefetch.downloads":
                flags = {about.name: about.kind(bound), **TOGETHER.get(about.name, {})}
                assert value_of(load(flags=flags), about) == bound


def test_choices_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Colours(StoreSettings):
        colour: str = setting("store.colour", "red", "a test", choices=("red", "blue"))

    monkeypatch.setitem(tree.GROUPS, "store", Colours)
    assert load(flags={"store.colour": "blue"}).store.colour == "blue"  # type: ignore[attr-defined]
    assert "must be one of red, blue, not 'green'" in refusal(flags={"store.colour": "green"})


def test_where_a_bad_value_stood_is_told(tmp_path: Path) -> None:
    file = toml(tmp_path, "wal.linger.ms = 'soon'")
    assert refusal(file=file).startswith(f"{file}: wal.linger.ms must be")
    said = refusal(environment={"NEVE_WAL_LINGER_MS": "soon"})
    assert said.startswith("environment: wal.linger.ms must be an integer >= -1, not 'soon'")


def test_a_bad_value_is_refused_even_where_a_stronger_source_overrules_it(tmp_path: Path) -> None:
    file = toml(tmp_path, "wal.linger.ms = 'soon'")
    assert "soon" in refusal(file=file, flags={"wal.linger.ms": 1})


# --- names


@pytest.mark.parametrize(
    ("given", "meant"),
    [("wal.lingerms", "wal.linger.ms"), ("store.concurency.max", "store.concurrency.max")],
)
def test_an_unknown_name_is_refused_with_a_suggestion(given: str, meant: str) -> None:
    assert refusal(flags={given: 1}) == (
        f"flags: unknown setting {given!r} (did you mean {meant}?)"
    )


def test_an_unknown_variable_is_answered_with_a_variable() -> None:
    assert refusal(environment={"NEVE_WAL_LINGERMS": "1"}) == (
        "environment: unknown setting 'NEVE_WAL_LINGERMS' (did you mean NEVE_WAL_LINGER_MS?)"
    )


def test_nothing_near_suggests_nothing() -> None:
    assert refusal(flags={"zzz": 1}) == "flags: unknown setting 'zzz'"


def test_an_unknown_name_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "[walk]\nlinger.ms = 1\n")
    assert refusal(file=file).startswith(f"{file}: unknown setting 'walk.linger.ms'")


def test_a_value_where_a_table_belongs_is_refused(tmp_path: Path) -> None:
    assert "unknown setting 'wal'" in refusal(file=toml(tmp_path, "wal = 5"))


def test_a_table_where_a_value_belongs_is_refused(tmp_path: Path) -> None:
    file = toml(tmp_path, "[wal.linger.ms]\nx = 1\n")
    assert "unknown setting 'wal.linger.ms.x'" in refusal(file=file)


# --- files


def test_a_file_that_is_not_toml_is_told_with_its_line(tmp_path: Path) -> None:
    file = toml(tmp_path, "[wal]\nlinger.ms = \n")
    said = refusal(file=file)
    assert said.startswith(f"{file}: invalid TOML")
    assert "line 2" in said


def test_a_name_given_twice_is_told(tmp_path: Path) -> None:
    file = toml(tmp_path, "wal.linger.ms = 1\nwal.linger.ms = 2\n")
    assert "invalid TOML" in refusal(file=file)


def test_the_same_name_nested_two_ways_is_told(tmp_path: Path) -> None:
    file = toml(tmp_path, '"wal.linger.ms" = 1\nwal.linger.ms = 2\n')
    assert "wal.linger.ms is set twice" in refusal(file=file)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    file = tmp_path / "neve.toml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "invalid TOML" in refusal(file=file)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    said = refusal(file=tmp_path / "gone.toml")
    assert said.startswith(str(tmp_path / "gone.toml"))
    assert "cannot read the file" in said


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "cannot read the file" in refusal(file=tmp_path)


# --- settings that depend on each other


def test_more_downloads_than_the_window_holds_are_refused() -> None:
    said = refusal(flags={"prefetch.downloads": 17})
    assert "prefetch.downloads (17)" in said
    assert "prefetch.window (16)" in said


def test_a_window_below_the_default_downloads_is_refused_too(tmp_path: Path) -> None:
    assert "prefetch.window (4)" in refusal(file=toml(tmp_path, "prefetch.window = 4"))


def test_a_full_window_of_downloads_is_good() -> None:
    given = load(flags={"prefetch.window": 4, "prefetch.downloads": 4})
    assert (given.prefetch.window, given.prefetch.downloads) == (4, 4)


@pytest.mark.parametrize(
    "text", ["localhost:9000", "s3.local", "ftp://host", "http://", "https://:1", "http://h:x"]
)
def test_an_endpoint_is_an_http_address(text: str) -> None:
    with pytest.raises(InvalidError, match=r"store\.endpoint .* http://host:port or https://host"):
        load(flags={"store.endpoint": text})


@pytest.mark.parametrize(
    "text", ["", "http://localhost:9000", "https://s3.local/path", "http://[::1]"]
)
def test_an_endpoint_may_have_a_path_or_be_left_out(text: str) -> None:
    assert load(flags={"store.endpoint": text}).store.endpoint == text


def test_what_was_given_is_known_by_name(tmp_path: Path) -> None:
    file = tmp_path / "neve.toml"
    file.write_text("wal.linger.ms = 5")
    loaded = load(
        file=file, environment={"NEVE_STORE_REGION": ""}, flags={"http.listen": "127.0.0.1:9464"}
    )
    assert loaded.given == {"wal.linger.ms", "store.region", "http.listen"}
    assert load().given == frozenset()
    assert load() == load(flags={"http.listen": "127.0.0.1:9464"})


def test_the_session_time_out_covers_three_heartbeats() -> None:
    assert "cluster.session.ms (2999) is less than 3 times cluster.heartbeat.ms (1000)" in refusal(
        flags={"cluster.session.ms": 2_999}
    )
    given = load(flags={"cluster.session.ms": 3_000}).cluster
    assert (given.session_ms, given.heartbeat_ms) == (3_000, 1_000)
    assert load(flags={"cluster.session.ms": 500, "cluster.heartbeat.ms": 150})
    refusal(flags={"cluster.session.ms": 499, "cluster.heartbeat.ms": 100})
    for count in (0, 17):
        refusal(flags={"cluster.watchers": count})
