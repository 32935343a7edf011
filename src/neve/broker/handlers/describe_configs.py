"""DescribeConfigs: what topics and this broker are set to, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.configs import (
    DEFAULT,
    ConfigRow,
    all_brokers_rows,
    broker_rows,
    topic_rows,
)
from neve.broker.error_codes import admin_error
from neve.broker.handlers.config_resources import BROKER, TOPIC, node_named, refuse_type
from neve.cluster.records import ALL_NODES
from neve.errors import NeveError
from neve.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(
    broker: Broker, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    del context
    # Once each: a name is short, and its description is long.
    wanted: dict[tuple[int, str], DescribeConfigsRequest.Resource] = {}
    for asked in request.resources:
        wanted.setdefault((asked.resource_type, asked.resource_name), asked)
    return DescribeConfigsResponse(
        results=[_result(broker, request, asked) for asked in wanted.values()]
    )


def _result(
    broker: Broker, request: DescribeConfigsRequest, asked: DescribeConfigsRequest.Resource
) -> DescribeConfigsResponse.Resource:
    kind, name = asked.resource_type, asked.resource_name
    try:
        rows = _rows(broker, kind, name)
    except NeveError as error:
        code, reason = admin_error(error)
        return DescribeConfigsResponse.Resource(
            error_code=code, error_message=reason, resource_type=kind, resource_name=name
        )
    if asked.configuration_keys:  # neither null nor empty: some only
        rows = [row for row in rows if row.name in asked.configuration_keys]
    configs = [
        _config(row, request.include_synonyms, request.include_documentation) for row in rows
    ]
    return DescribeConfigsResponse.Resource(
        error_message=None, resource_type=kind, resource_name=name, configs=configs
    )


def _rows(broker: Broker, resource_type: int, name: str) -> list[ConfigRow]:
    if resource_type == TOPIC:
        return topic_rows(broker.topics.find(name).configs, broker)
    if resource_type != BROKER:
        raise refuse_type(resource_type)
    is_about_all = node_named(broker, name) == ALL_NODES
    return all_brokers_rows(broker) if is_about_all else broker_rows(broker)


def _config(
    row: ConfigRow, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResponse.Config:
    synonyms = [
        DescribeConfigsResponse.Synonym(name=origin.name, value=origin.value, source=origin.source)
        for origin in (row.origins if with_synonyms else [])
    ]
    return DescribeConfigsResponse.Config(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        is_default=row.source == DEFAULT,
        config_source=row.source,
        synonyms=synonyms,
        config_type=row.kind,
        documentation=row.doc if with_documentation else None,
    )
