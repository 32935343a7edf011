"""Verifies a bucket: reports what is wrong with it, and what to do about each finding."""

from neve.bucket.verify.findings import Deed, Finding, Progress, Report, Severity
from neve.bucket.verify.run import Options, TemporaryFiles, verify

__all__ = [
    "Deed",
    "Finding",
    "Options",
    "Progress",
    "Report",
    "Severity",
    "TemporaryFiles",
    "verify",
]
