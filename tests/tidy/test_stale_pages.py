"""Pages name only what exists: headings, files, modules, settings, metrics and errors."""

from __future__ import annotations

import builtins
import importlib
import re
from pathlib import Path

import pytest

from neve.cluster.broker_config import BROKER_CONFIGS
from neve.cluster.topic_config import CONFIGS
from neve.serving.catalogue import CATALOGUE
from neve.settings import declared
from tidy.repository import ROOT, pages, shown_name, source_files, tracked_files

MAP = ROOT / "docs" / "contributors" / "map.md"
SAMPLES = ("_bucket", "_sum", "_count")
NOT_METRICS = {"kafka_exporter", "neve_layout"}
# Properties of Iceberg tables and snapshots, which look like names of modules.
TABLE_PROPERTIES = {"neve.last", "neve.progress"}
# Configs of Kafka's clients, and names of SQL, that look like settings.
NOT_SETTINGS = {"group.id", "group.instance.id", "group.protocol", "topics.orders"}
NOT_SETTINGS |= {"tiering.busy", "tiering.fast", "tiering.many"}  # rows of a benchmark


def prose_of(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def spans_of(page: Path) -> list[str]:
    """What a page sets in backticks outside of code blocks."""
    return re.findall(r"`([^`\n]+)`", prose_of(page))


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.+)$", prose_of(page), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return set(found)


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_anchor_leads_to_a_heading(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", prose_of(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.is_file() or anchor not in anchors_of(linked):
            dead.append(target)
    assert dead == [], "change the link, or give the page that heading"


def files_named(page: Path) -> list[str]:
    pattern = r"[\w./-]+\.(?:py|toml|txt)|(?:src|tests|tools|docs)/[\w./-]+"
    return [span for span in spans_of(page) if re.fullmatch(pattern, span)]


def exists(name: str, tracked: list[str]) -> bool:
    """Whether a file or folder of the repository has this path, or ends with it."""
    folder = f"/{name.strip('/')}/"
    return any(f"/{file}".endswith(f"/{name}") or folder in f"/{file}" for file in tracked)


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_file_named_exists(page: Path) -> None:
    tracked = [shown_name(file) for file in tracked_files()]
    gone = [name for name in files_named(page) if not exists(name, tracked)]
    assert gone == [], f"{shown_name(page)} names files that were moved or renamed: correct it"


def test_every_page_named_in_code_exists() -> None:
    gone = [
        f"{shown_name(file)}: {name}"
        for file in tracked_files()
        if file.suffix in (".py", ".pyi", ".toml") or file.name == "Makefile"
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text(encoding="utf-8"))
        if not (ROOT / name).is_file()
    ]
    assert gone == [], "the page was moved or renamed: see docs/README.md"


def test_the_map_names_files_by_their_whole_path() -> None:
    wrong = [name for name in files_named(MAP) if not (ROOT / name).exists()]
    assert wrong == [], "docs/contributors/map.md: write paths from the root; follow moved files"


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_module_and_attribute_named_exists(page: Path) -> None:
    names = {
        name
        for span in spans_of(page)
        for name in re.findall(r"\bneve(?:\.[A-Za-z_]\w*)+", span)
        if re.match(r"neve\.[a-z_]+", name)
    }
    missing = sorted(name for name in names - TABLE_PROPERTIES if not _resolves(name))
    assert missing == [], "these were renamed or moved"


