"""Progress of a body or message that is being read, against its least rate. Pure."""

from __future__ import annotations

from .limits import Rate


class Progress:
    """Bytes since the present period began.

    Attributes:
        since: ``time.monotonic()`` when it began; None: with the next look.
    """

    __slots__ = ("_before", "_rate", "since")

    def __init__(self, rate: Rate):
        self._rate = rate
        self.since: float | None = None
        self._before = 0

    def restart(self, now: float | None, arrived: int) -> None:
        self.since, self._before = now, arrived

    def slow(self, now: float, arrived: int) -> bool:
        """Whether a period has ended with too few bytes; to be called about each second."""
        if self.since is None:
            self.since = now
        elapsed_s = now - self.since
        if elapsed_s < self._rate.period_s:
            return False
        gained = arrived - self._before
        self.restart(now, arrived)
        return gained < self._rate.bytes_per_s * elapsed_s
