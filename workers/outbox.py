"""A member's messages while the control plane may be away.

They are bounded, and the least valuable is dropped first.

Pure: ``now`` (seconds, any monotonic origin) is handed in. Messages fall into four kinds:

- *latest state* (:class:`~workers.protocol.control.DeviceStates`, progress of a profile job): only the newest counts;
- *events* that must arrive (a profile job's end): kept in order, up to ``event_limit``;
- *per-second statistics*: those of the last ``stats_s`` seconds, stamped with their age when they leave;
- *moments* (burst, overload, drift): worth something only at once, so not kept while the link is down.
"""

from __future__ import annotations

from collections import deque

import msgspec

from .protocol import control

_STATS = (control.NodeStats, control.GatewayStats)
_MOMENTS = (control.Burst, control.Overload, control.Drift)
_JOB_ENDS = (control.ProfileDone, control.ProfileFailed)


class Outbox:
    """Messages that wait for the link; nothing here blocks or grows without bound."""

    def __init__(self, stats_s: float = 60.0, event_limit: int = 1000, moment_limit: int = 100):
        self._stats_s = stats_s
        self._event_limit = event_limit
        self._latest: dict[tuple, control.FromMember] = {}
        self._events: deque[control.FromMember] = deque()
        self._moments: deque[control.FromMember] = deque(maxlen=moment_limit)
        self._stats: deque[tuple[float, control.NodeStats | control.GatewayStats]] = deque()
        self.dropped: dict[str, int] = {"stats": 0, "event": 0, "moment": 0}
        """messages given up so far, by kind"""

    def __len__(self) -> int:
        return len(self._latest) + len(self._events) + len(self._moments) + len(self._stats)

    def put(self, message: control.FromMember, now: float, up: bool) -> None:
        """Keep ``message`` until it can be sent, if it will still be worth something then."""
        if isinstance(message, _STATS):
            self._stats.append((now - message.at, message))
            self._forget_stats(now)
        elif isinstance(message, _MOMENTS):
            if not up or len(self._moments) == self._moments.maxlen:
                self.dropped["moment"] += 1
            if up:
                self._moments.append(message)
        elif isinstance(message, control.DeviceStates):
            self._latest["device_states",] = message
        elif isinstance(message, control.ProfileProgress):
            # A job's progress never overtakes its end: both leave in order of `pop`, and the end clears it.
            self._latest["progress", message.job] = message
        else:
            if isinstance(message, _JOB_ENDS):
                self._latest.pop(("progress", message.job), None)
            self._events.append(message)
            if len(self._events) > self._event_limit:
                self._events.popleft()
                self.dropped["event"] += 1

    def pop(self, now: float) -> control.FromMember | None:
        """The next message to send: state, then events, moments, oldest statistics."""
        if self._latest:
            return self._latest.pop(next(iter(self._latest)))
        if self._events:
            return self._events.popleft()
        if self._moments:
            return self._moments.popleft()
        self._forget_stats(now)
        if self._stats:
            ended, message = self._stats.popleft()
            return msgspec.structs.replace(message, at=round(max(0.0, now - ended), 3))
        return None

    def put_back(self, message: control.FromMember, now: float) -> None:
        """Put back what failed, unless it is sent anew (state) or worth nothing (moments)."""
        if isinstance(message, _STATS):
            self._stats.appendleft((now - message.at, message))
        elif isinstance(message, _MOMENTS):
            self.dropped["moment"] += 1
        elif not isinstance(message, control.DeviceStates | control.ProfileProgress):
            self._events.appendleft(message)

    def link_lost(self) -> None:
        """Drop messages that were of use only at once."""
        self.dropped["moment"] += len(self._moments)
        self._moments.clear()

    def _forget_stats(self, now: float) -> None:
        while self._stats and now - self._stats[0][0] > self._stats_s:
            self._stats.popleft()
            self.dropped["stats"] += 1
