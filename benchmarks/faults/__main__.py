"""The fault matrix: ``python -m benchmarks faults [--rows NAME ...] [--quick]``.

Each row breaks one part of a whole appliance with two devices and two applications, under an open-loop load over V2
HTTP and V2 gRPC. Clients record every query, and a checker reads the record afterwards: one answer each, by a variant
that a plan in force allowed; plan versions that never go back; demand that is counted once. ``lost``: seconds in which
more than half of an application's queries were not answered, of the application that lost most. ``served``: seconds
until both applications were served again. ``back``: seconds until the broken part worked again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import heading

from .rows import QUICK, ROWS, Expected
from .running import Result, results


def expected_text(expected: Expected) -> str:
    found = {
        "lost": expected.lost_s,
        "served": expected.served_s,
        "back": expected.back_s,
    }
    return ", ".join(f"{name} ≤ {value:g} s" for name, value in found.items() if value is not None)


def measured_text(result: Result) -> str:
    if result.skipped:
        return f"skipped: {result.skipped}"
    parts = []
    if result.costs:
        sums = {
            name: sum(getattr(cost, name) for cost in result.costs.values())
            for name in ("sent", "refused", "unknown", "late")
        }
        parts.append(f"lost {result.lost_s:.1f} s")
        parts.append(f"of {sums['sent']} queries {sums['refused']} refused, {sums['unknown']} cut, {sums['late']} late")
        parts.append("never served again" if result.served_s is None else f"served {result.served_s:.1f} s")
        if result.row.back is not None:
            parts.append("never back" if result.back_s is None else f"back {result.back_s:.1f} s")
    if result.wrong:
        parts.append(result.wrong)
    return ", ".join(parts)


def verdict(result: Result) -> str:
    if result.skipped:
        return ""
    rules = sorted({violation.rule for violation in result.violations})
    failed = result.misses() + [f"history: {rule}" for rule in rules]
    return f"no: {'; '.join(failed)}" if failed else "yes"


def line(result: Result) -> str:
    row = result.row
    cells = (row.name, row.text, expected_text(row.expected), measured_text(result), verdict(result))
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out rows and print the table; 1: a row does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, metavar="NAME", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="the one row of make test")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep histories (JSON lines) there")
    given = parser.parse_args(arguments)
    rows = [QUICK] if given.quick else [ROWS[name] for name in given.rows or ROWS]
    print(heading("The fault matrix", __doc__.partition("\n\n")[2]), flush=True)
    print("| row | fault | expected | measured | holds |\n|---|---|---|---|---|", flush=True)
    holds, violations = True, []
    with tempfile.TemporaryDirectory(prefix="nereus-h-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for result in results(rows, folder):
            holds = holds and (result.holds or bool(result.skipped))
            print(line(result), flush=True)
            violations += [f"- {result.row.name}: {one.rule}: {one.text}" for one in result.violations[:5]]
    if violations:
        print("\nViolations:\n\n" + "\n".join(violations))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
