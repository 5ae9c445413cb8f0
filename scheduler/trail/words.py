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


def devices(names: Iterable[str], most: int = 3) -> str:
    """``box/cpu0 and box/cpu1``; beyond ``most`` how many of which nodes."""
    found = sorted(names)
    if len(found) <= most:
        return listed(found)
    return f"{len(found)} devices of {listed(sorted({name.partition('/')[0] for name in found}))}"


def change(before: float, now: float) -> str:
    """A rate's change: ``from 6.5 to 19.0 items/s``."""
    return f"from {rate(before).removesuffix(' items/s')} to {rate(now)}"
