"""The resources of AlterConfigs and IncrementalAlterConfigs, each changed separately."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from neve.broker.admin.changes import Changes
from neve.broker.admin.duplicates import check_named_once, each_once
from neve.broker.error_codes import NO_ERROR, admin_error
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.broker.admin.config_changes import ConfigEdit, Derive
    from neve.broker.broker import Broker


class ResourceEdit(NamedTuple):
    """The changes that a request asks for in one resource. `kind` is Kafka's resource type."""

    kind: int
    name: str
    configs: Sequence[ConfigEdit]


class EditOutcome(NamedTuple):
    """The outcome for one resource. `code` is NO_ERROR if it was changed."""

    kind: int
    name: str
    code: int
    reason: str | None


async def alter(
    broker: Broker, edits: Sequence[ResourceEdit], derive: Derive, *, validate_only: bool
) -> list[EditOutcome]:
    """Change the resources one after the other, and return an outcome for each."""
    changes = None if validate_only else Changes(broker.changing)
    outcomes = []
    for edit, times in each_once(edits, attrgetter("kind", "name")):
        code, reason = NO_ERROR, None
        try:
            check_named_once(f"resource {edit.name!r}", times)
            await broker.configs.alter(edit.kind, edit.name, edit.configs, derive, changes)
        except NeveError as error:
            code, reason = admin_error(error)
        outcomes.append(EditOutcome(edit.kind, edit.name, code, reason))
    return outcomes
