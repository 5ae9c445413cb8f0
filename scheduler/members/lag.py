"""Detection of connected members that are behind their configuration. Pure."""

from __future__ import annotations

import math

#: pause between two configurations on one connection, in seconds: the member is still taking over the last one
ANSWER_EVERY_S = 2.0
#: seconds for which a difference has to last: the connection's own push may still wait behind what it deals with now
PUSHED_S = 1.0
#: seconds behind after which operators are warned of a member
WARN_AFTER_S = 10.0
#: seconds after which they are warned of one whose reports are all from before the last configuration: crowded boxes,
#: its own or the control plane's, pass messages on late
SLOW_S = 60.0


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
        self._number = 0
        self._awaited_since: float | None = None
        self._refused = False

    def sent(self, now: float, number: int) -> None:
        """Note that a configuration was sent, as message ``number`` from 1."""
        self._sent_at, self._number = now, number
        if self._awaited_since is None:
            self._awaited_since = now

    def report(self, held: str | None, wanted: str, taken_at: float, now: float, received: int | None = None) -> bool:
        """Compare what the member held at ``taken_at`` with what it should hold.

        Args:
            held: hash of the member's configuration; None: the member does not report it.
            wanted: hash of the configuration that it should hold.
            received: messages that it had received by then; None: the member does not report it.

        Returns:
            Whether to answer with the configuration that it should hold.
        """
        if held is None or held == wanted:
            self.since, self._awaited_since, self._refused = None, None, False
            return False
        if taken_at < self._sent_at or (received is not None and received < self._number):
            return False  # a report from before the last configuration says nothing about it
        if self.since is None or held != self._held:
            self._held, self.since, self._refused = held, now, False
        elif self._sent_at >= self.since:
            self._refused = True
        self._awaited_since = None
        return taken_at >= max(self.since + PUSHED_S, self._sent_at + ANSWER_EVERY_S)

    def warns(self, now: float) -> bool:
        return self.behind_since(now) is not None

    def behind_since(self, now: float) -> float | None:
        """Since when it is so far behind that an operator must know."""
        if self._refused and now - self.since >= WARN_AFTER_S:
            return self.since
        slow = self._awaited_since is not None and now - self._awaited_since >= SLOW_S
        return self._awaited_since if slow else None


class Lasting:
    """Whether a condition has held for ``seconds`` without a break.

    Restarts after it returns True.
    """

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
