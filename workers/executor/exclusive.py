"""Work other than batches that needs the device to itself, and when it may run.

``PLAN`` work (warming up what a plan wants, unloading) alternates with batches, so that a busy device still changes
plans; batches that were there before long work of it go first. So does the first run of a variant that never ran on
this type of device. ``MEASURE`` steps run when the device would idle; on a busy one they get a set share of its time:
after a step of e seconds the next may push in e * (1 - share) / share later, so that their share is exact and never
comes as one long stall. ``CHECK`` steps run in lulls alone: no batch waits for the beginning of one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: expected seconds from which plan work is long: cores are notified, and send queries to another device meanwhile
LONG_S = 0.02
#: an idle device is one where nothing arrived for this long; then a measuring step of any length may start
QUIET_S = 1.0
#: otherwise it must be shorter than this part of the tightest SLO, because a query may come while it runs
SHORT = 0.1


class WorkKind(StrEnum):
    PLAN = "plan"
    MEASURE = "measure"
    CHECK = "check"


@dataclass(slots=True)
class ExclusiveRequest:
    kind: WorkKind
    call: Callable[[], Any]
    future: asyncio.Future
    expected_s: float = 0.0
    limit_s: float = math.inf  # when the watchdog terminates it
    variant: int = 0  # id of what it runs; 0 for none
    added: float = 0.0  # when it was requested

    @property
    def long_plan_work(self) -> bool:
        """Whether it makes queries wait that come while it runs, or before it does."""
        return self.kind is WorkKind.PLAN and self.expected_s >= LONG_S


class Exclusive:
    """Requests that wait for the device. Decides which one is due, runs nothing.

    ``share``: least share of a busy device's time for MEASURE steps (0 to 1).
    """

    def __init__(self, share: float):
        self._share = share
        self.requests: list[ExclusiveRequest] = []
        #: the CHECK step that waits for a lull
        self._check: ExclusiveRequest | None = None
        self._plan_turn = True
        self._next_measure_at = 0.0

    def add(self, request: ExclusiveRequest) -> None:
        if request.kind is WorkKind.CHECK:
            self._check = request
        else:
            self.requests.append(request)

    def _first(self, kind: WorkKind) -> ExclusiveRequest | None:
        self.requests = [request for request in self.requests if not request.future.done()]
        return next((request for request in self.requests if request.kind is kind), None)

    def _pop(self, request: ExclusiveRequest | None) -> ExclusiveRequest | None:
        if request is not None:
            self.requests.remove(request)
        return request

    def plan_s(self) -> float:
        waiting = (
            request.expected_s for request in self.requests if request.long_plan_work and not request.future.done()
        )
        return next(waiting, 0.0)

    def before_batches(self, now: float, oldest: float = math.inf) -> ExclusiveRequest | None:
        """The request that goes before any batch; ``oldest`` of these came at that time."""
        if not self.requests:
            return None
        request = self._first(WorkKind.PLAN)
        due = request is not None and not (request.long_plan_work and oldest < request.added)
        if due and self._plan_turn:
            self._plan_turn = False
            return self._pop(request)
        self._plan_turn = True
        request = self._first(WorkKind.MEASURE)
        if request is not None and now >= self._next_measure_at:
            return self._pop(request)
        return None

    def when_idle(
        self, now: float, last_arrival: float, tightest_slo_s: float
    ) -> tuple[ExclusiveRequest | None, float]:
        """A request that may run while no batch waits, or None and when to ask again."""
        request = self._first(WorkKind.PLAN)
        if request is not None:
            return self._pop(request), now
        request = self._first(WorkKind.MEASURE)
        measure, check = request is not None, self._check
        if request is None:
            if check is not None and check.future.done():
                check = self._check = None
            if check is None:
                return None, math.inf
            request = check
        quiet_at = last_arrival + QUIET_S
        if now >= quiet_at or request.expected_s <= SHORT * tightest_slo_s:
            if measure:
                return self._pop(request), now
            self._check = None
            return request, now
        return None, min(self._next_measure_at, quiet_at) if measure else quiet_at

    def measured(self, now: float, took_s: float) -> None:
        self._next_measure_at = now + took_s * (1.0 - self._share) / self._share
