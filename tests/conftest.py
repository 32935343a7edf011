"""What all tests share.

An `async def test_…` runs on Neve's own runner with the real clock, Spark starts quickly, and long
tests come first: at the end they would keep one worker busy while the others are idle. Commands
under test can be interrupted even if the shell that started pytest ignores SIGINT, as it does for
jobs in the background of a script.
"""

from __future__ import annotations

import collections
import inspect
import signal

import pytest

from neve import runtime
from support.quick_jvm import start_jvms_quickly

LONGEST_FILE = "integration/test_pages_followed.py"
LONG_FOLDERS = ("integration", "soak", "conformance", "simulation", "model")
"""Folders with long tests. Their files are mixed, so that tests that compute (Spark, models) run
beside tests that wait (clients, time-outs)."""

start_jvms_quickly()
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"
    files = dict.fromkeys(item.path for item in items)
    folders = {file: file.relative_to(tests).parts[0] for file in files}
    counts = collections.Counter(folders.values())
    seen: collections.Counter[str] = collections.Counter()
    positions = {}
    for file, folder in folders.items():
        if folder in LONG_FOLDERS:
            positions[file] = seen[folder] / counts[folder]
            seen[folder] += 1
        else:
            positions[file] = 1.0
    positions[tests / LONGEST_FILE] = -1.0
    items.sort(key=lambda item: positions[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    runtime.run(pyfuncitem.obj(**arguments))
    return True
