"""Pages of figures in Markdown: how they begin, and tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

Row = Mapping[str, object]


def heading(title: str, about: str) -> str:
    """A title, the text of a docstring with a line for each paragraph, and the machine."""
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in about.strip().split("\n\n"))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"# {title}\n\n{text}\n\n{machine()}, load before: {load}.\n"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    return f"{len(os.sched_getaffinity(0))} cores of {processor}, Python {platform.python_version()}"


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table with the first row's columns."""
    return table(list(rows[0]), ([row.get(column) for column in rows[0]] for row in rows))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column to the left, the others to the right.

    Figures get as many digits as they deserve; None and NaN are left empty.
    """
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return str(value).replace("|", "\\|")
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 20:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3f}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    each = [one / other for one, other in zip(ours, theirs, strict=True)]
    return f"{median(each):.3f} ({min(each):.2f} to {max(each):.2f})"
