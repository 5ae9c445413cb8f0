"""Runs all benchmarks and writes docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from pathlib import Path

from benchmarks import replay, routing, serving

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _routing() -> str:
    lines = ["| devices | situation | median µs | p99 µs |", "|---:|---|---:|---:|"]
    for devices in routing.DEVICES:
        for name, situation in routing.SITUATIONS.items():
            times = routing.decision_times_us(devices, situation, 5_000)
            p99 = statistics.quantiles(times, n=100)[-1]
            lines.append(f"| {devices} | {name} | {statistics.median(times):.2f} | {p99:.2f} |")
    return "\n".join(lines)


def _section(title: str, module, body: str) -> str:
    text = "".join(" ".join(paragraph.split()) + "\n\n" for paragraph in module.__doc__.strip().split("\n\n"))
    return f"## {title}\n\n`python -m {module.__name__}`\n\n{text.strip()}\n\n{body}\n"


def main() -> None:
    parts = [
        "# Benchmarks\n\nMade by `make bench` (`python -m benchmarks`) on "
        f"{len(os.sched_getaffinity(0))} cores of {_processor()}, Python {platform.python_version()}. Everything, load "
        "included, shares these cores, so absolute figures are pessimistic; ratios within one run are what counts.\n"
    ]
    for title, module, run in (
        ("Routing decisions", routing, _routing),
        ("Cost of serving", serving, lambda: serving.render(serving.measure())),
        ("Demo replay", replay, lambda: replay.render(replay.measure())),
    ):
        print(f"{title} ...", file=sys.stderr)
        parts.append(_section(title, module, run()))
        print(parts[-1], flush=True)
    PAGE.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
