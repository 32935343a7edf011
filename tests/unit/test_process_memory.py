"""Freed memory is reused rather than returned to the system and requested again."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS_MAX = 1_000

CODE = """
import resource
from neve.runtime.process_memory import keep_freed_memory

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


GIVING = """
from neve.runtime import give_back_freed_memory, keep_freed_memory, resident_bytes

keep_freed_memory()
parts = [bytes([1]) * 1_000_000 for _ in range(200)]
last = bytes(1000)
del parts[::2], parts[:50]
held = resident_bytes()
given = give_back_freed_memory()
print(given, held - resident_bytes(), sum(map(len, parts)))
"""


def test_freed_memory_is_given_back_when_asked():
    done = subprocess.run(
        [sys.executable, "-c", GIVING], capture_output=True, text=True, check=True
    )
    given, less, held = done.stdout.split()
    if given == "False":
        pytest.skip("the C library of this system is not glibc")
    assert int(held) == 50_000_000
    assert int(less) > 100_000_000
