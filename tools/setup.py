"""Create `.venv` and install the pinned packages into it, with the standard library alone.

Does nothing if the environment is current: its stamp has the hash of everything that determines its
content, and every installed package that is pinned has its pinned version.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "neve-installed"
PYTHON = VENV / "bin" / "python"
# Installed first: older versions of pip do not support dependency groups.
INSTALLER = ("pip", "setuptools")


def pins() -> dict[str, str]:
    """Return the pinned version of every package, by its normalised name."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, version = line.split(";")[0].split("==")
            found[normalised(name)] = version.strip()
    return found


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()


def wanted() -> str:
    """Return a hash of everything that determines the environment's content.

    The options of tools in pyproject.toml do not.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project.pop("tool", None)
    parts = [project, pins(), str(ROOT)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def is_current() -> bool:
    """Whether this runs in `.venv`, and that is complete and has the pinned versions."""
    if Path(sys.prefix) != VENV or not STAMP.is_file() or STAMP.read_text() != wanted():
        return False
    from importlib.metadata import distributions

    pinned = pins()
    installed = {normalised(found.metadata["Name"]): found.version for found in distributions()}
    return all(pinned.get(name, version) == version for name, version in installed.items())


def make_environment() -> None:
    """Create a new `.venv` with pip, also if Debian's Python has no ensurepip."""
    has_ensurepip = importlib.util.find_spec("ensurepip") is not None
    if not has_ensurepip and importlib.util.find_spec("pip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            f"{sys.executable} has neither ensurepip nor pip, so no environment can be made.\n"
            f"On Debian and Ubuntu: apt-get install python{version}-venv"
        )
    print(f"Making .venv with {sys.executable} ({sys.version.split()[0]})", flush=True)
    venv.create(VENV, clear=True, symlinks=True, with_pip=has_ensurepip)
    if not has_ensurepip:
        run([sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "-q", pin("pip")])


def pin(name: str) -> str:
    return f"{name}=={pins()[name]}"


def install() -> None:
    pip = [str(PYTHON), "-m", "pip", "install", "-q", "-c", "constraints.txt"]
    print("Installing the pinned packages (some minutes the first time)", flush=True)
    run([*pip, *(pin(name) for name in INSTALLER)])
    # Without isolation, packages are built with the pinned setuptools.
    run([*pip, "--no-build-isolation", "--group", "dev", "-e", ".[lake]"])


def compile_kernels() -> None:
    """Compile the kernels into the user's cache, so that no later process has to."""
    run([str(PYTHON), "-c", "import neve.records.encoder, neve.lake.values.json_flat"])


def run(command: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=clean, check=False)
    if done.returncode != 0:
        sys.exit(f"set-up failed at: {' '.join(command)}")


def environment_works() -> bool:
    """Whether `.venv` was created in this folder with a Python version that Neve supports."""
    question = "import sys, pip; print(sys.prefix, (3, 11) <= sys.version_info[:2] <= (3, 14))"
    try:
        answer = subprocess.run(
            [PYTHON, "-c", question], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return answer.stdout.strip() == f"{VENV} True"


def main() -> None:
    if "--current" in sys.argv:
        sys.exit(0 if is_current() else 1)
    folder = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # two `make`s at once must not both install
    again = [str(PYTHON), __file__, "--current"]
    if PYTHON.exists() and subprocess.run(again, check=False).returncode == 0:
        return
    STAMP.unlink(missing_ok=True)
    if not environment_works():
        make_environment()
    install()
    compile_kernels()
    STAMP.write_text(wanted())


if __name__ == "__main__":
    main()
