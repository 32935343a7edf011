"""Memory that is freed is used again, and not given back and asked for anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS_MAX = 1_000

CODE = """
import resource
from neve.runtime.allocator import keep_freed_memory

def faults():
    part = bytes(1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        b"".join([part] * 64)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

untuned = faults()
tuned = keep_freed_memory()
faults()
print(tuned, untuned, faults())
"""


def test_large_blocks_are_used_again():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    tuned, faults_before, faults_after = done.stdout.split()
    if tuned == "False":
        pytest.skip("the C library of this system is not glibc")
    assert int(faults_after) < FAULTS_MAX < int(faults_before)
