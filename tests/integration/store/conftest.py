"""The servers that these tests speak to."""

from support.servers import moto_s3, seaweed_s3

__all__ = ["moto_s3", "seaweed_s3"]
