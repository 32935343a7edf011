"""What all tests share: an `async def test_…` runs in the real world, on Neve's own runner, and
Spark starts quickly.
"""

from __future__ import annotations

import inspect

import pytest

from neve import runtime
from support.quick_jvm import start_jvms_quickly

start_jvms_quickly()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    runtime.run(pyfuncitem.obj(**arguments))
    return True
