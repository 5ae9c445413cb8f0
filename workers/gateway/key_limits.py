"""Limits of API keys at one front: applications, rate, share of capacity, expiry.

Keys without limits are not here, so that their queries cost one lookup. Several fronts of a box each take the part of a
key's rate that its queries have there (:meth:`KeyTable.second`): together they admit at most a quarter more than the
rate, after a burst at each.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from workers.protocol.control import KeyLimits
from workers.protocol.gateways import ApplicationTotals

from .errors import Forbidden, GatewayError, OverShare, RateLimited, Unauthenticated

#: seconds after a refusal by the core in which an application counts as refusing
REFUSING_S = 2.0
#: seconds of answers from which capacity is the best one
CAPACITY_S = 10
#: seconds of queries by which fronts share a key's rate: totals of the others come once a second, sometimes not in time
PART_S = 3
#: least part of its rate that a key has at each of N fronts, so that a new connection there begins: 1 / (4 N)
LEAST_PART = 0.25


def permit(limits: KeyLimits | None, application: str) -> None:
    if limits is not None and limits.applications is not None and application not in limits.applications:
        raise Forbidden(f"model {application[:80]!r}: this API key does not reach it; an operator can change that")


def check_expiry(limits: KeyLimits | None) -> None:
    if limits is not None and limits.expires is not None and time.time() >= limits.expires:
        raise Unauthenticated("Authorization: this API key has expired")


class LimitedKey:
    """One key with limits.

    Attributes:
        limits: as configured; replaced when that changes.
        asked: queries since the start, admitted or not.
        part: of the rate, here.
    """

    __slots__ = ("_at", "_counts", "_rows", "_table", "_tokens", "asked", "limits", "part")

    def __init__(self, limits: KeyLimits, table: KeyTable):
        self.limits = limits
        self.part = 1.0
        self.asked = 0
        self._table = table
        self._tokens = self._burst()
        self._at = time.monotonic()
        #: queries here and elsewhere at the end of each second
        self._counts = deque([(0, 0)], maxlen=PART_S + 1)
        #: admitted in the present second, by application
        self._rows: dict[str, int] = {}

    def _burst(self) -> float:
        limits = self.limits
        return max(1.0, (limits.burst or limits.rate or 1.0) * self.part)

    def admit(self, application: str) -> None:
        """Count a query. Raises GatewayError where the key may not send it, or not now."""
        limits = self.limits
        check_expiry(limits)
        permit(limits, application)
        if limits.rate is None:
            return
        self.asked += 1
        now = time.monotonic()
        rate = limits.rate * self.part
        self._tokens = min(self._burst(), self._tokens + (now - self._at) * rate)
        self._at = now
        if self._tokens < 1.0:
            message = f"this API key's rate is {limits.rate:g} queries/s, burst {limits.burst or max(1, limits.rate):g}"
            raise RateLimited(f"{message}; try again", (1.0 - self._tokens) / rate)
        self._tokens -= 1.0

    def beyond_share(self, application: str, rows: int) -> GatewayError | None:
        """Count an admitted query's rows, unless the key has had its share."""
        share = self.limits.share
        if share is None:
            return None
        admitted = self._rows.get(application, 0)
        capacity = self._table.capacity(application)
        if capacity is not None and admitted + rows > share * capacity:
            return OverShare(
                f"model {application!r}: has more queries than it can answer, and this API key gets {share:.0%} of its "
                "capacity then; try again",
                1.0,
            )
        self._rows[application] = admitted + rows
        return None

    def second(self, elsewhere: int, fronts: int) -> None:
        self._rows.clear()
        self._counts.append((self.asked, elsewhere))
        if len(self._counts) > 2 and self._counts[0] == (0, 0):
            # The others began before this front.
            self._counts.popleft()
        # A front that was started again counts from 0.
        here, there = [max(0, now - before) for before, now in zip(self._counts[0], self._counts[-1], strict=True)]
        if fronts > 1 and (here or there):
            self.part = max(here / (here + there), LEAST_PART / fronts)


class KeyTable:
    def __init__(self) -> None:
        #: by hash
        self.by_hash: dict[str, LimitedKey] = {}
        self._refused: dict[str, float] = {}
        self._answered: dict[str, int] = {}
        self._per_second: dict[str, deque[int]] = {}

    def configure(self, limits: Mapping[str, KeyLimits]) -> None:
        self.by_hash = {name: self.by_hash.get(name) or LimitedKey(limit, self) for name, limit in limits.items()}
        for name, limit in limits.items():
            self.by_hash[name].limits = limit

    def refused(self, application: str) -> None:
        self._refused[application] = time.monotonic()

    def capacity(self, application: str) -> int | None:
        """Best rows/s of an application that refuses; None: it does not, or is unknown."""
        refused = self._refused.get(application)
        if refused is None or time.monotonic() - refused > REFUSING_S:
            return None
        return max(self._per_second.get(application, ()), default=0) or None

    @property
    def asked(self) -> dict[str, int]:
        """Queries of each key with a rate here since the start, for other fronts."""
        return {name: key.asked for name, key in self.by_hash.items() if key.limits.rate is not None}

    def second(self, totals: Mapping[str, ApplicationTotals], elsewhere: Mapping[str, int], fronts: int) -> None:
        """End a second.

        Args:
            totals: of this front's applications.
            elsewhere: queries by key at the other fronts since they started.
            fronts: how many there are.
        """
        if not self.by_hash:
            self._answered.clear()
            return
        for name, total in totals.items():
            rows = self._per_second.setdefault(name, deque(maxlen=CAPACITY_S))
            rows.append(max(0, total.rows - self._answered.get(name, total.rows)))
            self._answered[name] = total.rows
        for name, key in self.by_hash.items():
            key.second(elsewhere.get(name, 0), fronts)