def _resolves(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def bench_rows() -> set[str]:
    """The names of benchmarks' rows, such as `wal.puts`."""
    files = [file for file in source_files() if "bench" in file.parts]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return set(re.findall(r'"([a-z0-9]+(?:\.[a-z0-9_]+)+)"', source))


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_setting_named_exists(page: Path) -> None:
    known = {*declared(), *CONFIGS, *BROKER_CONFIGS, *NOT_SETTINGS, *bench_rows()}
    groups = {name.split(".")[0] for name in declared()}
    named = {
        span.split("=")[0].strip()
        for span in spans_of(page)
        if re.fullmatch(r"[a-z]+(\.[a-z0-9]+)+( ?= ?\S+)?", span) and span.split(".")[0] in groups
    }
    files = {file.name for file in tracked_files()}
    assert sorted(named - known - files) == [], "no such setting: see docs/operators/settings.md"


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_metric_named_exists(page: Path) -> None:
    spans = "\n".join(spans_of(page))
    named = set(re.findall(r"\b(?:neve|kafka)_[a-z]\w*[a-z]\b", spans)) - NOT_METRICS
    unknown = [
        name
        for name in sorted(named)
        if not {name, *(name.removesuffix(end) for end in SAMPLES)} & set(CATALOGUE)
    ]
    assert unknown == [], "no such metric: see docs/operators/metrics.md"


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_error_named_exists(page: Path) -> None:
    source = "\n".join(file.read_text(encoding="utf-8") for file in source_files())
    declared_here = set(re.findall(r"^class (\w+Error)\b", source, flags=re.MULTILINE))
    named = set(re.findall(r"\b[A-Z]\w+Error\b", "\n".join(spans_of(page))))
    assert sorted(name for name in named - declared_here if not hasattr(builtins, name)) == []


# Flags of other programs that pages mention, and the suffix of S3 Express buckets.
FOREIGN_FLAGS = {"--entity-type", "--entity-default", "--explore", "--py-files", "--soak", "--x-s"}
FOREIGN_FLAGS |= {"--size-only"}  # of the AWS CLI


def flags_of_neve() -> set[str]:
    """Every flag in the source of the command line, by its name or by its parameter."""
    folder = ROOT / "src" / "neve" / "cli"
    source = "\n".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    parameters = re.findall(r"^\s+(\w+): ", source, flags=re.MULTILINE)
    named = {f"--{name.strip('_').replace('_', '-')}" for name in parameters}
    return named | set(re.findall(r"--[a-z][a-z-]+", source)) | {"--help", "--version"}


@pytest.mark.parametrize("page", pages(), ids=shown_name)
def test_every_flag_named_exists(page: Path) -> None:
    shown = [span for span in spans_of(page) if span.startswith(("--", "neve "))]
    indented = re.findall(r"^    (neve .*)$", prose_of(page), flags=re.MULTILINE)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join([*shown, *indented])))
    named = {flag.replace("--no-", "--", 1) for flag in named}
    assert sorted(named - flags_of_neve() - FOREIGN_FLAGS) == [], "no such flag: see neve --help"


def test_every_event_described_is_logged() -> None:
    monitor = (ROOT / "docs" / "operators" / "monitor.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \| (?:info|warning|debug) \|", monitor, flags=re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    source = "\n".join(file.read_text(encoding="utf-8") for file in source_files())
    assert len(described) > 15
    assert sorted(name for name in described if f'"{name}"' not in source) == []


FOR_CONTRIBUTORS = [page for page in pages() if page.parent.name == "contributors"]
FOREIGN_NAMES = {"String.hashCode"}


@pytest.fixture(scope="module")
def words_of_the_code() -> set[str]:
    files = [file for file in tracked_files() if file.suffix in (".py", ".pyi", ".toml")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return {*re.findall(r"\w+", text), *(file.stem for file in files)}


@pytest.mark.parametrize("page", FOR_CONTRIBUTORS, ids=shown_name)
def test_every_identifier_named_is_in_the_code(page: Path, words_of_the_code: set[str]) -> None:
    """Names such as `plan_spans` or `LocatedRange`, which a rename leaves behind in a page."""
    dotted = r"[A-Za-z_]\w*(?:\.\w+)*(?:\(\))?"
    named = {span for span in spans_of(page) if re.fullmatch(dotted, span)} - FOREIGN_NAMES
    parts = {part for name in named for part in name.removesuffix("()").split(".")}
    coined = {part for part in parts if "_" in part.strip("_") or re.search("[a-z][A-Z]", part)}
    assert sorted(coined - words_of_the_code) == [], "no such name in the code: it was renamed"
