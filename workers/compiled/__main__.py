"""Compile the query path: ``python -m workers.compiled``."""

from __future__ import annotations

import argparse
import os
import sys

from .build import CannotBuild, build, built, check


def main() -> int:
    """Exit status 1: it cannot be built here."""
    parser = argparse.ArgumentParser(prog="python -m workers.compiled", description="Compile the query path.")
    parser.add_argument("--if-possible", action="store_true", help="no failure where it cannot be")
    given = parser.parse_args()
    # Whoever installs may keep things private by habit; services have users of their own.
    os.umask(0o022)
    try:
        if built():
            return 0
        check()
        print("compiling the query path, once: up to a few minutes", flush=True)
        build()
    except CannotBuild as reason:
        print(f"{reason}\nThe query path runs as plain Python, which takes more CPU time a query.", file=sys.stderr)
        return 0 if given.if_possible else 1
    print("compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
