"""DescribeConfigs: the configs of topics and of this broker, and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.configs import ConfigEntry, ConfigSource
from neve.broker.error_codes import admin_error
from neve.errors import NeveError
from neve.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(
    broker: Broker, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    del context
    # Describe a resource once even if it is named repeatedly, because a description is large.
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
        entries = broker.configs.describe(kind, name)
    except NeveError as error:
        code, reason = admin_error(error)
        return DescribeConfigsResponse.Resource(
            error_code=code, error_message=reason, resource_type=kind, resource_name=name
        )
    if asked.configuration_keys:  # null and empty mean all
        entries = [each for each in entries if each.name in asked.configuration_keys]
    configs = [
        _config(each, request.include_synonyms, request.include_documentation) for each in entries
    ]
    return DescribeConfigsResponse.Resource(
        error_message=None, resource_type=kind, resource_name=name, configs=configs
    )


def _config(
    entry: ConfigEntry, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResponse.Config:
    synonyms = [
        DescribeConfigsResponse.Synonym(name=each.name, value=each.value, source=each.source)
        for each in (entry.synonyms if with_synonyms else [])
    ]
    return DescribeConfigsResponse.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source == ConfigSource.DEFAULT,
        config_source=entry.source,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if with_documentation else None,
    )
