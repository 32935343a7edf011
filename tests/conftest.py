"""What all tests share.

An `async def test_…` runs on Neve's own runner with the real clock, Spark starts quickly, and the
folders with long tests come first: at the end they would keep one worker busy while the others are
idle.
"""

from __future__ import annotations

import inspect

import pytest

from neve import runtime
from support.quick_jvm import start_jvms_quickly

LONG_TESTS_FIRST = ["integration", "soak", "conformance", "simulation", "model"]

start_jvms_quickly()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = config.rootpath / "tests"

    def position(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        last = len(LONG_TESTS_FIRST)
        return LONG_TESTS_FIRST.index(folder) if folder in LONG_TESTS_FIRST else last

    items.sort(key=position)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    runtime.run(pyfuncitem.obj(**arguments))
    return True
