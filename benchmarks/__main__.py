"""Runs a benchmark by its name, or else those that show a change (:data:`USUAL`), one after the other."""

from __future__ import annotations

import importlib
import sys

import httpx2

from appliance.demo.rest import RestError

#: name: the first line of the module's docstring says the rest
NAMES = (
    "query",
    "pressure",
    "attack",
    "soak",
    "year",
    "worlds",
    "evaluation",
    "faults",
    "cluster",
    "scale",
    "screenshots",
)
MODULES = {"soak": "pressure"} | {name: f"{name}.__main__" for name in ("cluster", "evaluation", "faults", "scale")}
#: run by ``make bench``, in a few minutes
USUAL = {
    "query": ["--rounds", "3", "--idle", "0", "1992"],
    "pressure": ["--seconds", "30"],
}


def main(arguments: list[str]) -> int:
    if not arguments:
        return max(_run(name, options) for name, options in USUAL.items())
    if arguments[0] not in NAMES:
        print(f"benchmark: must be one of {', '.join(NAMES)}, not {arguments[0]!r}", file=sys.stderr)
        return 2
    return _run(arguments[0], arguments[1:])


def _run(name: str, options: list[str]) -> int:
    package = f"benchmarks.{MODULES.get(name, name)}"
    main = importlib.import_module(package).main
    try:
        return (main(options, name) if name == "soak" else main(options)) or 0
    except (RuntimeError, TimeoutError, OSError, RestError, httpx2.HTTPError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
