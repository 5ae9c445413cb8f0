"""Limits on what one connection may send. Pure.

``now`` (seconds, monotonic) is handed in. A member that sends too fast is read more slowly, so that its own outbox
drops what is worth least. Messages that are not valid are skipped; too many of them end the connection.
"""

from __future__ import annotations

from workers.token_bucket import TokenBucket

#: one message may take this many characters
MAX_MESSAGE = 4 * 1024 * 1024
#: cost of a message: 1, and 1 more for each this many characters
CHARACTERS = 16 * 1024
#: cost that may come at once, and each second after it. A gateway of 1,000 applications that are all overloaded costs
#: 40 a second; a member that was cut off brings some 1,200 messages (see :mod:`workers.outbox`)
BURST, PER_SECOND = 2_000.0, 200.0
#: seconds of statistics that may come at once, and each second after it: two of each second while it was cut off
STATISTICS_BURST, STATISTICS_PER_SECOND = 150.0, 3.0
#: messages that are not valid, at once, and each second after it
BAD_BURST, BAD_PER_SECOND = 10.0, 0.1


class IntakeLimits:
    """The limits of one connection; ``bad`` messages, and ``surplus`` seconds of statistics skipped, so far."""

    def __init__(self) -> None:
        self.bad = self.surplus = 0
        self._messages = TokenBucket(BURST, PER_SECOND)
        self._statistics = TokenBucket(STATISTICS_BURST, STATISTICS_PER_SECOND)
        self._faults = TokenBucket(BAD_BURST, BAD_PER_SECOND)

    def pause(self, characters: int, now: float) -> float:
        """Seconds to wait before a message is dealt with."""
        return self._messages.wait(1.0 + characters / CHARACTERS, now)

    def takes_statistics(self, now: float) -> bool:
        taken = self._statistics.takes(now)
        self.surplus += not taken
        return taken

    def endures(self, now: float) -> bool:
        self.bad += 1
        return self._faults.takes(now)
