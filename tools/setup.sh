#!/bin/sh
# Brings .venv up to date, or does nothing where it already is. It needs a Python and nothing else.
set -eu
cd "$(dirname "$0")/.."

if .venv/bin/python tools/setup.py --current 2>/dev/null; then
    exit 0
fi

# A name on the PATH may be a version manager's stub that fails, so each candidate is really run.
version_of() {
    "$1" -c 'import sys; print("%d%02d" % sys.version_info[:2])' 2>/dev/null || echo 0
}

best=0
chosen=
for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
    found=$(version_of "$name")
    # 3.15 and later are left alone until Spark and numba are known to run there.
    if [ "$found" -ge 311 ] && [ "$found" -le 314 ] && [ "$found" -gt "$best" ]; then
        best=$found
        chosen=$name
    fi
done

if [ -z "$chosen" ]; then
    echo "Neve needs Python 3.11, 3.12, 3.13 or 3.14, and none was found on the PATH." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python3.12 setup" >&2
    exit 1
fi
exec "$chosen" tools/setup.py
