"""Template filters for numbers and moments."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from console.access import role_in
from registry.access import table
from scheduler import words

register = template.Library()

#: how a moment is written, by name; static/nereus/moments.js writes it so in the browser's zone
MOMENTS = {"full": "%Y-%m-%d %H:%M:%S", "minutes": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "seconds": "%H:%M:%S"}
#: recorded fields whose name in words is not what the forms call them
FIELD_LABELS = {
    "cpu_devices": "CPU devices",
    "is_active": "Active",
    "is_superuser": "Superuser",
    "kind": "Admits",
    "late": "Late queries",
    "non_finite": "NaN and infinity",
    "share": "Share of capacity",
    "slo_ms": "SLO ms",
    "url": "Address",
    "user": "Account",
}
#: a moment in a sentence
_WRITTEN = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)? UTC\b")


def figure(write: Callable[..., str]) -> Callable[..., str]:
    """Register a filter of numbers that writes a dash where there is none."""

    @functools.wraps(write)
    def written(value: Any, *arguments: Any) -> str:
        known = isinstance(value, int | float) and math.isfinite(value)
        return write(value, *arguments) if known else "–"

    return register.filter(written)


rate = figure(words.rate)


@figure
def bytes_short(value: int) -> str:
    return words.size(value) if value else "–"


@figure
def percent(value: float, digits: int = 1) -> str:
    return f"{value:.{int(digits)}f} %"


@figure
def share(value: float) -> str:
    return "< 1 %" if 0 < value < 0.01 else f"{value * 100:.0f} %"


@figure
def ms(value: float) -> str:
    return f"{value:.0f} ms" if abs(value) >= 10 else f"{value:.2f} ms"


@register.filter
def shape(value: list[int] | None) -> str:
    return "[" + ", ".join("*" if dimension < 1 else str(dimension) for dimension in value or ()) + "]"


@figure
def seconds_ms(value: float) -> str:
    return ms(value * 1000)


@figure
def gap(value: float) -> str:
    return "0 %" if value < 5e-7 else f"{value * 100:.3g} %"


@register.filter
def may(request, call: str) -> bool:
    """Whether the account may call an address: ``request|may:"POST variants"``."""
    method, _, name = call.partition(" ")
    return table.permits(role_in(request), name, method)


@register.filter
def audited(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"


@register.filter
def field_label(name: str) -> str:
    words = name.replace("_", " ")
    return FIELD_LABELS.get(name, words[:1].upper() + words[1:])


@register.filter
def moment(value: datetime | None, form: str = "full") -> str:
    """A moment in UTC, which scripts show in the browser's zone."""
    if value is None:
        return "–"
    value = value.astimezone(UTC)
    return _moment(f"{value:%Y-%m-%dT%H:%M:%S}Z", form, f"{value.strftime(MOMENTS[form])} UTC")


@register.filter
def timed(sentence: str) -> SafeString:
    """A sentence whose moments, YYYY-MM-DD HH:MM UTC, become those of :func:`moment`."""
    parts, end = [], 0
    for found in _WRITTEN.finditer(sentence):
        at = f"{found[1]}T{found[2]}{found[3] or ':00'}Z"
        parts += [
            conditional_escape(sentence[end : found.start()]),
            _moment(at, "full" if found[3] else "minutes", found[0]),
        ]
        end = found.end()
    return mark_safe("".join([*parts, conditional_escape(sentence[end:])]))


def _moment(at: str, form: str, text: str) -> SafeString:
    return format_html('<time datetime="{}" data-moment="{}">{}</time>', at, form, text)
