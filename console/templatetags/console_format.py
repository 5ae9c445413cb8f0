"""Numbers as people read them."""

from __future__ import annotations

import json

from django import template

from console.access import role_in
from registry.access import table

register = template.Library()


@register.filter
def rate(value: float | None) -> str:
    """Per-second rates: as many digits as help."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


@register.filter
def bytes_short(value: int | None) -> str:
    """Bytes with a binary unit; 0 (unknown) as a dash."""
    if not value:
        return "–"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if size >= 100 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the largest unit takes everything")


@register.filter
def percent(value: float | None, digits: int = 1) -> str:
    """A number that is in percent already."""
    return "–" if value is None else f"{value:.{int(digits)}f} %"


@register.filter
def share(value: float | None) -> str:
    """A share (0 to 1) in percent."""
    return "–" if value is None else f"{value * 100:.0f} %"


@register.filter
def ms(value: float | None) -> str:
    """Milliseconds."""
    if value is None:
        return "–"
    return f"{value:.0f} ms" if abs(value) >= 10 else f"{value:.2f} ms"


@register.filter
def shape(value: list[int] | None) -> str:
    """A tensor's shape; a free dimension is an asterisk."""
    return "[" + ", ".join("*" if dimension < 1 else str(dimension) for dimension in value or ()) + "]"


@register.filter
def seconds_ms(value: float | None) -> str:
    """Seconds, shown in milliseconds."""
    return ms(None if value is None else value * 1000)


@register.filter
def gap(value: float | None) -> str:
    """A relative gap (0 to 1) in percent; a proven optimum is a plain 0."""
    if value is None:
        return "–"
    return "0 %" if value < 5e-7 else f"{value * 100:.3g} %"


@register.filter
def may(request, call: str) -> bool:
    """Whether the account may call an address: ``request|may:"POST variants"``."""
    method, _, name = call.partition(" ")
    return table.permits(role_in(request), name, method)


@register.filter
def audited(value: object) -> str:
    """A value of an audit entry: as JSON, and short."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"
