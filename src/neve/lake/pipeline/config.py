"""The configuration of a pipeline: a YAML file, or the same as a mapping.

Everything is checked before anything runs, and an error names its place in the file. Only the
store and one topic are needed; docs/users/pipeline.md has every field with its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from neve.errors import InvalidError
from neve.lake.pipeline.units import bytes_of, seconds_of
from neve.lake.tables.table_creation import DEAD_LETTERS_SUFFIX

ErrorPolicy: TypeAlias = Literal["dead_letters", "skip", "stop"]
DEFAULT_NAMESPACE = "lake"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")


# Unknown fields are errors.


class PipelineTopic(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One topic and its table."""

    topic: str
    table: str = ""
    value: dict[str, Any] = msgspec.field(default_factory=lambda: {"format": "raw"})
    partition_by: list[str] = msgspec.field(default_factory=lambda: ["day(_kafka.timestamp)"])
    on_error: ErrorPolicy = "dead_letters"
    start: Literal["earliest", "latest"] = "earliest"


class MaintenanceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How tables are maintained."""

    enabled: bool = True
    every: str = "10m"
    keep: str = "5d"
    keep_snapshots: int = 10
    file_size: str = "128MiB"
    small_file_size: str = "32MiB"


class PipelineConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A whole pipeline. Table names include their namespace."""

    store: str
    topics: list[PipelineTopic]
    settings: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    catalog: dict[str, Any] = msgspec.field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    interval: str = "10s"
    batch_size: str = "4GB"
    task_size: str = "128MiB"
    maintenance: MaintenanceConfig = msgspec.field(default_factory=MaintenanceConfig)

    @property
    def interval_seconds(self) -> float:
        return seconds_of(self.interval, "interval")

    @property
    def batch_bytes(self) -> int:
        return bytes_of(self.batch_size, "batch_size")

    @property
    def task_bytes(self) -> int:
        return bytes_of(self.task_size, "task_size")


def load_config(path: Path) -> PipelineConfig:
    """Read and check a pipeline's file. Raises InvalidError."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_config(text, str(path))


def parse_config(given: bytes | str | Mapping[str, Any], where: str = "pipeline") -> PipelineConfig:
    """Parse and check a pipeline from YAML or a mapping. Raises InvalidError."""
    try:
        if isinstance(given, Mapping):
            config = msgspec.convert(given, PipelineConfig)
        else:
            config = msgspec.yaml.decode(given, type=PipelineConfig)
    except msgspec.ValidationError as error:
        raise InvalidError(f"{where}: {_message_of(error)}") from error
    except msgspec.DecodeError as error:
        raise InvalidError(f"{where} is not YAML: {error}") from error
    return _checked(config, where)


def chosen_topics(config: PipelineConfig, topic: str | None) -> list[PipelineTopic]:
    """Return the topic with this name, or all topics for None."""
    found = [each for each in config.topics if topic in (None, each.topic)]
    if not found:
        known = ", ".join(each.topic for each in config.topics)
        raise InvalidError(f"topic {topic} is not in this pipeline; valid topics: {known}")
    return found


def _message_of(error: msgspec.ValidationError) -> str:
    """Return msgspec's message with readable places."""
    message = _PLACE.sub(lambda found: f" (at {found[1] or 'the top'})", str(error))
    return message.replace("`", "")


def _checked(config: PipelineConfig, where: str) -> PipelineConfig:
    if not config.store:
        raise InvalidError(f"{where}: store is empty: name the bucket, such as s3://bucket/prefix")
    if not config.topics:
        raise InvalidError(f"{where}: topics is empty: name at least one topic")
    _ = config.interval_seconds, config.batch_bytes, config.task_bytes
    _check_maintenance(config.maintenance)
    namespace = _identifier(config.namespace, f"{where}: namespace")
    topics = [_with_table(each, namespace, where) for each in config.topics]
    _check_once([each.topic for each in topics], f"{where}: topic")
    _check_once([each.table for each in topics], f"{where}: table")
    _check_letters([each.table for each in topics], where)
    return msgspec.structs.replace(config, topics=topics)


def _check_maintenance(config: MaintenanceConfig) -> None:
    seconds_of(config.every, "maintenance.every")
    seconds_of(config.keep, "maintenance.keep")
    target = bytes_of(config.file_size, "maintenance.file_size")
    small = bytes_of(config.small_file_size, "maintenance.small_file_size")
    if small > target:
        raise InvalidError(
            "maintenance.small_file_size is above maintenance.file_size: files that are large "
            "enough would be merged over and over"
        )
    if config.keep_snapshots < 1:
        raise InvalidError("maintenance.keep_snapshots must be 1 or more")


def _with_table(topic: PipelineTopic, namespace: str, where: str) -> PipelineTopic:
    """Return the topic with the full name of its table."""
    if not topic.topic:
        raise InvalidError(f"{where}: a topic without a name")
    if not topic.table:
        # Few engines accept all names that Iceberg does: a topic a.b-c becomes a table a_b_c.
        return msgspec.structs.replace(
            topic, table=f"{namespace}.{_NOT_IN_A_NAME.sub('_', topic.topic)}"
        )
    parts = topic.table.split(".")
    table = topic.table if len(parts) > 1 else f"{namespace}.{topic.table}"
    for part in parts:
        _identifier(part, f"{where}: table of topic {topic.topic}")
    return msgspec.structs.replace(topic, table=table)


def _identifier(text: str, what: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise InvalidError(f"{what}: {text!r} is not a valid name: use letters, digits and _")
    return text


def _check_once(names: Sequence[str], what: str) -> None:
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            raise InvalidError(f"{what} {name} is given twice: name each once")
        seen[name] = None


def _check_letters(tables: Sequence[str], where: str) -> None:
    """Check that no topic's table is the dead letter table of another."""
    for table in tables:
        if table + DEAD_LETTERS_SUFFIX in tables:
            raise InvalidError(
                f"{where}: {table}{DEAD_LETTERS_SUFFIX} is where the dead letters of {table} go: "
                "name another table for that topic"
            )
