"""Numbers and lists in sentences for people."""

from __future__ import annotations

from collections.abc import Iterable


def percent(share: float) -> str:
    return "less than 1%" if 0 < share < 0.01 else f"{share * 100:.0f}%"


def rate(value: float) -> str:
    if 0 < value < 0.1:
        return f"{value:.2f}" if value >= 0.01 else "< 0.01"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def items(value: float) -> str:
    return f"{rate(value)} items/s"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    for unit, length in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * length:
            return several(round(seconds / length), unit)
    return several(round(seconds), "second")


def listed(names: Iterable[str], most: int = 3) -> str:
    """``a, b and c``; beyond ``most`` the rest is a count."""
    found = list(names)
    if len(found) > most:
        found = [*found[:most], f"{len(found) - most} more"]
    return " and ".join([", ".join(found[:-1]), *found[-1:]] if len(found) > 1 else found)


def devices(names: Iterable[str], most: int = 3) -> str:
    """``box/cpu0 and box/cpu1``; beyond ``most`` how many of which nodes."""
    found = sorted(names)
    if len(found) <= most:
        return listed(found)
    return f"{len(found)} devices of {listed(sorted({name.partition('/')[0] for name in found}))}"
