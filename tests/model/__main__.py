"""Print the shortest trace for every dropped rule; with `--explore`, count all states first.

From the root of the repository: `python -m tests.model [--explore [--soak]] [words of a name]`.
"""

from __future__ import annotations

import argparse
import sys

from .catalogue import DROPPED, EXPLORATIONS
from .search import Result, explore


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="only what has this in its name")
    parser.add_argument("--explore", action="store_true", help="visit every state under all rules")
    parser.add_argument("--soak", action="store_true", help="with --explore: larger bounds too")
    options = parser.parse_args()
    failed = False
    if options.explore or options.soak:
        for exploration in EXPLORATIONS:
            if options.name in exploration.name and (options.soak or exploration.mark != "soak"):
                failed |= _print_exploration(exploration.name, explore(exploration.model))
    for dropped in DROPPED:
        if options.name in dropped.name:
            result = explore(dropped.model, harm=dropped.harm)
            failed |= result.violation is None
            print(f"without {dropped.name}\n{result.violation or '  no harm found'}\n", flush=True)
    return int(failed)


def _print_exploration(name: str, result: Result) -> bool:
    verdict = "all visited, no harm" if result.exhausted else "NOT all visited"
    print(f"{name}: {result.states:,} states, {verdict}", flush=True)
    if result.violation is not None:
        print(result.violation)
    return not result.exhausted


if __name__ == "__main__":
    sys.exit(main())
