"""Detection of connected members that are behind their configuration. Pure."""

from __future__ import annotations

import math

#: seconds since a difference began, and since the last configuration, after which that is sent again: it may still be
#: on its way, or the member be taking it over. They double with each repetition, up to the second figure, until the
#: member holds another configuration: repetitions slow a slow link further
ANSWER_EVERY_S, ANSWER_AT_LEAST_EVERY_S = 2.0, 30.0
#: seconds behind after which operators are warned of a member: crowded boxes take over, and report, late
WARN_AFTER_S = 30.0


class Lag:
    """One connection's member.

    Attributes:
        since: when the member began to be behind, None while it is not. It starts anew whenever the member takes over
            another configuration: where plans follow each other every second, one that keeps up is always a bit late.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._held, self._pause = "", ANSWER_EVERY_S
        self._sent_at = -math.inf

    def sent(self, now: float) -> None:
        self._sent_at = now

    def report(self, held: str | None, wanted: str, taken_at: float, now: float) -> bool:
        """Whether to answer a member that held the hash ``held`` at ``taken_at`` with the configuration wanted.

        ``held`` is None of a member that does not report it.
        """
        if held is None or held == wanted:
            self.since = None
            return False
        if taken_at < self._sent_at:
            return False  # a report from before the last configuration says nothing about it
        if self.since is None or held != self._held:
            self._held, self.since, self._pause = held, now, ANSWER_EVERY_S
        if taken_at < max(self.since, self._sent_at) + self._pause:
            return False
        self._pause = min(2 * self._pause, ANSWER_AT_LEAST_EVERY_S)
        return True

    def behind_since(self, now: float) -> float | None:
        """Since when it is so far behind that an operator must know."""
        return self.since if self.since is not None and now - self.since >= WARN_AFTER_S else None
