"""Detection of connected members that are behind their configuration. Pure."""

from __future__ import annotations

import math

#: pause between two configurations on one connection, in seconds: the member is still taking over the last one
ANSWER_EVERY_S = 2.0
#: seconds behind after which operators are warned of a member
WARN_AFTER_S = 10.0


class Lag:
    """One connection's member.

    Attributes:
        since: when the member began to be behind, None while it is not. It starts anew whenever the member takes over
            another configuration: where plans follow each other every second, one that keeps up is always a bit late.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._held = ""
        self._sent_at = -math.inf

    def sent(self, now: float) -> None:
        """A configuration was sent on this connection."""
        self._sent_at = now

    def report(self, held: str | None, wanted: str, taken_at: float, now: float) -> bool:
        """Compare what the member held at ``taken_at`` with what it should hold; returns whether to answer with that.

        Args:
            held: hash of the member's configuration; None: the member does not report it.
            wanted: hash of the configuration that it should hold.
        """
        if taken_at < self._sent_at:
            return False  # a report from before the last configuration says nothing about it
        if held is None or held == wanted:
            self.since = None
            return False
        if self.since is None or held != self._held:
            self._held, self.since = held, now
        return taken_at >= self._sent_at + ANSWER_EVERY_S

    def warns(self, now: float) -> bool:
        """Whether an operator must know."""
        return self.since is not None and now - self.since >= WARN_AFTER_S


class Lasting:
    """Whether a condition has held for ``seconds`` without a break. Restarts after it returns True."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def holds(self, condition: bool, now: float) -> bool:
        if not condition:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._seconds:
            return False
        self._since = now
        return True
