"""The contract against real S3 servers."""

from __future__ import annotations

import pytest

from neve.store.url import open_store
from support.servers import S3Server
from support.store_contract import StoreContract, StoreFactory


class TestMoto(StoreContract):
    @pytest.fixture
    def store_factory(self, moto_s3: S3Server) -> StoreFactory:
        return lambda: open_store(f"s3://{moto_s3.new_bucket()}", moto_s3.settings())


class TestSeaweedFS(StoreContract):
    @pytest.fixture
    def store_factory(self, seaweed_s3: S3Server) -> StoreFactory:
        return lambda: open_store(f"s3://{seaweed_s3.new_bucket()}", seaweed_s3.settings())


class TestSeaweedFSWithPrefix(StoreContract):
    @pytest.fixture
    def store_factory(self, seaweed_s3: S3Server) -> StoreFactory:
        url = f"s3://{seaweed_s3.new_bucket()}/some/prefix/"
        return lambda: open_store(url, seaweed_s3.settings())
