"""Constraints of queries, against what is warm: which variants can meet them, and the nearest where none can. Pure.

The model-less interface (INFaaS, ATC'21, Section 3): a query may name the time it can wait and the accuracy it needs
instead of a variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Able:
    """A variant that is warm on a device. ``accuracy``: percent, the application's own metric. ``seconds``: that the
    query would take there alone, as expected; None: not known."""

    device: str
    id: int
    variant: str
    accuracy: float
    seconds: float | None


class Unmet(ValueError):
    """Nothing that is warm can do what a query insists on; the text names the parameter and the nearest that can."""


def fitting(able: Sequence[Able], min_accuracy: float | None, latency_s: float | None) -> list[Able]:
    """Those that meet both constraints.

    Raises:
        Unmet: there is none.
    """
    enough = [one for one in able if min_accuracy is None or one.accuracy >= min_accuracy]
    if not enough:
        best = max((one.accuracy for one in able), default=None)
        now = "nothing is warm now" if best is None else f"the best available now is {best:g}"
        raise Unmet(f"parameters.min_accuracy: {min_accuracy:g} cannot be had; {now}")
    found = [one for one in enough if latency_s is None or one.seconds is None or one.seconds <= latency_s]
    if found:
        return found
    nearest = min(enough, key=lambda one: one.seconds)
    text = (
        f"parameters.latency_ms: {latency_s * 1e3:g} is too short for what can be had now; the nearest is "
        f"{nearest.variant!r} with an accuracy of {nearest.accuracy:g} in about {nearest.seconds * 1e3:.3g} ms"
    )
    if min_accuracy is not None:
        quick = [one for one in able if one.seconds is None or one.seconds <= latency_s]
        if quick:
            other = max(quick, key=lambda one: one.accuracy)
            text += f"; within that time the best is {other.variant!r} with {other.accuracy:g}"
    raise Unmet(text)
