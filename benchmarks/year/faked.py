"""A wall clock that is moved while processes run: libfaketime, driven by a file."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

DAY_S = 86_400.0
HOUR_S = 3_600.0


def library() -> Path:
    """The library that is loaded before the C library's own functions.

    Raises:
        RuntimeError: it is not installed.
    """
    try:
        import libfaketime
    except ImportError:
        raise RuntimeError("libfaketime was not found; it is in requirements-dev.txt") from None
    return Path(libfaketime.__file__).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"


class FakedClock:
    """The wall clock of processes that run with :attr:`environment`.

    It is the real one plus ``offset`` seconds.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.offset = 0.0
        self.move_to(0.0)
        self.environment = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            # Else a running process would see only after 10 s that the clock was moved.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            # gunicorn keeps monotonic times in a file's status.
            "NO_FAKE_STAT": "1",
        }

    def move_to(self, offset: float) -> None:
        """Set the offset; processes see it within a second, one after the other."""
        self.offset = offset
        partial = self._file.with_suffix(".new")
        partial.write_text(f"{offset:+.1f}\n")
        os.replace(partial, self._file)

    def move_by(self, seconds: float) -> None:
        self.move_to(self.offset + seconds)

    def boot_in(self, year: int) -> None:
        """The clock of a box whose battery is dead, or was set wrongly."""
        self.move_to((year - 1970) * 365.25 * DAY_S + HOUR_S - time.time())


@dataclass(frozen=True)
class Step:
    """A day.

    Attributes:
        back: the clock is set back first.
        boot: the year in which the appliance starts, before the clock is corrected; None: it does not start anew.
        week: models and keys are changed.
    """

    day: int
    back: bool = False
    boot: int | None = None
    week: bool = False


def steps(days: int) -> list[Step]:
    boots = {days // 2: 1970, 3 * days // 4: 2040}
    return [Step(day, day == max(1, days // 4), boots.get(day), day % 7 == 1) for day in range(1, days + 1)]
