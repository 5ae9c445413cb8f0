"""Tables of figures in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Row = Mapping[str, object]


def markdown(rows: Sequence[Row]) -> str:
    """Columns are the first row's; figures get as many digits as they deserve, ``None`` is left empty."""
    columns = list(rows[0])
    lines = [_line(columns), _line("---" if _is_text(rows, column) else "---:" for column in columns)]
    return "\n".join([*lines, *(_line(_cell(row.get(column)) for column in columns) for row in rows)])


def _is_text(rows: Sequence[Row], column: str) -> bool:
    return any(isinstance(row.get(column), str) for row in rows)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 20:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3f}"
