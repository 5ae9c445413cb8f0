"""What the query path costs.

A real gateway and a real executor on one core serve queries of V2 HTTP with binary tensors (and of V2 gRPC where the
gateway offers it), with all that an appliance does to them: keys, checks, routing, deadlines, batching, counters. The
load comes from a process of its own on the same machine. CPU time is that of the server's processes over the queries
answered; every answer is checked, and one that is missing, wrong or an error ends the run. What a column holds is the
median over rounds in which everything takes turns: the session alone, the loads, and the servers beside.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .query import connections, copies, decisions, idle, serving, unloaded
from .query.heading import heading, text
from .query.load import LoadError
from .query.models import MODELS
from .query.servers import RIVALS, Mosec
from .query.serving import Effort
from .query.stack import StackError
from .query.table import Row, markdown


@dataclass(frozen=True)
class _Options:
    """``against``: other servers to measure beside."""

    effort: Effort
    quick: bool
    against: Sequence[type[Mosec]]


@dataclass(frozen=True)
class _Section:
    title: str
    run: Callable[[_Options], list[Row]]
    about: str


def _of_model(name: str, text: str) -> _Section:
    return _Section(text, lambda options: serving.section(name, options.effort, options.against), serving.__doc__)


SECTIONS = {
    "tiny": _of_model("tiny", "A tiny MLP"),
    "small": _of_model("small", "A small CNN"),
    "resnet18": _of_model("resnet18", "The shape of ResNet-18 at 224 x 224"),
    "unloaded": _Section("Unloaded latency", lambda options: unloaded.section(options.effort), unloaded.__doc__),
    "routing": _Section(
        "Routing decisions",
        lambda options: decisions.section(*(FEW_DECISIONS if options.quick else DECISIONS)),
        decisions.__doc__,
    ),
    "copies": _Section("Copies of a tensor", lambda options: copies.section(options.effort), copies.__doc__),
    "connections": _Section(
        "Open connections", lambda options: connections.section(options.effort), connections.__doc__
    ),
    "idle": _Section("Idle", lambda options: idle.section(2.0 if options.quick else 20.0), idle.__doc__),
}
assert MODELS.keys() <= SECTIONS.keys()

#: of routing: see `decisions.section`
DECISIONS, FEW_DECISIONS = (0.5, 5_000), (0.004, 500, 0.004, (0.9,))
QUICK = Effort(seconds=0.4, rounds=1, alone_s=0.02)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status: 1: a query failed or a server did not run."""
    given = _parse(arguments)
    options = _Options(QUICK if given.quick else Effort(), given.quick, given.against)
    page = [heading("The query path", __doc__)]
    print(page[0], flush=True)
    for name in given.only:
        began = time.perf_counter()
        try:
            rows = SECTIONS[name].run(options)
        except copies.NoCompiler as error:
            page.append(f"## {SECTIONS[name].title}\n\nNot measured: {error}\n")
        except (LoadError, StackError) as error:
            print(f"query_path: {name}: {error}", file=sys.stderr)
            return 1
        else:
            took = f"`--only {name}`, {time.perf_counter() - began:.0f} s"
            page.append(f"## {SECTIONS[name].title}\n\n{text(SECTIONS[name].about)}\n\n{markdown(rows)}\n\n{took}\n")
        print(page[-1], flush=True)
    if given.out is not None:
        given.out.write_text("\n".join(page))
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query_path", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--only", type=_names, default=list(SECTIONS), help=f"of {','.join(SECTIONS)} (default: all)")
    parser.add_argument("--against", type=_rivals, default=[], help=f"also measure {', '.join(RIVALS)}, if installed")
    parser.add_argument("--out", type=Path, help="write the page to this file, too")
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"{name!r}: must be of {', '.join(SECTIONS)}")
    return names


def _rivals(text: str) -> list[type[Mosec]]:
    found = []
    for name in text.split(","):
        rival = RIVALS.get(name)
        if rival is None:
            raise argparse.ArgumentTypeError(f"{name!r}: must be of {', '.join(RIVALS)}")
        if not rival.installed():
            raise argparse.ArgumentTypeError(f"{name}: its package is not installed here")
        found.append(rival)
    return found


if __name__ == "__main__":
    sys.exit(main())
