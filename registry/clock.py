"""The clocks of the control plane.

The wall clock may be set back or forward at any time: its readings are shown to people, and never compared. Ages are
measured on the steady clock: all processes of a box share it, nobody sets it, and it starts anew at each boot.
"""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path

#: a stored moment so far ahead of this clock is of an earlier boot. One that is less far ahead was stored by another
#: process since this one looked at the clock: a locked database holds up queries for many seconds
AHEAD_S = 60.0
#: the first part of the kernel's name for this boot tells two boots apart
BOOT_DIGITS = 12


def wall() -> float:
    return time.time()


def steady() -> float:
    return time.monotonic()


@functools.cache
def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:BOOT_DIGITS]


def stamp(at: float | None = None) -> str:
    """A steady moment (default: now) as text that outlives a boot."""
    return f"{boot()}:{steady() if at is None else at:.3f}"


def read(text: str | None) -> float | None:
    """The steady moment of a :func:`stamp`; None: none of this boot."""
    name, _, moment = (text or "").partition(":")
    if name != boot():
        return None
    try:
        return float(moment)
    except ValueError:
        return None


def age(text: str | None) -> float:
    """Seconds since a :func:`stamp`; infinite where that cannot be determined."""
    moment = read(text)
    return math.inf if moment is None else steady() - moment


class Unchanged:
    """Time for which each of several values has been the same.

    One process observes it. Needs no stored times: whatever restarts the process or sets the clock only makes it wait
    longer.
    """

    def __init__(self) -> None:
        self._since: dict[object, tuple[object, float]] = {}

    def ages(self, values: dict) -> dict:
        """Seconds by key without a change; keys absent from ``values`` are forgotten."""
        now = steady()
        known = self._since
        self._since = {
            key: known[key] if key in known and known[key][0] == value else (value, now)
            for key, value in values.items()
        }
        return {key: now - since for key, (_, since) in self._since.items()}


class Settled:
    """Time for which nobody has set the wall clock, as one process observes it."""

    #: seconds by which it must move against the steady clock to count as set
    STEP_S = 60.0

    def __init__(self) -> None:
        self._ahead, self._since = wall() - steady(), steady()

    def seconds(self) -> float:
        """Seconds since the last step, or since this was made."""
        now = steady()
        if abs(wall() - now - self._ahead) > self.STEP_S:
            self._ahead, self._since = wall() - now, now
        return now - self._since
