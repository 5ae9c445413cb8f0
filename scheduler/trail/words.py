"""Numbers and lists in a trail's sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def rate(value: float) -> str:
    """Items per second."""
    return f"{value:,.0f} items/s" if abs(value) >= 100 else f"{value:.1f} items/s"


def points(value: float) -> str:
    """Percentage points, with as many digits as help."""
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """``a, b and c``; beyond ``most`` the rest is a count."""
    found: Sequence[str] = list(names)
    if len(found) > most:
        found = [*found[: most - 1], f"{len(found) - most + 1} more"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def counted(count: int, noun: str) -> str:
    """``1 device``, ``2 devices``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
