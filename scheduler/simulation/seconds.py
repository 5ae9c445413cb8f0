"""Arrivals and outcomes in each second of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Second:
    second: int
    arrived: int
    in_time: int
    late: int
    dropped: int
    effective_accuracy: float | None


def binned(seconds: Sequence[Second], width: int) -> list[tuple[float, float, float, float | None, float]]:
    """Means over ``width`` seconds, by the seconds that a last bin has.

    Each is (middle in s, arrived a second, in time a second, effective accuracy or None, violations a second).
    """
    lines = []
    for start in range(0, len(seconds), width):
        part = seconds[start : start + width]
        arrived, in_time = sum(s.arrived for s in part), sum(s.in_time for s in part)
        weighted = sum(s.in_time * s.effective_accuracy for s in part if s.effective_accuracy is not None)
        lines.append(
            (
                part[0].second + len(part) / 2,
                arrived / len(part),
                in_time / len(part),
                weighted / in_time if in_time else None,
                (arrived - in_time) / len(part),
            )
        )
    return lines
