"""Numbers in sentences."""

from __future__ import annotations


def percent(share: float) -> str:
    """A share (0 to 1); what is more than nothing is not shown as 0%."""
    if 0 < share < 0.01:
        return "less than 1%"
    return f"{share * 100:.0f}%"


def rate(value: float) -> str:
    """A rate per second, with as many digits as help."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def size(value: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 or unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def several(count: int, what: str) -> str:
    """A number with its noun, whose plural ends in s."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use."""
    for unit, length in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * length:
            return several(round(seconds / length), unit)
    return several(round(seconds), "second")


def listed(names: list[str], most: int = 3) -> str:
    """The first names, and how many there are beyond them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
