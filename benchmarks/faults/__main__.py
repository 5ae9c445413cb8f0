"""The fault matrix: ``python -m benchmarks faults [--rows NAME ...] [--quick]``.

Each row breaks one part of a whole appliance with two devices and two applications, under an open-loop load over V2
HTTP and V2 gRPC. Clients record every query, and a checker reads the record afterwards: one answer each, by a variant
that a plan in force allowed; plan versions that never go back; demand that is counted once. ``lost``: seconds in which
more than half of an application's queries were not answered, of the application that lost most. ``served``: seconds
until both applications were served again. ``back``: seconds until the broken part worked again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import heading

from .rows import QUICK, ROWS, Expected, Row
from .running import Result, results


def _expected(expected: Expected) -> str:
    bounds = {"lost": expected.lost_s, "served": expected.served_s, "back": expected.back_s}
    return ", ".join(f"{name} ≤ {value:g} s" for name, value in bounds.items() if value is not None)


def _measured(result: Result) -> str:
    if result.skipped:
        return f"skipped: {result.skipped}"
    parts = []
    if costs := result.costs.values():
        refused, unknown, late = (sum(getattr(cost, name) for cost in costs) for name in ("refused", "unknown", "late"))
        parts.append(f"lost {result.lost_s:.1f} s")
        parts.append(f"of {sum(cost.sent for cost in costs)} queries {refused} refused, {unknown} cut, {late} late")
        parts.append("never served again" if result.served_s is None else f"served {result.served_s:.1f} s")
        if result.row.back is not None:
            parts.append("never back" if result.back_s is None else f"back {result.back_s:.1f} s")
    return ", ".join([*parts, *filter(None, [result.noted or result.wrong])])


def _verdict(result: Result) -> str:
    failed = result.misses() + [f"history: {rule}" for rule in sorted({one.rule for one in result.violations})]
    return "" if result.skipped else f"no: {'; '.join(failed)}" if failed else "yes"


def carried_out(rows: Sequence[Row], keep: Path | None) -> int:
    print("| row | fault | expected | measured | holds |\n|---|---|---|---|---|", flush=True)
    holds, violations = True, []
    with tempfile.TemporaryDirectory(prefix="nereus-h-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for result in results(rows, folder):
            row, verdict = result.row, _verdict(result)
            holds = holds and not verdict.startswith("no")
            cells = (row.name, row.text, _expected(row.expected), _measured(result), verdict)
            print("| " + " | ".join(one.replace("|", "/").replace("\n", " ") for one in cells) + " |", flush=True)
            violations += [f"- {row.name}: {one.rule}: {one.text}" for one in result.violations[:5]]
    if violations:
        print("\nViolations:\n\n" + "\n".join(violations))
    return 0 if holds else 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="NAME", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="the one row of make test")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep histories (JSON lines) there")
    given = parser.parse_args(arguments)
    print(heading("The fault matrix", __doc__.partition("\n\n")[2]), flush=True)
    return carried_out([QUICK] if given.quick else [ROWS[name] for name in given.rows or ROWS], given.keep)
