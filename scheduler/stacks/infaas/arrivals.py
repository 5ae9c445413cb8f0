"""INFaaS decides at each arrival, not once a period. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from scheduler.allocation.problem import Allocation, Problem
from workers.dispatch.published.devices import SLACK

from ..dedicated import DedicatedChoices, capacity_by_application

#: window of arrivals that the load is measured over, and least time between two decisions on the same load, seconds:
#: INFaaS' Model-Autoscaler runs once a second
WINDOW_S = 1.0


class HeadroomTrigger:
    """INFaaS' rule: scale when the instances have too little headroom over the load.

    That is when the running instances' saturation throughput is below load * :data:`SLACK`. The load is what arrived
    within the last :data:`WINDOW_S`. Where planning could not raise the throughput (the cluster is full), the same load
    triggers again only after a window; a load that is higher by the slack does at once.
    """

    def __init__(self) -> None:
        self._capacity: Mapping[str, float] = {}
        self._arrived: dict[str, deque[float]] = {}
        self._asked: dict[str, tuple[float, float]] = {}

    def planned(self, problem: Problem, allocation: Allocation) -> None:
        self._capacity = capacity_by_application(DedicatedChoices(problem).residents(allocation.placements))

    def on_arrival(self, application: str, now: float) -> dict[str, float] | None:
        times = self._arrived.get(application)
        if times is None:
            times = self._arrived[application] = deque()
        times.append(now)
        while times[0] <= now - WINDOW_S:
            times.popleft()
        load = len(times) / WINDOW_S
        if load * SLACK <= self._capacity.get(application, 0.0):
            return None
        at, asked = self._asked.get(application, (-WINDOW_S, 0.0))
        if now - at < WINDOW_S and load <= asked * SLACK:
            return None
        self._asked[application] = now, load
        return {application: load}
