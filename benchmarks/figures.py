"""Pages of figures in Markdown: how they begin, and tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

Row = Mapping[str, object]


def heading(title: str, about: str) -> str:
    """Return a heading: a title, the text of a docstring, and the machine.

    Each paragraph of the text becomes one line.
    """
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in about.strip().split("\n\n"))
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"# {title}\n\n{text}\n\n{machine()}, load before: {load}.\n"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    return f"{len(os.sched_getaffinity(0))} cores of {processor}, Python {platform.python_version()}"


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table with the first row's columns.

    Figures get as many digits as they deserve; None and NaN are left empty.
    """
    columns = list(rows[0])
    lines = [_line(columns), _line("---" if _is_text(rows, column) else "---:" for column in columns)]
    return "\n".join([*lines, *(_line(_cell(row.get(column)) for column in columns) for row in rows)])


def _is_text(rows: Sequence[Row], column: str) -> bool:
    return any(isinstance(row.get(column), str) for row in rows)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 20:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3f}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    each = [one / other for one, other in zip(ours, theirs, strict=True)]
    return f"{median(each):.3f} ({min(each):.2f} to {max(each):.2f})"
