"""Compile the query path: ``python -m workers.compiled``."""

from __future__ import annotations

import argparse
import sys

from .build import CannotBuild, build
from .closed import FOLDER, signature


def main() -> int:
    """Exit status 1: it cannot be built here."""
    parser = argparse.ArgumentParser(prog="python -m workers.compiled", description="Compile the query path.")
    parser.add_argument("--if-possible", action="store_true", help="no failure where it cannot be")
    given = parser.parse_args()
    if (FOLDER / signature()).is_dir():
        return 0
    print("compiling the query path, once: up to a few minutes", flush=True)
    try:
        build()
    except CannotBuild as reason:
        print(f"{reason}\nThe query path runs as plain Python, which takes more CPU time a query.", file=sys.stderr)
        return 0 if given.if_possible else 1
    print("compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
