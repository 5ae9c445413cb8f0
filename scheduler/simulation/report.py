"""One self-contained HTML page of a simulation: the figures, and three plots over time as inline SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Second

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 220, 56, 26, 10
COLOURS = ("#1f6feb", "#2da44e", "#cf222e", "#9a6700")

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; color: #1f2328; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .25rem .9rem .25rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } tr { border-bottom: 1px solid #d1d9e0; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #59636e; }
.key { margin-right: 1.2rem; } .key::before { content: ""; display: inline-block; width: 1.2rem; height: 3px;
margin-right: .4rem; vertical-align: middle; background: var(--colour); }
"""


def report(summary: Mapping[str, Any], seconds: Sequence[Second]) -> str:
    """The page."""
    title = f"{summary['scenario']}: {summary['strategy']}, {summary['batching']}, {summary['routing']}"
    plots = (
        (
            "Demand and throughput, queries/s",
            {
                "arrived": [s.arrived for s in seconds],
                "answered in time": [s.in_time for s in seconds],
            },
            0.0,
        ),
        ("Effective accuracy, normalised percent", {"accuracy": [s.effective_accuracy for s in seconds]}, None),
        ("SLO violations, queries/s", {"late or dropped": [s.late + s.dropped for s in seconds]}, 0.0),
    )
    body = [f"<h1>{html.escape(title)}</h1>", _figures(summary)]
    for caption, lines, low in plots:
        keys = "".join(
            f'<span class="key" style="--colour: {colour}">{html.escape(name)}</span>'
            for name, colour in zip(lines, COLOURS, strict=False)
        )
        body += [f"<h2>{html.escape(caption)}</h2>", f"<p>{keys}</p>", plot(lines, low)]
    body.append(_applications(summary["applications"]))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _figures(summary: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><th>{html.escape(key.replace("_", " "))}</th><td class="n">{html.escape(_text(value))}</td></tr>'
        for key, value in summary.items()
        if not isinstance(value, Mapping)
    )
    return f"<table>{rows}</table>"


def _applications(applications: Mapping[str, Mapping[str, Any]]) -> str:
    columns = ("queries", "in_time", "late", "dropped", "violation_ratio", "effective_accuracy")
    head = "".join(f'<th class="n">{column.replace("_", " ")}</th>' for column in columns)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f'<td class="n">{html.escape(_text(counts[column]))}</td>' for column in columns)
        + "</tr>"
        for name, counts in applications.items()
    )
    return f"<h2>By application</h2><table><tr><th>application</th>{head}</tr>{rows}</table>"


def plot(lines: Mapping[str, Sequence[float | None]], low: float | None = None) -> str:
    """An SVG with a line for each series, one value a second; None leaves a gap. ``low``: where the axis starts, by
    default at the least value."""
    values = [v for line in lines.values() for v in line if v is not None]
    if not values:
        return "<p>Nothing to show.</p>"
    bottom = min(values) if low is None else low
    ticks = _ticks(bottom, max(values))
    bottom, top = min(ticks[0], bottom), ticks[-1]
    length = max(len(line) for line in lines.values())

    def x(t: float) -> float:
        return LEFT + t / max(length - 1, 1) * (WIDTH - LEFT - 10)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - BOTTOM - TOP)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for tick in ticks:
        at = y(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}" stroke="#d1d9e0"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for t in _ticks(0, max(length - 1, 1)):
        if t <= max(length - 1, 1):
            parts.append(f'<text x="{x(t):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{t:g} s</text>')
    for line, colour in zip(lines.values(), COLOURS, strict=False):
        path, drawing = [], False
        for t, value in enumerate(line):
            if value is not None:
                path.append(f"{'L' if drawing else 'M'}{x(t):.1f} {y(value):.1f}")
            drawing = value is not None
        parts.append(f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "".join(parts) + "</svg>"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers, at least two, the first at most ``low`` and the last at least ``high``."""
    if high <= low:
        high = low + max(abs(low) * 1e-3, 1.0)
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
